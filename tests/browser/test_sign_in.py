"""People at a real browser: sign-in, consent, sign-out."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from tests.support.world import World

pytestmark = pytest.mark.clients


async def test_the_error_page_opens(world: World, page: Page) -> None:
    answer = await page.goto(f"{world.stack.base_url}/oidc/auth")
    assert answer is not None
    assert answer.status == 400
    await expect(page.get_by_role("heading")).to_have_text("This did not work")

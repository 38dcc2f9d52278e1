"""The API reference in a real browser: it obtains a token and calls the API, within its Content-Security-Policy."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from tests.support.running_stack import RunningStack
from tests.support.world import MANAGEMENT_API

pytestmark = pytest.mark.clients


async def test_authorize_obtains_a_token_with_which_an_operation_can_be_tried(page: Page, stack: RunningStack) -> None:
    page.set_default_timeout(60_000)  # the page parses two megabytes of script
    foreign: list[str] = []
    page.on("request", lambda request: foreign.append(request.url) if not _is_ours(request.url, stack) else None)
    access = stack.credentials.management_api
    await page.goto(f"{stack.base_url}/api/reference")
    await page.get_by_role("button", name="Authorize").click()
    form = page.locator(".auth-container", has_text="client_secret")
    await form.get_by_label("client_id:").fill(access.client_id)
    await form.get_by_label("client_secret:").fill(access.client_secret)
    await form.get_by_role("button", name="Apply given OAuth2 credentials").click()
    await expect(form.get_by_role("button", name="Remove authorization")).to_be_visible()
    await page.get_by_role("button", name="Close").last.click()
    await page.get_by_role("link", name="Resources", exact=True).click()
    operation = page.locator("#operations-Resources-ListResources")
    await operation.locator(".opblock-summary-control").click()
    await operation.get_by_role("button", name="Try it out").click()
    await operation.get_by_role("button", name="Execute").click()
    await expect(operation.locator(".live-responses-table .response .response-col_status")).to_have_text("200")
    await expect(operation.locator(".live-responses-table")).to_contain_text(MANAGEMENT_API)
    assert foreign == []


def _is_ours(url: str, stack: RunningStack) -> bool:
    return url.startswith((f"{stack.base_url}/", "data:"))

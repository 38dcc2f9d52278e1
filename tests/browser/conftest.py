"""Debian's chromium, driven by Playwright, in front of the running stack."""

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, async_playwright, expect

from tests.support.accessibility import Inspector
from tests.support.application_site import ApplicationSite
from tests.support.npm import installed
from tests.support.world import World

expect.set_options(timeout=30_000)  # a busy machine is no failure


@pytest.fixture(scope="session")
async def browser() -> AsyncIterator[Browser]:
    """A real browser; Playwright's own is not downloaded."""
    chromium = shutil.which("chromium")
    assert chromium is not None, "these tests need a browser: apt-get install chromium"
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, chromium_sandbox=False)
        yield browser
        await browser.close()


@pytest.fixture
async def page(browser: Browser) -> AsyncIterator[Page]:
    """One tab of somebody who has never been here; nothing on a page is what its own policy forbids."""
    context = await browser.new_context()
    complaints: list[str] = []
    context.on("console", lambda message: complaints.append(message.text))
    yield await context.new_page()
    await context.close()
    assert [complaint for complaint in complaints if "Content Security Policy" in complaint] == []


@pytest.fixture(scope="session")
def site(world: World) -> Iterator[ApplicationSite]:
    """The site of an application, of another origin than ours."""
    with ApplicationSite(world) as site:
        yield site


@pytest.fixture(scope="session")
def inspector(tmp_path_factory: pytest.TempPathFactory) -> Inspector:
    """Looks at pages; its photographs are in the directory of the test run."""
    packages = installed(Path(__file__).parent / "javascript", tmp_path_factory.mktemp("axe"))
    axe = (packages / "node_modules/axe-core/axe.min.js").read_text()
    return Inspector(axe, tmp_path_factory.mktemp("photographs"))

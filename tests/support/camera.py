"""Takes pictures of pages, in both themes, on a phone and on a desktop; for ``make screenshots``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Literal

from playwright.sync_api import Page, sync_playwright

_CHROMIUM = "/usr/bin/chromium"
_WIDTHS = (1440, 390)
_HEIGHTS = {1440: 900, 390: 844}
_DOCUMENTED = (1200, 780)
_THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


class Camera:
    """Takes the pictures of a tab.

    Attributes:
        page: The tab.
    """

    def __init__(self, page: Page, directory: Path, documents: Path, *, only: str = "") -> None:
        self.page = page
        self._directory = directory
        self._documents = documents
        self._only = re.compile(only)

    def takes(self, name: str) -> bool:
        """Return whether pictures with this name are wanted."""
        return self._only.search(name) is not None

    def take(self, name: str, *, widths: tuple[int, ...] = _WIDTHS) -> None:
        """Take the pictures of the present page, if they are wanted."""
        if not self.takes(name):
            return
        for width, theme in product(widths, _THEMES):
            self._look(theme, width, _HEIGHTS[width])
            self.page.screenshot(path=self._directory / f"{name}-{theme}-{width}.png", full_page=True)

    def document(self, name: str) -> None:
        """Replace a picture in the documents by one of what is visible of the present page."""
        self._look("light", *_DOCUMENTED)
        self.page.screenshot(path=self._documents / f"{name}.png")

    def look_as_on_a_phone(self) -> None:
        """Show the page as on a phone, where some things are behind a button."""
        self._look("light", 390, _HEIGHTS[390])

    def _look(self, theme: Literal["light", "dark"], width: int, height: int) -> None:
        self.page.emulate_media(color_scheme=theme)
        self.page.set_viewport_size({"width": width, "height": height})


@contextmanager
def browser_tab(language: str) -> Iterator[Page]:
    """Yield a tab of the installed Chromium, which says that it is Chrome."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_CHROMIUM, args=["--no-sandbox"])
        user_agent = f"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/{browser.version}"
        yield browser.new_page(
            reduced_motion="reduce", user_agent=user_agent, extra_http_headers={"Accept-Language": language}
        )
        browser.close()

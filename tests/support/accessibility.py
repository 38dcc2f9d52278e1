"""What every page must be: usable for everybody, on a phone and on a desktop, light and dark."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any, Literal

from playwright.async_api import Page, ViewportSize

PHONE, DESKTOP = ViewportSize(width=320, height=640), ViewportSize(width=1280, height=800)
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


class Inspector:
    """Looks at pages with axe-core, and photographs them for people to look at.

    Args:
        axe: The checker, as a script.
        photographs: A directory.
    """

    def __init__(self, axe: str, photographs: Path) -> None:
        self._axe = axe
        self._photographs = photographs

    async def inspect(self, page: Page, name: str) -> None:
        """Fail unless axe-core finds nothing on the page, and nothing sticks out of it."""
        for size, scheme in product((PHONE, DESKTOP), SCHEMES):
            await page.set_viewport_size(size)
            await page.emulate_media(color_scheme=scheme)
            await page.screenshot(path=self._photographs / f"{name}-{size['width']}-{scheme}.png", full_page=True)
            assert (size, scheme, await self.violations(page)) == (size, scheme, [])
            assert await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")

    async def violations(self, page: Page) -> list[tuple[str, str, list[str]]]:
        """Return what axe-core finds: the rule, what it says, the elements."""
        await page.evaluate(self._axe)
        found: list[dict[str, Any]] = (await page.evaluate("axe.run()"))["violations"]
        return [(each["id"], each["help"], [node["html"] for node in each["nodes"]]) for each in found]

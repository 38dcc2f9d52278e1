"""How a page names a browser by its ``User-Agent``."""

import pytest

from console.browsers import browser_of

_WINDOWS = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko)"
_MAC = "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko)"
_IPHONE = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_6 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko)"
_ANDROID = "Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko)"


@pytest.mark.parametrize(
    ("user_agent", "expected"),
    [
        ("Mozilla/5.0 (X11; Linux x86_64; rv:146.0) Gecko/20100101 Firefox/146.0", ("Firefox", "Linux")),
        (f"{_WINDOWS} Chrome/143.0.0.0 Safari/537.36", ("Chrome", "Windows")),
        (f"{_WINDOWS} Chrome/143.0.0.0 Safari/537.36 Edg/143.0.0.0", ("Edge", "Windows")),
        (f"{_WINDOWS} Chrome/143.0.0.0 Safari/537.36 OPR/124.0.0.0", ("Opera", "Windows")),
        (f"{_MAC} Version/26.1 Safari/605.1.15", ("Safari", "macOS")),
        (f"{_IPHONE} Version/26.1 Mobile/15E148 Safari/604.1", ("Safari", "iPhone")),
        (f"{_IPHONE} CriOS/143.0.7499.92 Mobile/15E148 Safari/604.1", ("Chrome", "iPhone")),
        (f"{_ANDROID} Chrome/143.0.0.0 Mobile Safari/537.36", ("Chrome", "Android")),
        (f"{_ANDROID} SamsungBrowser/29.0 Chrome/136.0.0.0 Mobile Safari/537.36", ("Samsung Internet", "Android")),
        ("Firefox/146.0", ("Firefox", "")),
        ("curl/8.5.0 (Linux)", ("curl/8.5.0 (Linux)", "")),
        ("<script>" * 100, (("<script>" * 8)[:60], "")),
        (f"Version/{'1.' * 5_000}", (f"Version/{'1.' * 26}", "")),
        ("", ("", "")),
    ],
)
def test_a_browser_has_the_name_that_people_know(user_agent: str, expected: tuple[str, str]) -> None:
    assert browser_of(user_agent) == expected

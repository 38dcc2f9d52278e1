"""What a browser calls itself, in two words."""

import pytest

from console.user_agents import program

SAFARI = "(KHTML, like Gecko) Version/18.0 Safari/605.1.15"
CHROME = "AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36"


@pytest.mark.parametrize(
    ("user_agent", "expected"),
    [
        ("Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0", ("Firefox", "Linux")),
        (f"Mozilla/5.0 (Windows NT 10.0; Win64; x64) {CHROME} Edg/140.0.0.0", ("Edge", "Windows")),
        (f"Mozilla/5.0 (Linux; Android 15) {CHROME}", ("Chrome", "Android")),
        (f"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 {SAFARI}", ("Safari", "macOS")),
        (f"Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15 {SAFARI}", ("Safari", "iPhone")),
        ("curl/8.5.0", ("", "")),
        ("<script>" * 32, ("", "")),
        ("", ("", "")),
    ],
)
def test_a_browser_is_named_with_its_system(user_agent: str, expected: tuple[str, str]) -> None:
    assert program(user_agent) == expected

"""What may be chosen of how pages look: colours that can be read, and addresses of logos."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from identity_common.pages.design import DESIGN
from identity_common.pages.looks import GROUND, color_problem, is_logo_uri
from tests.unit.uris import NOWHERE


@pytest.mark.parametrize("uri", ["https://example.com/logo.svg", "https://cdn.example.com:8443/a?b=c"])
def test_a_logo_is_an_address_on_https(uri: str) -> None:
    assert is_logo_uri(uri)


@pytest.mark.parametrize(
    "uri", [*NOWHERE, "http://localhost/a", "http://127.0.0.1/a", "https://[2001:db8::1]/a", "https://@example.com/a"]
)
def test_nothing_else_is_a_logo(uri: str) -> None:
    """The host becomes part of a header, and nothing may be added to it."""
    assert not is_logo_uri(uri)


@given(st.text())
def test_any_text_is_judged_as_a_logo_or_a_colour(text: str) -> None:
    assert is_logo_uri(text) in {True, False}
    assert color_problem(text) is None or isinstance(color_problem(text), str)


@pytest.mark.parametrize(
    ("color", "problem"),
    [
        ("#2450c8", None),
        ("#767676", None),
        ("#003366", None),
        ("#777777", "has a contrast of 4.4:1 with white: choose a darker shade, 4.5:1 or more"),
        ("#FFD500", "has a contrast of 1.4:1 with white: choose a darker shade, 4.5:1 or more"),
        ("2450c8", "must be a colour such as #2450c8"),
        ("#24c", "must be a colour such as #2450c8"),
        ("navy", "must be a colour such as #2450c8"),
        ("#2450c8\n", "must be a colour such as #2450c8"),
        ("#\uff12450c8", "must be a colour such as #2450c8"),
    ],
)
def test_a_colour_is_legible_with_white(color: str, problem: str | None) -> None:
    assert color_problem(color) == problem


def test_a_colour_is_legible_on_what_it_stands_on() -> None:
    assert color_problem("#767676") is None
    problem = "has a contrast of 4.2:1 with #f7f6f3: choose a darker shade, 4.5:1 or more"
    assert color_problem("#767676", ground=GROUND) == problem


def test_the_ground_is_that_of_the_stylesheet() -> None:
    assert f"--ground: {GROUND};" in DESIGN.decode()

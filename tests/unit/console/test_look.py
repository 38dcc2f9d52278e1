"""How the console looks: name, colour and logo of the operator on every page and nowhere else; initials of people."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.avatars import HUES, hue, initials
from console.rendering import Look, Pages
from console.settings import Settings
from console.tickets import ticket_address
from identity_common.colors import contrast
from identity_common.settings import InvalidSettingsError

STYLE = Pages(Look("Stead")).style.content.decode()
NAME = "Acme <b>&amp; Söhne"
LOGO = "https://cdn.example.com:8443/logo.svg?a=1&b=2"
FRAME: dict[str, Any] = {
    "area": "",
    "notices": [],
    "person": "Grace",
    "may": lambda path: True,
    "may_change": True,
    "own_id": "8m4b7n1c5z9l",
    "is_read_only": False,
    "csrf_token": "token",
    "path": "/console",
    "now": 0,
    "unsaved": False,
}
REQUIRED = {
    "BASE_URL": "https://id.example.com",
    "REDIS_URL": "redis://localhost",
    "COOKIE_KEYS": "A" * 43 + "=",
}


def page(look: Look, template: str, language: str = "en") -> tuple[str, str]:
    """Return a page and its content security policy."""
    values = FRAME if template.startswith("shortcuts") else {"scope": "all"}
    answer = Pages(look).render(template, language, **values)
    return str(answer.content), answer.headers["Content-Security-Policy"]


def test_the_name_and_the_logo_are_in_the_frame_and_escaped() -> None:
    html, policy = page(Look(NAME, logo_uri=LOGO), "shortcuts/page.html")
    assert "<title>Keyboard shortcuts · \u2068Acme &lt;b&gt;&amp;amp; Söhne\u2069 console</title>" in html
    assert "<span><bdi>Acme &lt;b&gt;&amp;amp; Söhne</bdi></span>" in html
    assert re.search(
        r'<a class="brand"[^>]*><img src="https://cdn.example.com:8443/logo.svg\?a=1&amp;b=2" alt=""', html
    )
    assert "img-src 'self' https://cdn.example.com:8443;" in policy


def test_without_settings_it_is_ours() -> None:
    html, policy = page(Look("Stead"), "shortcuts/page.html", "de")
    assert "Konsole von \u2068Stead\u2069</title>" in html
    assert re.search(r'<a class="brand"[^>]*><svg', html)
    assert "img-src 'self';" in policy
    assert Pages(Look("Stead")).style.content.count(b"--accent:") == 2


def test_pages_without_the_frame_have_the_name_too() -> None:
    html, _ = page(Look("Acme"), "no_rights.html")
    assert "\u2068Acme\u2069 console</title>" in html


def test_the_colour_is_the_accent_in_both_schemes_and_changes_the_address_of_the_stylesheet() -> None:
    ours, other = Pages(Look("Stead")).style, Pages(Look("Stead", color="#00594c")).style
    assert ours.address != other.address
    *_, light, dark = re.findall(r"--accent: (#[0-9a-f]{6})", other.content.decode())
    assert light == "#00594c"
    assert contrast(dark, "#2c3237") >= 4.5


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("CONSOLE_COLOR", "#777777", "has a contrast of 4.1:1 with #f7f6f3"),
        ("CONSOLE_COLOR", "red; } body { display: none", "must be a colour such as #2450c8"),
        ("CONSOLE_LOGO_URI", "http://example.com/logo.svg", "must be https"),
        ("CONSOLE_LOGO_URI", "https://a.example; script-src *", "must be https"),
        ("CONSOLE_LOGO_URI", "data:image/svg+xml,a", "must be https"),
        ("CONSOLE_TICKET_URL", "https://tickets.example.com/", "must be a URL with {ticket} once"),
        ("CONSOLE_TICKET_URL", "https://t.example.com/{ticket}/{ticket}", "must be a URL with {ticket} once"),
        ("CONSOLE_TICKET_URL", "https://t.example.com/{ticket}{id}", "must be a URL with {ticket} once"),
        ("CONSOLE_TICKET_URL", "javascript:alert({ticket})", "must be https"),
        ("CONSOLE_TICKET_URL", "http://t.example.com/{ticket}", "must be https, or http on loopback"),
        ("CONSOLE_TICKET_URL", "https://{ticket}.example.com/", "must have {ticket} after the host"),
        ("CONSOLE_NAME", "x" * 65, "must be 64 characters at most"),
    ],
)
def test_what_cannot_be_shown_is_refused_at_the_start(name: str, value: str, problem: str) -> None:
    with pytest.raises(InvalidSettingsError, match=f"{name}: {re.escape(problem)}"):
        Settings.from_environment({**REQUIRED, name: value})


@pytest.mark.parametrize(
    ("ticket", "address"),
    [
        ("TCK-2077", "http://localhost:8080/a?id=TCK-2077#b"),
        ('"><b>/../?a=b&c#%00 é', "http://localhost:8080/a?id=%22%3E%3Cb%3E%2F..%2F%3Fa%3Db%26c%23%2500%20%C3%A9#b"),
        ("..", ""),
    ],
)
def test_a_ticket_leads_to_its_page(ticket: str, address: str) -> None:
    template = "http://localhost:8080/a?id={ticket}#b"
    settings = Settings.from_environment({**REQUIRED, "CONSOLE_TICKET_URL": template})
    assert ticket_address(settings.console_ticket_url, ticket) == address
    assert ticket_address("", ticket) == ""


def test_what_is_set_is_read() -> None:
    given = {"CONSOLE_NAME": NAME, "CONSOLE_COLOR": "#00594C", "CONSOLE_LOGO_URI": LOGO}
    settings = Settings.from_environment({**REQUIRED, **given})
    assert (settings.console_name, settings.console_color, settings.console_logo_uri) == (NAME, "#00594C", LOGO)
    assert Settings.from_environment({**REQUIRED, "CONSOLE_NAME": ""}).console_name == "Stead"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Ada Lovelace", "AL"),
        ("Gabriel José de la Concordia García Márquez", "GM"),
        ("administrator", "AD"),
        ("x", "X"),
        ("  ", "?"),
        ("", "?"),
        ("4711", "47"),
        ("ß ﬁ", "SF"),
        ("z\u0351\u0352a\u0353lgo", "ZA"),
        ("\u202eAda \u2066Love", "AL"),
        ("😀 Grace 👩‍🚀", "GR"),
        ("😀👩‍🚀", "?"),
        ("محمد علي", "مع"),
        ("山田太郎", "山田"),
        ("\ufdfa", "صو"),
        ("<b>&amp;", "BA"),
        ("a" * 100_000, "AA"),
    ],
)
def test_initials_are_two_letters_of_a_name(name: str, expected: str) -> None:
    assert initials(name) == expected


@given(st.text())
def test_every_name_has_initials_and_a_colour_of_the_stylesheet(name: str) -> None:
    assert 1 <= len(initials(name)) <= 2
    assert all(each.isalnum() or each == "?" for each in initials(name))
    assert f".hue-{hue(name) or 1} " in STYLE
    assert f".hue-{HUES} " not in STYLE

"""The languages of the pages: which one a browser gets; that every text is marked and translated."""

from __future__ import annotations

import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
from babel.messages.catalog import Catalog, Message
from babel.messages.extract import extract_from_dir
from babel.messages.pofile import read_po
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import nodes

from console import languages as console
from console.rendering import TEMPLATES as CONSOLE_TEMPLATES
from identity_common.pages.languages import SOURCE_LANGUAGE
from identity_common.pages.rendering import environment
from management_service.mail import texts as mail
from token_service.sign_in.pages.languages import CATALOGUES, LANGUAGES
from token_service.sign_in.pages.views import TEMPLATES

PROPER_NAMES = {"Stead", "UTC"}
SHOWN_ATTRIBUTES = {"alt", "aria-label", "aria-description", "placeholder", "title", "value", "label", "data-text"}


@pytest.mark.parametrize(
    ("ui_locales", "accept_language", "language"),
    [
        (None, None, "en"),
        (None, "de", "de"),
        (None, "de-AT", "de"),
        (None, "DE-at-1996", "de"),
        (None, "en-US,en;q=0.9,de;q=0.8", "en"),
        (None, "en;q=0.5, de", "de"),
        (None, "en;q=0.5, de;q=0.501", "de"),
        (None, "fr, de;q=0.1", "de"),
        (None, "fr", "en"),
        (None, "de;q=0", "en"),
        (None, "de;q=2", "en"),
        (None, "*", "en"),
        (None, "", "en"),
        ("de", "en", "de"),
        ("fr de-CH en", "en", "de"),
        ("fr", "de", "de"),
        ("tlh xx-unknown", None, "en"),
    ],
)
def test_the_application_chooses_before_the_browser(
    ui_locales: str | None, accept_language: str | None, language: str
) -> None:
    """OpenID Connect Core 1.0 section 3.1.2.1, RFC 9110 section 12.5.4, RFC 4647 section 3.4."""
    assert LANGUAGES.choose(ui_locales, accept_language) == language


@given(st.text(), st.text())
def test_every_wish_gives_a_language(ui_locales: str, accept_language: str) -> None:
    assert LANGUAGES.choose(ui_locales, accept_language) in LANGUAGES.by_tag
    assert LANGUAGES.requested(ui_locales) in {None, *LANGUAGES.by_tag}


def test_english_and_german_are_there() -> None:
    assert {"en", "de"} <= set(LANGUAGES.by_tag)


def texts(templates: Path) -> dict[object, str]:
    """Return every marked text of the templates, with its template."""
    found = extract_from_dir(templates, [("**.html", "jinja2")], {"**.html": {"trimmed": "true", "silent": "false"}})
    return {message: filename for filename, _, message, _, _ in found}


def catalogue(path: Path) -> Catalog:
    with path.open("rb") as source:
        return read_po(source, abort_invalid=True)


SETS = {
    "sign-in": (CATALOGUES, TEMPLATES),
    "console": (console.CATALOGUES, CONSOLE_TEMPLATES),
    "mail": (mail.CATALOGUES, mail.TEMPLATES),
}
TRANSLATED = [
    pytest.param(path, templates, id=f"{name}-{path.stem}")
    for name, (catalogues, templates) in SETS.items()
    for path in sorted(catalogues.glob("*.po"))
]


def test_every_set_of_pages_has_the_same_languages() -> None:
    assert set(console.LANGUAGES.by_tag) == set(mail.LANGUAGES.by_tag) == set(LANGUAGES.by_tag)


@pytest.mark.parametrize(("path", "templates"), TRANSLATED)
def test_a_catalogue_translates_every_text_and_no_other(path: Path, templates: Path) -> None:
    """`make messages` adds and removes texts."""
    messages = [message for message in catalogue(path) if message.id]
    assert {message.id for message in messages} == set(texts(templates))
    assert [message.id for message in messages if message.fuzzy or not all(strings(message))] == []


@pytest.mark.parametrize(("path", "templates"), TRANSLATED)
def test_a_translation_has_the_elements_and_values_of_its_text(path: Path, templates: Path) -> None:
    del templates
    for message in catalogue(path):
        if message.id:
            *_, source = [message.id] if isinstance(message.id, str) else message.id
            assert {frozenset(parts(each).items()) for each in strings(message)[-1:]} == {
                frozenset(parts(source).items())
            }


def strings(message: Message) -> list[str]:
    return [message.string] if isinstance(message.string, str) else list(message.string)


def parts(text: str) -> Counter[str]:
    return Counter(re.findall(r"<[^>]*>|%\([a-z_]+\)s|\{[a-z]+\}|%", text))


@pytest.mark.parametrize(
    "template",
    [
        pytest.param(path, id=f"{name}-{path.relative_to(templates)}")
        for name, (_, templates) in SETS.items()
        for path in sorted(templates.rglob("*.html"))
    ],
)
def test_every_text_of_a_template_is_marked_for_translation(template: Path) -> None:
    assert unmarked(template.read_text()) == []


@pytest.mark.parametrize("text", ["<p>Words</p>", '<img alt="{{ x }} words">', "<p>{% if x %}Words{% endif %}</p>"])
def test_an_unmarked_text_is_found(text: str) -> None:
    assert unmarked(text) != []
    assert unmarked("<p>{% trans %}Words{% endtrans %}</p>") == []


def unmarked(template: str) -> list[str]:
    """Return the texts that a reader sees and that no translation can replace."""
    tree = environment(TEMPLATES, LANGUAGES.by_tag[SOURCE_LANGUAGE]).parse(template)
    reader = _Reader()
    reader.feed("".join(each.data for each in tree.find_all(nodes.TemplateData)))
    reader.close()
    return [text for text in reader.texts if re.search(r"\w", text) and text.strip() not in PROPER_NAMES]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        is_control = (
            tag == "button"
            or ("type", "hidden") in attrs
            or ("type", "checkbox") in attrs
            or ("type", "search") in attrs
        )
        hidden = {"value"} if is_control else set()
        self.texts += [value or "" for name, value in attrs if name in SHOWN_ATTRIBUTES - hidden]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

"""The languages of the pages: which one a browser gets; that every text is marked and translated."""

from __future__ import annotations

import re
from collections import Counter
from html.parser import HTMLParser

import pytest
from babel.messages.catalog import Catalog, Message
from babel.messages.extract import extract_from_dir
from babel.messages.pofile import read_po
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import nodes

from token_service.sign_in.pages.languages import CATALOGUES, LANGUAGES, SOURCE_LANGUAGE, choose, requested
from token_service.sign_in.pages.views import TEMPLATES, environment

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
    assert choose(ui_locales, accept_language) == language


@given(st.text(), st.text())
def test_every_wish_gives_a_language(ui_locales: str, accept_language: str) -> None:
    assert choose(ui_locales, accept_language) in LANGUAGES
    assert requested(ui_locales) in {None, *LANGUAGES}


def test_english_and_german_are_there() -> None:
    assert {"en", "de"} <= set(LANGUAGES)


def texts() -> dict[object, str]:
    """Return every marked text of the templates, with its template."""
    found = extract_from_dir(TEMPLATES, [("**.html", "jinja2")], {"**.html": {"trimmed": "true", "silent": "false"}})
    return {message: filename for filename, _, message, _, _ in found}


def catalogue(tag: str) -> Catalog:
    with (CATALOGUES / f"{tag}.po").open("rb") as source:
        return read_po(source, abort_invalid=True)


@pytest.mark.parametrize("tag", sorted(set(LANGUAGES) - {SOURCE_LANGUAGE}))
def test_a_catalogue_translates_every_text_and_no_other(tag: str) -> None:
    """`make messages` adds and removes texts."""
    messages = [message for message in catalogue(tag) if message.id]
    assert {message.id for message in messages} == set(texts())
    assert [message.id for message in messages if message.fuzzy or not all(strings(message))] == []


@pytest.mark.parametrize("tag", sorted(set(LANGUAGES) - {SOURCE_LANGUAGE}))
def test_a_translation_has_the_elements_and_values_of_its_text(tag: str) -> None:
    for message in catalogue(tag):
        if message.id:
            *_, source = [message.id] if isinstance(message.id, str) else message.id
            assert {frozenset(parts(each).items()) for each in strings(message)[-1:]} == {
                frozenset(parts(source).items())
            }


def strings(message: Message) -> list[str]:
    return [message.string] if isinstance(message.string, str) else list(message.string)


def parts(text: str) -> Counter[str]:
    return Counter(re.findall(r"<[^>]*>|%\([a-z_]+\)s|\{[a-z]+\}|%", text))


@pytest.mark.parametrize("template", sorted(path.name for path in TEMPLATES.glob("*.html")))
def test_every_text_of_a_template_is_marked_for_translation(template: str) -> None:
    assert unmarked((TEMPLATES / template).read_text()) == []


@pytest.mark.parametrize("text", ["<p>Words</p>", '<img alt="{{ x }} words">', "<p>{% if x %}Words{% endif %}</p>"])
def test_an_unmarked_text_is_found(text: str) -> None:
    assert unmarked(text) != []
    assert unmarked("<p>{% trans %}Words{% endtrans %}</p>") == []


def unmarked(template: str) -> list[str]:
    """Return the texts that a reader sees and that no translation can replace."""
    tree = environment(LANGUAGES[SOURCE_LANGUAGE]).parse(template)
    reader = _Reader()
    reader.feed("".join(each.data for each in tree.find_all(nodes.TemplateData)))
    reader.close()
    return [text for text in reader.texts if re.search(r"\w", text)]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        is_control = tag == "button" or ("type", "hidden") in attrs or ("type", "checkbox") in attrs
        hidden = {"value"} if is_control else set()
        self.texts += [value or "" for name, value in attrs if name in SHOWN_ATTRIBUTES - hidden]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

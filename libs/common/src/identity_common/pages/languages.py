"""The languages of the pages: gettext catalogues, and which language a browser gets.

English is the language of the templates. Every other language is one file, ``catalogues/<tag>.po``; the README of the
service says how to add one.
"""

import functools
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
from babel import Locale
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po
from babel.support import NullTranslations, Translations

SOURCE_LANGUAGE: Final = "en"

_MAX_TAGS: Final = 20
_QUALITY: Final = re.compile(r"\s*q\s*=\s*(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)\s*", re.IGNORECASE)


class Language(msgspec.Struct, frozen=True):
    """One language of the pages.

    Attributes:
        tag: BCP 47 tag; the name of its catalogue.
        direction: ``ltr`` or ``rtl``.
        translations: Returns the translations of the English texts; its first call reads the catalogue, which takes a
            tenth of a second.
    """

    tag: str
    direction: str
    translations: Callable[[], NullTranslations]


class Languages:
    """The languages of a set of pages: English, and one for each catalogue.

    Attributes:
        by_tag: Every language.

    Args:
        catalogues: Directory of the files ``<tag>.po``.
    """

    def __init__(self, catalogues: Path) -> None:
        self.by_tag = {SOURCE_LANGUAGE: _language(SOURCE_LANGUAGE, NullTranslations)} | {
            path.stem: _language(path.stem, functools.partial(_translations, path))
            for path in sorted(catalogues.glob("*.po"))
        }
        self._by_lowercase = {tag.lower(): tag for tag in self.by_tag}

    def requested(self, ui_locales: str | None) -> str | None:
        """Return the first available language of ``ui_locales``; None if there is none.

        Source:
            OpenID Connect Core 1.0 section 3.1.2.1: tags by preference, separated by spaces; unknown ones are ignored.
        """
        return self._first(ui_locales.split(" ", _MAX_TAGS)[:_MAX_TAGS] if ui_locales else [])

    def choose(self, ui_locales: str | None, accept_language: str | None) -> str:
        """Return the language of a page: the one the application asks for, the browser's, or English."""
        return self.requested(ui_locales) or self._first(_accepted(accept_language or "")) or SOURCE_LANGUAGE

    def _first(self, tags: list[str]) -> str | None:
        """Return the language of the first tag that has one: itself, or without its last subtags.

        Source:
            RFC 4647 section 3.4.
        """
        for tag in tags:
            subtags = tag.strip().lower().split("-")
            for length in range(len(subtags), 0, -1):
                if found := self._by_lowercase.get("-".join(subtags[:length])):
                    return found
        return None


def _language(tag: str, load: Callable[[], NullTranslations]) -> Language:
    return Language(tag, Locale.parse(tag, sep="-").text_direction, functools.cache(load))


def _translations(path: Path) -> Translations:
    """Return a catalogue, compiled in memory: no compiled file can be older than its source."""
    compiled = io.BytesIO()
    with path.open("rb") as source:
        write_mo(compiled, read_po(source, abort_invalid=True))
    compiled.seek(0)
    return Translations(compiled)


def _accepted(header: str) -> list[str]:
    """Return the tags of ``Accept-Language`` by preference (RFC 9110 sections 12.4.2 and 12.5.4)."""
    weighted = []
    for entry in header.split(",", _MAX_TAGS)[:_MAX_TAGS]:
        tag, semicolon, weight = entry.partition(";")
        match = _QUALITY.fullmatch(weight)
        quality = float(match[1]) if match else 0.0 if semicolon else 1.0
        if quality > 0:
            weighted.append((quality, tag))
    return [tag for _, tag in sorted(weighted, key=lambda each: -each[0])]

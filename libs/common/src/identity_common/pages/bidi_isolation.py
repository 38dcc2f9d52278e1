"""Isolation of names within sentences: text that a user chose must not reorder or hide the words around it.

A name with U+202E, or in a script that is written from right to left, would turn the rest of its sentence around. Every
value that a template fills into a text is therefore isolated, by the functions that translate the text.
"""

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from babel.support import NullTranslations
from jinja2 import Environment
from markupsafe import Markup

FIRST_STRONG_ISOLATE: Final = "\u2068"
POP_ISOLATE: Final = "\u2069"

_PLACES: Final = re.compile(r"<[^>]*>|%\((\w+)\)s")
_ISOLATED: Final = "isolated "
_MESSAGES: Final = 4096
# What would end the isolation from within: isolates, and separators of paragraphs (UAX #9, X5c to X6a and P1).
_BREAKING: Final = {
    **dict.fromkeys(range(0x2066, 0x206A)),
    **dict.fromkeys((0x0A, 0x0D, 0x1C, 0x1D, 0x1E, 0x85, 0x2029), " "),
}
_BLANKS: Final = re.compile(r"[ \t\n\f\r]+")


def displayed(text: str) -> str:
    """Return a text as pages show it: without what would end its isolation, and with one blank in place of several."""
    return _BLANKS.sub(" ", text.translate(_BREAKING))


def isolated(value: object) -> Markup:
    """Return a name isolated from the text around it, for the content of an element."""
    markup = value if isinstance(value, Markup) else Markup.escape(displayed(str(value)))
    return Markup(f"<bdi>{markup}</bdi>")  # noqa: S704 - it is escaped


def plain(markup: str) -> Markup:
    """Return a text with isolated names for a title or an attribute, where an element would be shown as its tags."""
    return Markup.escape(markup).replace("<bdi>", FIRST_STRONG_ISOLATE).replace("</bdi>", POP_ISOLATE)


def filled(message: str, values: Mapping[str, object]) -> Markup:
    """Return a translated text with its values, each isolated unless it is a number, or in an attribute."""
    names = {_ISOLATED + name: value if isinstance(value, int) else isolated(value) for name, value in values.items()}
    return Markup(_marked(message)) % {**values, **names}  # noqa: S704 - one of our own texts


def isolate_in_texts(templates: Environment, translations: Callable[[], NullTranslations]) -> None:
    """Let an environment with ``jinja2.ext.i18n`` isolate the values of its texts; add filters for names elsewhere."""

    def gettext(message: str, /, **values: object) -> Markup:
        return filled(translations().gettext(message), values)

    def ngettext(singular: str, plural: str, number: int, /, **values: object) -> Markup:
        return filled(translations().ngettext(singular, plural, number), {"num": number, **values})

    templates.newstyle_gettext = True  # type: ignore[attr-defined]  # values are arguments
    templates.globals |= {"gettext": gettext, "ngettext": ngettext}
    templates.filters |= {"isolated": isolated, "plain": plain, "listed": _listed, "displayed": displayed}


def _listed(names: Iterable[object]) -> Markup:
    """Return names with commas between them, each isolated."""
    return Markup(", ").join(isolated(name) for name in names)


@functools.lru_cache(_MESSAGES)
def _marked(message: str) -> str:
    """Return a message whose placeholders outside of tags stand for isolated values."""
    return _PLACES.sub(lambda place: f"%({_ISOLATED}{place[1]})s" if place[1] else place[0], message)

"""Names of objects: the form in which they are stored and compared, what they may not contain, and their order.

Does not own names for machines: scope tokens (``identity_common.scope_names``), user names and addresses for signing
in (``identity_common.search``). Nor the same order in SQL (``identity_common.stores.names``).
"""

import re
import unicodedata
from typing import Final

from identity_common.failures import Conflict, ErrorData, Issue

MAX_NAME_CHARACTERS: Final = 256
"""Of a name as it is stored; composing a text can lengthen it."""

_JOINERS: Final = frozenset("\u200c\u200d")
_ZERO_WIDTH_JOINER: Final = "\u200d"
_VIRAMA: Final = 9  # its canonical combining class
_TAG: Final = re.compile("[\U000e0020-\U000e007f]")
_BLACK_FLAG: Final = "\U0001f3f4"
_MONGOLIAN_LETTER: Final = re.compile("[\u1820-\u18aa]")
_MONGOLIAN_SELECTOR: Final = re.compile("[\u180b-\u180f]")
_SELECTOR: Final = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")
_SELECTABLE: Final = frozenset({"Lo", "Nd", "No", "Pd", "Po", "Sk", "Sm", "So"})
_INFORMATION_SOURCE: Final = "\u2139"  # a letter among the emoji

# Control characters, Default_Ignorable_Code_Point, what looks like a space without being one, and noncharacters.
_INVISIBLE: Final = re.compile(
    "[\0-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u2800\u3164\ufdd0-\ufdef\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffc\ufffe\uffff"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    + "".join(f"{chr(plane + 0xFFFE)}{chr(plane + 0xFFFF)}" for plane in range(0x10000, 0x110000, 0x10000))
    + "]"
)

# What the order ignores: marks that make a letter another form of itself, and invisible characters.
IGNORED_RANGES: Final = (
    *("\u00ad", "\u0300-\u036f", "\u0483-\u0487", "\u0591-\u05bd", "\u05bf", "\u05c1\u05c2", "\u05c4\u05c5", "\u05c7"),
    *("\u0610-\u061a", "\u061c", "\u064b-\u065f", "\u0670", "\u06d6-\u06dc", "\u06df-\u06e4", "\u06e7\u06e8"),
    *("\u06ea-\u06ed", "\u1ab0-\u1aff", "\u1dc0-\u1dff", "\u200b-\u200f", "\u202a-\u202e", "\u2060-\u206f"),
    *("\u20d0-\u20ff", "\u3099\u309a", "\ufe00-\ufe0f", "\ufe20-\ufe2f", "\ufeff", "\U000e0000-\U000e0fff"),
)
_IGNORED: Final = re.compile(f"[{''.join(IGNORED_RANGES)}]+")

REPLACED: Final = {
    **dict(zip("đðħ\u0131łøŧŋς", "ddhilotn\u03c3", strict=True)),
    **dict.fromkeys("\u2018\u2019\u02bb\u02bc", "'"),
    **dict.fromkeys("\u201c\u201d", '"'),
    **dict.fromkeys("\u2010\u2012\u2013\u2014\u2212", "-"),
}
"""Characters of decomposed small letters that the order takes for another one: those with a stroke, quotes, dashes."""

EXPANDED: Final = {"ß": "ss", "æ": "ae", "œ": "oe", "þ": "th"}
"""Letters that the order takes for two."""

_REPLACED: Final = str.maketrans(REPLACED | EXPANDED)


def canonical_name(text: str) -> str:
    """Return a name as it is stored and compared: composed (NFC), without blanks around it, and single spaces in it.

    Source:
        The Unicode Standard, section 3.11 (texts with the same NFC are canonically equivalent: they look alike).
    """
    return " ".join((text if text.isascii() else unicodedata.normalize("NFC", text)).split())


def name_problem(name: str) -> str | None:
    """Return why an object cannot have this canonical name; None if it can."""
    if not name:
        return "must not be blank"
    if len(name) > MAX_NAME_CHARACTERS:
        return f"must not be longer than {MAX_NAME_CHARACTERS} characters"
    invisible = find_invisible(name)
    if invisible is not None:
        return f"must not contain the invisible character U+{ord(invisible):04X}"
    return None


def accepted_name(name: str, *, stored: str | None = None) -> str:
    """Return the given name of an object as it is stored; an unchanged one is kept, even if it is not acceptable.

    Raises:
        Conflict: ``entity.invalid_name``, with what is wrong with it.
    """
    if name == stored:
        return name
    canonical = canonical_name(name)
    problem = name_problem(canonical)
    if problem is not None:
        raise invalid_name(Issue("name", problem))
    return canonical


def invalid_name(*issues: Issue) -> Conflict:
    """Return the failure of names that no object can have."""
    message = "No object can have this name. See data.issues."
    return Conflict("entity.invalid_name", message, data=ErrorData(issues=list(issues)))


def find_invisible(text: str) -> str | None:
    """Return the first character that neither shows nor changes how its neighbours look; None if each has an effect.

    Scripts and emoji need some invisible characters: joiners after a virama, between Arabic letters and in emoji
    sequences, and variation selectors. Elsewhere they would make two names that look alike. Controls of the text
    direction are never accepted: they reorder the text around the name.

    Source:
        RFC 5892 appendix A.1 and A.2 (joiners; here without Joining_Type, which Python does not have); Unicode
        Technical Standard 51 section 1.4 (emoji sequences), Unicode Technical Report 36 section 2.10 (invisible
        characters).
    """
    if text.isascii() and text.isprintable():
        return None
    for match in _INVISIBLE.finditer(text):
        before, after = text[: match.start()][-1:], text[match.end() :][:1]
        if not (before and _has_effect(before, match[0], after)):
            return match[0]
    return None


def is_blank(text: str) -> bool:
    """Return whether no character of a text shows."""
    return not (text if text.isascii() else _INVISIBLE.sub("", text)).strip()


def sort_key(name: str) -> str:
    """Return what lists are ordered by before the name itself: regardless of case, accents and invisible characters.

    Texts are ordered as dictionaries of many languages do it, none of which is right in all: ``Äpfel`` is among the
    ``a``. The rule depends on the version of Unicode only for characters that were added later.
    """
    if name.isascii():
        return name.lower()
    return _IGNORED.sub("", unicodedata.normalize("NFKD", name)).lower().translate(_REPLACED)


def by_name(name: str) -> tuple[str, str]:
    """Return the key that sorts names as lists are sorted: by ``sort_key``, then by the name itself."""
    return sort_key(name), name


def _has_effect(before: str, character: str, after: str) -> bool:
    """Whether an invisible character changes how its neighbours look."""
    if character in _JOINERS:
        return _joins(before, character, after)
    if _SELECTOR.fullmatch(character):
        is_selectable = unicodedata.category(before) in _SELECTABLE or before == _INFORMATION_SOURCE
        return is_selectable and unicodedata.bidirectional(before) not in {"AL", "R"}
    if _MONGOLIAN_SELECTOR.fullmatch(character):
        return _MONGOLIAN_LETTER.fullmatch(before) is not None
    if _TAG.fullmatch(character):
        return before == _BLACK_FLAG or _TAG.fullmatch(before) is not None
    return False


def _joins(before: str, joiner: str, after: str) -> bool:
    if unicodedata.combining(before) == _VIRAMA:
        return True
    if not after:
        return False
    if unicodedata.combining(after) == _VIRAMA:
        return unicodedata.category(before) == "Lo"
    if unicodedata.bidirectional(after) == "AL":
        return unicodedata.bidirectional(before) in {"AL", "NSM"}
    is_symbol = unicodedata.category(before) in {"So", "Sk"} or _SELECTOR.fullmatch(before) is not None
    return joiner == _ZERO_WIDTH_JOINER and is_symbol and unicodedata.category(after) in {"So", "Sm"}

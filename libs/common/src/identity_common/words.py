"""Words of names, addresses and reasons as a search compares them: by beginnings, regardless of case and accents.

Does not own the same words in SQL (``identity_common.stores.words``).
"""

import re
from typing import Final

from identity_common.names import sort_key

SEPARATORS: Final = (
    "\x01-/:-@\\[-`{-\xa9\xab-\xb4\xb6-\xb9\xbb-\xbf\u2000-\u206f\u2190-\u22ff\u2e00-\u2e7f\u3000-\u3004\u3008-\u3020"
)
"""What is between words, as ranges of a regular expression: blanks and punctuation. An emoji is part of a word."""

MAX_WORD_CHARACTERS: Final = 64
"""Longer words are compared by their beginnings."""

_MAX_WORDS: Final = 8
_RARE_DIGITS: Final = 3
_SEPARATORS: Final = re.compile(f"[{SEPARATORS}]+")


def words(text: str) -> list[str]:
    """Return the words of a text in their order."""
    return [word[:MAX_WORD_CHARACTERS] for word in _SEPARATORS.split(sort_key(text)) if word]


def prefix_query(text: str) -> str | None:
    """Return the ``tsquery`` for texts that have a word with each of these beginnings; None for a text without words.

    Only the longest eight words are compared. Words of digits are looked up together too: they may be groups of a
    telephone number.
    """
    found = words(text)
    query = " & ".join(map(_beginning, _longest(found)))
    if len(found) > 1 and all(map(str.isdecimal, found)):
        query = f"{query} | {_beginning(''.join(found)[:MAX_WORD_CHARACTERS])}"
    return query or None


def rare_words_query(text: str) -> str | None:
    """Return the ``tsquery`` for the words of a text that few other texts have, by themselves: its longer numbers.

    None if there are none, or if they may be groups of a telephone number.
    """
    found = words(text)
    numbers = [word for word in _longest(found) if sum(map(str.isdecimal, word)) >= _RARE_DIGITS]
    may_be_a_telephone_number = len(found) > 1 and all(map(str.isdecimal, found))
    return None if may_be_a_telephone_number else " & ".join(map(_beginning, numbers)) or None


def has_beginnings(text: str, beginnings: str) -> bool:
    """Return whether a text has a word with each of these beginnings, as ``prefix_query`` compares them."""
    found = words(text)
    return all(any(word.startswith(beginning) for word in found) for beginning in _longest(words(beginnings)))


def _longest(found: list[str]) -> list[str]:
    return sorted(dict.fromkeys(found), key=len, reverse=True)[:_MAX_WORDS]


def _beginning(word: str) -> str:
    """Return the query for a word, which has neither quotes nor backslashes: they are separators."""
    return f"'{word}':*"

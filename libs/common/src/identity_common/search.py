"""Keys for comparing names, and for search, regardless of case and Unicode composition."""

import unicodedata


def identity_key(text: str) -> str:
    """Return the uniqueness key of a user name or e-mail address, regardless of case and composition.

    Source:
        The Unicode Standard, section 3.13, D145 (canonical caseless matching).
    """
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", text).casefold())


def search_key(*parts: str | None) -> str:
    """Return the text that a search term is looked up in."""
    return "\n".join(identity_key(part) for part in parts if part)


def search_term(search: str) -> str:
    """Return the key of a search term, without the ``%`` that clients of compatible services put around it."""
    return identity_key(search.strip("%"))

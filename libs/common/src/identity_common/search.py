"""When two names or two numbers are the same, and text that is searched without regard to case and composition."""

import unicodedata


def identity_key(text: str) -> str:
    """Return the key by which user names and e-mail addresses are unique: without regard to case and composition.

    Source:
        The Unicode Standard, section 3.13, D145 (canonical caseless matching).
    """
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", text).casefold())


def phone_key(phone: str) -> str:
    """Return the key by which telephone numbers are unique: their digits."""
    return phone.removeprefix("+")


def search_key(*parts: str | None) -> str:
    """Return the text in which a search looks for what was typed, itself as a key."""
    return "\n".join(identity_key(part) for part in parts if part)


def search_term(search: str) -> str:
    """Return what is looked for; the ``%`` around it that clients of this family send means nothing more."""
    return identity_key(search.strip("%"))

"""The form of a token request, parsed from the raw body: strict, and without a cache that would keep secrets.

RFC 6749 section 3.2: parameters sent without a value are treated as omitted, unrecognized ones are ignored, none may be
included more than once. ``resource`` may be repeated (RFC 8707 section 2).
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, unquote_to_bytes

import msgspec

from identity_common.oauth import GRANT_TOKEN_EXCHANGE, TOKEN_TYPE_ACCESS_TOKEN, OAuthError, invalid_request

MAX_BYTES: Final = 64 * 1024
MAX_PARAMETERS: Final = 64

_REPEATABLE: Final = "resource"
_ALWAYS_SENT: Final = {quote(name, safe=""): name for name in (GRANT_TOKEN_EXCHANGE, TOKEN_TYPE_ACCESS_TOKEN)}
"""What stands in every exchange, as libraries write it: unescaping it is a good part of reading a form."""


class TokenForm(msgspec.Struct, frozen=True):
    """The parameters of one token request; empty ones are not there.

    Attributes:
        parameters: Every parameter but ``resource``, by name.
        resources: The values of ``resource`` in their order.
    """

    parameters: Mapping[str, str]
    resources: tuple[str, ...] = ()

    def get(self, name: str) -> str | None:
        """Return a parameter's value, or none when it was not sent or sent empty."""
        return self.parameters.get(name)

    def require(self, name: str) -> str:
        """Return a parameter's value.

        Raises:
            OAuthError: ``invalid_request`` when it is missing.
        """
        value = self.parameters.get(name)
        if value is None:
            raise invalid_request(f"{name} is required")
        return value

    def __repr__(self) -> str:
        """Name the parameters only: their values are secrets."""
        return f"TokenForm({', '.join(self.parameters)})"


def require_form_content_type(content_type: str) -> None:
    """Accept ``application/x-www-form-urlencoded``, with or without ``charset=utf-8``.

    Raises:
        OAuthError: ``invalid_request`` with status 415.
    """
    media_type, _, parameters = content_type.partition(";")
    charset = parameters.strip().lower().replace('"', "").removeprefix("charset=")
    if media_type.strip().lower() != "application/x-www-form-urlencoded" or charset not in {"", "utf-8", "utf8"}:
        raise OAuthError("invalid_request", "the body must be application/x-www-form-urlencoded", status=415)


def parse_form(body: bytes) -> TokenForm:
    """Parse the body of a token request.

    Raises:
        OAuthError: ``invalid_request`` for more than 64 KiB or 64 parameters, a repeated parameter (other than
            ``resource``), a NUL character, or text that is not UTF-8.
    """
    if len(body) > MAX_BYTES:
        raise invalid_request("the form is larger than 64 KiB")
    pairs = [pair for pair in _text(body).replace("+", " ").split("&") if pair]
    if len(pairs) > MAX_PARAMETERS:
        raise invalid_request("more than 64 parameters")
    seen: dict[str, str] = {}
    resources = []
    for pair in pairs:
        name, _, value = pair.partition("=")
        if "%" in pair:
            name, value = _unescaped(name), _unescaped(value)
        if name == _REPEATABLE:
            if value:
                resources.append(value)
        elif name in seen:
            raise invalid_request("a parameter is repeated")
        else:
            seen[name] = value
    return TokenForm({name: value for name, value in seen.items() if value}, tuple(resources))


def _unescaped(text: str) -> str:
    if "%" not in text:
        return text
    return _ALWAYS_SENT.get(text) or _text(unquote_to_bytes(text))


def _text(encoded: bytes) -> str:
    if b"\0" in encoded:
        raise invalid_request("a NUL character is not allowed")
    try:
        return encoded.decode()
    except UnicodeDecodeError:
        raise invalid_request("the form is not valid UTF-8") from None

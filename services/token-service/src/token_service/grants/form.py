"""Forms of clients: strict parsing of the raw body, then conversion into the struct of one grant or endpoint.

RFC 6749 section 3.2: parameters sent without a value are treated as omitted, unrecognized ones are ignored, none may be
included more than once. ``resource`` may be repeated (RFC 8707 section 2).
"""

import re
from collections.abc import Mapping
from typing import Final, Literal, Protocol, TypeVar
from urllib.parse import unquote_to_bytes

import msgspec
from msgspec import UnsetType

from token_service.grants.oauth_errors import OAuthError, invalid_request, invalid_scope
from token_service.tokens.scopes import is_scope, parse_scope

MAX_BYTES: Final = 64 * 1024
MAX_PARAMETERS: Final = 64

_REPEATABLE: Final = "resource"
_FAULT: Final = re.compile(r"\AObject missing required field `(?P<missing>\w+)`\Z|at `\$\.(?P<refused>\w+)`\Z")
"""How msgspec's messages name the field; before the second form there may be text from the client."""


AccessTokenType = Literal["urn:ietf:params:oauth:token-type:access_token"]
ActorTokenType = Literal["urn:ietf:params:oauth:token-type:access_token", "urn:ietf:params:oauth:token-type:id_token"]


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """A form of a client: validates requests, and is their schema in the OpenAPI document.

    ``client_id`` and ``client_secret`` are read before the rest, by ``client_authentication``.
    """

    def __repr__(self) -> str:
        """Hide the values: some are secrets."""
        return f"{type(self).__name__}(…)"


class GrantForm(Form, frozen=True, kw_only=True, tag_field="grant_type"):
    """The form of one grant."""


class TargetForm(Protocol):
    """A form that names the target of a token."""

    @property
    def resource(self) -> str | UnsetType:
        """The API."""

    @property
    def organization_id(self) -> str | UnsetType:
        """The organization."""


def unsupported(name: str) -> OAuthError:
    """The refusal of a parameter's value."""
    if name == "code_verifier":
        return invalid_request("code_verifier does not match RFC 7636 section 4.1")
    return invalid_request(f"this {name} is not supported")


FormType = TypeVar("FormType", bound=Form)


class FormParameters(msgspec.Struct, frozen=True):
    """The parameters of one request; empty ones are left out.

    Attributes:
        values: Every parameter but ``resource``, by name.
        resources: The values of ``resource`` in their order.
    """

    values: Mapping[str, str]
    resources: tuple[str, ...] = ()

    def get(self, name: str) -> str | None:
        """Return a parameter's value; none if it was not sent, or sent empty."""
        return self.values.get(name)

    def require(self, name: str) -> str:
        """Return a parameter's value.

        Raises:
            OAuthError: ``invalid_request`` if it is missing.
        """
        value = self.values.get(name)
        if value is None:
            raise invalid_request(f"{name} is required")
        return value

    def as_form(self, form_type: type[FormType]) -> FormType:
        """Return the form as a struct.

        Raises:
            OAuthError: ``invalid_request`` when a parameter is missing, malformed or not supported.
        """
        values = {**self.values, _REPEATABLE: self.resources[0]} if self.resources else self.values
        try:
            return msgspec.convert(values, form_type)
        except msgspec.ValidationError as error:
            raise _refusal(error) from None

    def __repr__(self) -> str:
        """Show the names only: some values are secrets."""
        return f"FormParameters({', '.join(self.values)})"


def requested_scopes(scope: str | UnsetType) -> frozenset[str]:
    """Return the scope tokens that a form requests.

    Raises:
        OAuthError: ``invalid_scope`` if the parameter is malformed (RFC 6749 section 5.2).
    """
    if not scope:
        return frozenset()
    if not is_scope(scope):
        raise invalid_scope("scope is malformed")
    return parse_scope(scope)


def require_form_content_type(content_type: str) -> None:
    """Accept ``application/x-www-form-urlencoded``, with or without ``charset=utf-8``.

    Raises:
        OAuthError: ``invalid_request`` with status 415.
    """
    media_type, _, parameters = content_type.partition(";")
    charset = parameters.strip().lower().replace('"', "").removeprefix("charset=")
    if media_type.strip().lower() != "application/x-www-form-urlencoded" or charset not in {"", "utf-8", "utf8"}:
        raise OAuthError("invalid_request", "the body must be application/x-www-form-urlencoded", status=415)


def parse_form(body: bytes) -> FormParameters:
    """Parse the body of a request.

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
    return FormParameters({name: value for name, value in seen.items() if value}, tuple(resources))


def _refusal(error: msgspec.ValidationError) -> OAuthError:
    found = _FAULT.search(str(error))
    if found is None:
        return invalid_request("the form is malformed")
    return invalid_request(f"{found['missing']} is required") if found["missing"] else unsupported(found["refused"])


def _unescaped(text: str) -> str:
    if "%" in text:
        text = text.replace("%3A", ":").replace("%2F", "/")  # all that URIs and scopes escape; the rest is slow
    return _text(unquote_to_bytes(text)) if "%" in text else text


def _text(encoded: bytes) -> str:
    if b"\0" in encoded:
        raise invalid_request("a NUL character is not allowed")
    try:
        return encoded.decode()
    except UnicodeDecodeError:
        raise invalid_request("the form is not valid UTF-8") from None

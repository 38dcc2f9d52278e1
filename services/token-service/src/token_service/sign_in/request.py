"""The authorization request: parsing and validation. Pure.

Two steps, because errors go to the redirect URI only after client and redirect URI were validated; before that they are
shown to the user (RFC 6749 section 4.1.2.1).
"""

import re
from collections.abc import Mapping
from typing import Final, Literal, get_args
from urllib.parse import unquote_to_bytes

import msgspec

from stead.verify.acr import Level, level_of
from token_service.tokens.id_token_hints import Hint
from token_service.tokens.scopes import is_scope, parse_scope

Prompt = Literal["none", "login", "consent", "select_account"]
PROMPTS: Final[tuple[Prompt, ...]] = get_args(Prompt)

Action = Literal["add-passkey", "add-authenticator", "new-recovery-codes"]
"""What a first-party application has the user do between signing in and the answer to its request."""
_ACTIONS: Final[tuple[Action, ...]] = get_args(Action)
ACTION_MAX_AGE_S: Final = 600
"""How long ago, in seconds, the user may have signed in who changes how they sign in."""

MAX_BYTES: Final = 192 * 1024
"""Of a query or form as sent, where each byte of a value may be encoded as three."""
_MAX_PARAMETERS: Final = 64
_ORGANIZATION: Final = b"organization="  # a user may pick many: only their size is limited
_MAX_CHARACTERS: Final = {"nonce": 512, "login_hint": 512, "acr_values": 1024}
_MAX_STATE_BYTES: Final = 8 * 1024
_MAX_SCOPES: Final = 500
_MAX_SCOPE_BYTES: Final = 48 * 1024
_MAX_RESOURCES: Final = 20
_MAX_STORED_BYTES: Final = 64 * 1024
_encode: Final = msgspec.json.Encoder().encode
_DIRECT: Final = re.compile(r"sso:([0-9A-Za-z_-]{1,64})")
_CHALLENGE: Final = re.compile(r"[A-Za-z0-9_-]{43}")  # RFC 7636 section 4.2: base64url of a SHA-256


class BadRequest(Exception):  # noqa: N818 - the name is what happened
    """A request that is refused on a page, because its client or redirect URI is not valid.

    Attributes:
        reason: The reason, for the client's developer.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Refusal(Exception):  # noqa: N818 - the name is what happened
    """An error that is sent to the client's redirect URI.

    Attributes:
        error: A code of RFC 6749 section 4.1.2.1, OpenID Connect Core 1.0 section 3.1.2.6 or RFC 8707 section 2.
        description: The reason, for the client's developer.
    """

    def __init__(self, error: str, description: str) -> None:
        super().__init__(f"{error}: {description}")
        self.error = error
        self.description = description


class Parameters(msgspec.Struct, frozen=True):
    """The parameters of a request; empty ones are left out.

    Attributes:
        values: By name.
        resources: The values of ``resource`` in their order.
        organizations: The values of ``organization`` in their order: the checkboxes of the consent page.
        repeated: Names that occur more than once, besides these two.
    """

    values: Mapping[str, str]
    resources: tuple[str, ...] = ()
    organizations: tuple[str, ...] = ()
    repeated: frozenset[str] = frozenset()

    def get(self, name: str) -> str | None:
        """Return a parameter's value; none if it was not sent, or sent empty."""
        return self.values.get(name)


class AuthorizationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A validated request.

    Attributes:
        scopes: All scope tokens, of OpenID Connect, resources and organizations.
        resources: Indicators.
        code_challenge: The PKCE challenge, method S256; None if the client need not use PKCE and did not.
        max_age_s: The maximum age of the sign-in, seconds.
        acr: How strongly the user must have signed in, at least.
        action: What the user is asked to do before the answer.
        login_hint: Prefills the sign-in page.
        hinted_user_id: The only accepted user; None accepts any.
        connector_id: The connector that the client asks for, by ``direct_sign_in``.
    """

    client_id: str
    redirect_uri: str
    state: str | None = None
    scopes: frozenset[str] = frozenset()
    resources: tuple[str, ...] = ()
    code_challenge: str | None
    nonce: str | None = None
    prompts: frozenset[str] = frozenset()
    max_age_s: int | None = None
    acr: Level | None = None
    action: Action | None = None
    login_hint: str | None = None
    hinted_user_id: str | None = None
    connector_id: str | None = None

    def accepts(self, user_id: str) -> bool:
        """Return whether this user may sign in for the request (OpenID Connect Core 1.0 section 3.1.2.2)."""
        return self.hinted_user_id in {None, user_id}


def parse_parameters(encoded: bytes) -> Parameters:
    """Parse a query string or form.

    Raises:
        BadRequest: Too large, not UTF-8, or with a NUL character.
    """
    pairs = [pair for pair in encoded.split(b"&") if pair]
    if len(encoded) > MAX_BYTES or sum(not pair.startswith(_ORGANIZATION) for pair in pairs) > _MAX_PARAMETERS:
        raise BadRequest("the request is too large")
    values: dict[str, str] = {}
    lists: dict[str, list[str]] = {"resource": [], "organization": []}
    repeated = set()
    for pair in pairs:
        raw_name, _, raw_value = pair.partition(b"=")
        name, value = _decode(raw_name), _decode(raw_value)
        if name in lists:
            lists[name] += [value] if value else []
        elif name in values:
            repeated.add(name)
        else:
            values[name] = value
    resources, organizations = (tuple(dict.fromkeys(found)) for found in lists.values())
    present = {name: value for name, value in values.items() if value}
    return Parameters(present, resources, organizations, frozenset(repeated))


def _decode(text: bytes) -> str:
    try:
        decoded = unquote_to_bytes(text.replace(b"+", b" ")).decode()
    except UnicodeDecodeError:
        raise BadRequest("the request is not valid UTF-8") from None
    if "\0" in decoded:
        raise BadRequest("a NUL character is not allowed")
    return decoded


def state_of(parameters: Parameters) -> str | None:
    """Return the ``state`` to send back; None if it is missing, repeated or too long."""
    state = parameters.get("state")
    return None if state is None or "state" in parameters.repeated or _is_too_long(state) else state


def judge(
    parameters: Parameters,
    *,
    client_id: str,
    redirect_uri: str,
    urn_namespace: str,
    hint: Hint | None = None,
    requires_pkce: bool = True,
) -> AuthorizationRequest:
    """Return the validated request.

    Args:
        parameters: As sent.
        client_id: Validated.
        redirect_uri: Validated.
        urn_namespace: The setting: ``service``.
        hint: From ``id_token_hint``; None without one, and for one that was not issued here.
        requires_pkce: Whether a request without a code challenge is refused.

    Raises:
        Refusal: The first thing that is wrong.
    """
    if parameters.repeated:
        raise Refusal("invalid_request", "a parameter is repeated")
    if parameters.get("request") is not None:
        raise Refusal("request_not_supported", "request objects are not supported")
    if parameters.get("request_uri") is not None:
        raise Refusal("request_uri_not_supported", "request objects are not supported")
    if parameters.get("response_type") is None:
        raise Refusal("invalid_request", "response_type is required")
    if parameters.get("response_type") != "code":
        raise Refusal("unsupported_response_type", "only response_type code is supported")
    _require_small(parameters)
    if (scope := parameters.get("scope")) is not None and not is_scope(scope):
        raise Refusal("invalid_scope", "scope is malformed")
    if parameters.get("id_token_hint") is not None and (hint is None or hint.client_id != client_id):
        raise Refusal("invalid_request", "id_token_hint is not an ID token that was issued to this client")
    prompts, action = _prompts(parameters.get("prompt")), _action(parameters.get("action"))
    if action is not None and "none" in prompts:
        raise Refusal("invalid_request", "action cannot be combined with prompt none")
    request = AuthorizationRequest(
        client_id=client_id,
        redirect_uri=redirect_uri,
        state=parameters.get("state"),
        scopes=parse_scope(parameters.get("scope")),
        resources=parameters.resources,
        code_challenge=_code_challenge(parameters, is_required=requires_pkce),
        nonce=parameters.get("nonce"),
        prompts=prompts,
        max_age_s=_max_age(parameters.get("max_age"), action),
        acr=_acr(parameters.get("acr_values"), urn_namespace),
        action=action,
        login_hint=parameters.get("login_hint"),
        hinted_user_id=hint.user_id if hint else None,
        connector_id=_connector(parameters.get("direct_sign_in")),
    )
    if len(_encode(request)) > _MAX_STORED_BYTES:
        raise Refusal("invalid_request", f"the request is larger than {_MAX_STORED_BYTES} bytes")
    return request


def _require_small(parameters: Parameters) -> None:
    """Refuse a request that is larger than a client needs: any visitor can cause one to be stored."""
    for name, limit in _MAX_CHARACTERS.items():
        if len(parameters.get(name) or "") > limit:
            raise Refusal("invalid_request", f"{name} is longer than {limit} characters")
    if _is_too_long(parameters.get("state") or ""):
        raise Refusal("invalid_request", f"state is longer than {_MAX_STATE_BYTES} bytes")
    scope = parameters.get("scope") or ""
    if len(scope.encode()) > _MAX_SCOPE_BYTES:
        raise Refusal("invalid_scope", f"scope is longer than {_MAX_SCOPE_BYTES} bytes")
    if len(parse_scope(scope)) > _MAX_SCOPES:
        raise Refusal("invalid_scope", f"scope has more than {_MAX_SCOPES} tokens")
    if len(parameters.resources) > _MAX_RESOURCES:
        raise Refusal("invalid_request", f"resource is given more than {_MAX_RESOURCES} times")


def _is_too_long(state: str) -> bool:
    return len(state.encode()) > _MAX_STATE_BYTES


def _code_challenge(parameters: Parameters, *, is_required: bool) -> str | None:
    """Return the PKCE challenge; None for a client that need not use PKCE, whose nonce binds the code.

    Source:
        RFC 9700 section 2.1.1 (public clients must use PKCE, confidential ones may use the nonce of OpenID Connect).
    """
    challenge = parameters.get("code_challenge")
    if challenge is None:
        if is_required or parameters.get("code_challenge_method") is not None:
            raise Refusal("invalid_request", "code_challenge is required (PKCE)")
        if "openid" not in parse_scope(parameters.get("scope")) or parameters.get("nonce") is None:
            raise Refusal("invalid_request", "a request without code_challenge needs the scope openid and a nonce")
        return None
    if parameters.get("code_challenge_method") != "S256":
        raise Refusal("invalid_request", "code_challenge_method must be S256")
    if _CHALLENGE.fullmatch(challenge) is None:
        raise Refusal("invalid_request", "code_challenge is not the base64url of a SHA-256")
    return challenge


def _prompts(prompt: str | None) -> frozenset[str]:
    prompts = frozenset(prompt.split(" ")) - {""} if prompt else frozenset[str]()
    if not prompts.issubset(PROMPTS):
        raise Refusal("invalid_request", "prompt may be none, login, consent and select_account")
    if "none" in prompts and len(prompts) > 1:
        raise Refusal("invalid_request", "prompt none cannot be combined with others")
    return prompts


def _max_age(max_age: str | None, action: Action | None) -> int | None:
    at_most = None if action is None else ACTION_MAX_AGE_S
    if max_age is None:
        return at_most
    if re.fullmatch(r"[0-9]{1,9}", max_age) is None:
        raise Refusal("invalid_request", "max_age must be a number of seconds")
    return int(max_age) if at_most is None else min(int(max_age), at_most)


def _action(action: str | None) -> Action | None:
    known = next((each for each in _ACTIONS if each == action), None)
    if known is None and action is not None:
        raise Refusal("invalid_request", f"action may be {', '.join(_ACTIONS)}")
    return known


def _connector(direct_sign_in: str | None) -> str | None:
    """Return the connector of ``sso:<id>``; another value asks for no connector, and the page is shown."""
    asked = _DIRECT.fullmatch(direct_sign_in or "")
    return asked[1] if asked else None


def _acr(acr_values: str | None, urn_namespace: str) -> Level | None:
    """Return the level of the first known value: the values are in the client's order of preference.

    Source:
        OpenID Connect Core 1.0 section 3.1.2.1 (``acr_values``); OpenID Connect Core Error Code
        unmet_authentication_requirements 1.0; RFC 9470 section 5.
    """
    levels = [level_of(value, urn_namespace=urn_namespace) for value in (acr_values or "").split(" ") if value]
    known = next((level for level in levels if level is not None), None)
    if levels and known is None:
        raise Refusal("unmet_authentication_requirements", "none of the acr_values is supported")
    return known

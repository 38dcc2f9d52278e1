"""The OpenAPI operations of introspection, revocation and userinfo.

``TokenForm`` is what introspection and revocation parse.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from identity_common.http.openapi.declarations import BEARER, Answer, Content, Operation, operation_opt
from token_service.grants.form import Form
from token_service.openapi.responses import (
    BASIC,
    FAILED,
    NOT_A_FORM,
    TOO_MANY_FAILURES,
    UNAUTHENTICATED,
    Refusals,
    answer,
    form,
    refusals,
)
from token_service.tokens.identity import PersonClaims


class TokenForm(Form, frozen=True, kw_only=True):
    """Names an access token or a refresh token (RFC 7009 section 2.1, RFC 7662 section 2.1).

    Attributes:
        token: An access token or a refresh token.
        token_type_hint: Kind of the token; ignored if wrong.
        client_id: Id of the application; must match the Authorization header, if present.
        client_secret: Secret of an application that sends no Authorization header.
    """

    token: Annotated[str, Meta(min_length=1)]
    # Of any type to msgspec, so that an unknown hint is ignored.
    token_type_hint: Annotated[Any, Meta(extra_json_schema={"enum": ["access_token", "refresh_token"]})] = UNSET
    client_id: str | UnsetType = UNSET
    client_secret: str | UnsetType = UNSET


class AccessTokenForm(msgspec.Struct, kw_only=True):
    """Presents an access token in the body instead of a header (RFC 6750 section 2.2).

    Attributes:
        access_token: A userinfo token.
    """

    access_token: Annotated[str, Meta(min_length=1)]


class Introspection(msgspec.Struct, frozen=True, kw_only=True):
    """Introspection of a token (RFC 7662 section 2.2); for an inactive token, ``active`` is the only member.

    Attributes:
        active: Whether the token is valid, and visible to the client.
        token_type: ``Bearer`` for an access token.
        client_id: Id of the application that the token was issued to.
        sub: Id of the user, or of the application that the token speaks for.
        aud: The token's audience: the indicator of an API resource, an organization, or userinfo.
        iss: The issuer.
        iat: Time of issue, seconds since the epoch.
        exp: Time of expiry, seconds since the epoch.
        jti: Id of the token.
        scope: Space-separated scope tokens.
        act: The actor that acts as the subject; only with impersonation (RFC 8693 section 4.1).
        gty: Grant type of a token that was issued by exchange.
        organization_id: Id of the organization within which a resource is the target.
        auth_time: When the user signed in, seconds since the epoch (RFC 9470 section 6.2); absent, like the next two,
            unless the user has signed in for the token.
        amr: The methods of that sign-in (RFC 8176), such as `pwd`.
        acr: How strong it was.
        actor_authentication: The same about the actor; only with impersonation.
    """

    active: bool
    token_type: str | UnsetType = UNSET
    client_id: str | UnsetType = UNSET
    sub: str | UnsetType = UNSET
    aud: str | UnsetType = UNSET
    iss: str | UnsetType = UNSET
    iat: int | UnsetType = UNSET
    exp: int | UnsetType = UNSET
    jti: str | UnsetType = UNSET
    scope: str | UnsetType = UNSET
    act: dict[str, Any] | UnsetType = UNSET
    gty: str | UnsetType = UNSET
    organization_id: str | UnsetType = UNSET
    auth_time: int | UnsetType = UNSET
    amr: Sequence[str] | UnsetType = UNSET
    acr: str | UnsetType = UNSET
    actor_authentication: dict[str, Any] | UnsetType = UNSET


_TOKEN: Final = "eyJhbGciOiJFUzI1NiIsInR5cCI6ImF0K2p3dCJ9.e30.c2lnbmF0dXJl"  # noqa: S105 - an example
_AWAY: Final = ("A store does not answer.", {"temporarily_unavailable": "revocations cannot be read right now"})
_MALFORMED: Final = {"invalid_request": "token is required"}

_INTROSPECTION_REFUSALS: Final[Refusals] = {
    400: ("The request is malformed.", _MALFORMED),
    401: UNAUTHENTICATED,
    415: NOT_A_FORM,
    429: TOO_MANY_FAILURES,
    500: FAILED,
    503: _AWAY,
}
_REVOCATION_REFUSALS: Final[Refusals] = {
    **_INTROSPECTION_REFUSALS,
    400: (
        "The request is malformed, or the token is another client's.",
        {**_MALFORMED, "invalid_grant": "the token is another client's"},
    ),
}
_USERINFO_REFUSALS: Final[Refusals] = {
    400: ("The request is malformed.", {"invalid_request": "the access token is presented twice"}),
    403: ("The token lacks the scope openid.", {"insufficient_scope": "this needs the scope openid"}),
    500: FAILED,
    503: _AWAY,
}


INTROSPECTION_OPERATION: Final = operation_opt(
    Operation(
        method="POST",
        operation_id="Introspect",
        summary="Introspect a token",
        description=(
            "For confidential clients (RFC 7662). First-party clients see any access token, third-party ones their"
            " own, and each client its own refresh tokens; every other token is inactive."
        ),
        tags=("Tokens",),
        body=form(TokenForm, example={"token": _TOKEN}),
        answers={
            200: answer(
                "What the client may see of the token.",
                Content(
                    Introspection,
                    examples={
                        "active": {
                            "active": True,
                            "token_type": "Bearer",
                            "client_id": "w8p2kd0c7xjv4m1qz9tbn",
                            "sub": "u7q2w9e4r5t6",
                            "aud": "https://api.example.com",
                            "iss": "https://identity.example.com/oidc",
                            "iat": 1_790_000_000,
                            "exp": 1_790_003_600,
                            "jti": "5f0c1d2e3a4b5968778695a4b3c2d1e0",
                            "scope": "orders:read",
                            "act": {"sub": "a1s2d3f4g5h6"},
                            "gty": "urn:ietf:params:oauth:grant-type:token-exchange",
                        },
                        "inactive": {"active": False},
                    },
                ),
            ),
            **refusals(_INTROSPECTION_REFUSALS),
        },
        credentials=(BASIC,),
        credentials_required=False,
    )
)
"""``opt`` of the route."""

REVOCATION_OPERATION: Final = operation_opt(
    Operation(
        method="POST",
        operation_id="Revoke",
        summary="Revoke a token",
        description=(
            "Revoke one of the client's own tokens (RFC 7009); with a refresh token, every token of its sign-in. An"
            " unknown or invalid token is not an error."
        ),
        tags=("Tokens",),
        body=form(TokenForm, example={"token": _TOKEN}),
        answers={200: answer("The token is revoked, or was not valid."), **refusals(_REVOCATION_REFUSALS)},
        credentials=(BASIC,),
        credentials_required=False,
    )
)
"""``opt`` of the route."""

_USERINFO: Final = Operation(
    method="GET",
    operation_id="Userinfo",
    summary="Read claims about the subject of a userinfo token",
    description="Claims about the subject, according to the token's scopes (OpenID Connect Core section 5.3).",
    tags=("Tokens",),
    answers={
        200: answer(
            "Claims.",
            Content(
                PersonClaims,
                examples={
                    "profile": {
                        "sub": "u7q2w9e4r5t6",
                        "name": "Ada Lovelace",
                        "username": "ada",
                        "preferred_username": "ada",
                    }
                },
            ),
        ),
        401: Answer(
            "The access token is missing or not accepted; without a token there is no body.",
            headers=("WWW-Authenticate",),
        ),
        **refusals(_USERINFO_REFUSALS, challenged=(400, 403)),
    },
    credentials=(BEARER,),
)
USERINFO_OPERATIONS: Final = operation_opt(
    _USERINFO,
    msgspec.structs.replace(
        _USERINFO,
        method="POST",
        operation_id="PostUserinfo",
        body=form(AccessTokenForm, example={"access_token": _TOKEN}),
        body_required=False,
        answers={**_USERINFO.answers, **refusals({415: NOT_A_FORM})},
        credentials_required=False,
    ),
)
"""``opt`` of the route."""

"""The OpenAPI operation of ``POST /oidc/token``.

The schemas of the request are the structs that the grants parse.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from identity_common.http.openapi.declarations import Content, Json, Operation, RequestHeader, operation_opt
from identity_common.oauth import (
    GRANT_AUTHORIZATION_CODE,
    GRANT_CLIENT_CREDENTIALS,
    GRANT_REFRESH_TOKEN,
    GRANT_TOKEN_EXCHANGE,
    TOKEN_TYPE_ACCESS_TOKEN,
)
from identity_common.revisions import HEADER
from token_service.grants import TokenResponse
from token_service.grants.authorization_code import AuthorizationCodeForm
from token_service.grants.client_credentials import ClientCredentialsForm
from token_service.grants.refresh_token import RefreshTokenForm
from token_service.grants.token_exchange import TokenExchangeForm
from token_service.openapi.responses import (
    BASIC,
    FAILED,
    NOT_A_FORM,
    RATE_LIMIT,
    TOO_MANY_FAILURES,
    UNAUTHENTICATED,
    Refusals,
    answer,
    form,
    refusals,
)

GrantRequest = AuthorizationCodeForm | ClientCredentialsForm | RefreshTokenForm | TokenExchangeForm
"""The form of any supported grant type."""

_ACCESS_TOKEN: Final = "eyJhbGciOiJFUzI1NiIsInR5cCI6ImF0K2p3dCJ9.e30.c2lnbmF0dXJl"  # noqa: S105 - an example
_REFRESH_TOKEN: Final = "ref_Vd0rC5YqX1nT8sLk2uWg7jZb4mPa9hEf3iRo6xKc1vS"  # noqa: S105 - an example
_EXCHANGE: Final = {
    "subject_token": "sub_Vd0rC5YqX1nT8sLk2uWg7jZb4mPa9hEf3iRo6xKc1vS",
    "subject_token_type": TOKEN_TYPE_ACCESS_TOKEN,
}
_ORDERS: Final = {"resource": "https://api.example.com", "scope": "orders:read"}


class GrantExamples(msgspec.Struct, frozen=True, kw_only=True):
    """Examples of one grant, by name.

    Attributes:
        requests: Forms without ``grant_type``.
        answers: Responses; empty if they look like those of another grant.
    """

    requests: Mapping[str, Json]
    answers: Mapping[str, Json]


_EXAMPLES: Final = {
    GRANT_CLIENT_CREDENTIALS: GrantExamples(
        requests={
            "client credentials": _ORDERS,
            "client credentials for an organization": {"organization_id": "k3v9x0a7qm2d", "scope": "invoices:read"},
        },
        answers={
            "client credentials": {
                "access_token": _ACCESS_TOKEN,
                "token_type": "Bearer",
                "expires_in": 3600,
                "scope": "orders:read",
            }
        },
    ),
    GRANT_TOKEN_EXCHANGE: GrantExamples(
        requests={
            "impersonation": {**_EXCHANGE, **_ORDERS},
            "impersonation with an actor": {
                **_EXCHANGE,
                "actor_token": _ACCESS_TOKEN,
                "actor_token_type": TOKEN_TYPE_ACCESS_TOKEN,
                **_ORDERS,
            },
        },
        answers={
            "impersonation": {
                "access_token": _ACCESS_TOKEN,
                "issued_token_type": TOKEN_TYPE_ACCESS_TOKEN,
                "token_type": "Bearer",
                "expires_in": 3600,
                "scope": "orders:read",
            }
        },
    ),
    GRANT_AUTHORIZATION_CODE: GrantExamples(
        requests={
            "sign-in": {
                "code": "cod_Vd0rC5YqX1nT8sLk2uWg7jZb4mPa9hEf3iRo6xKc1vS",
                "redirect_uri": "https://app.example.com/callback",
                "code_verifier": "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk",
            }
        },
        answers={
            "sign-in": {
                "access_token": _ACCESS_TOKEN,
                "token_type": "Bearer",
                "expires_in": 3600,
                "scope": "openid profile",
                "refresh_token": _REFRESH_TOKEN,
                "id_token": "eyJhbGciOiJFUzI1NiIsInR5cCI6IkpXVCJ9.e30.c2lnbmF0dXJl",
            }
        },
    ),
    GRANT_REFRESH_TOKEN: GrantExamples(
        requests={
            "refresh": {
                "refresh_token": _REFRESH_TOKEN,
                "client_id": "w8p2kd0c7xjv4m1qz9tbn",
                "resource": "https://api.example.com",
            }
        },
        answers={},
    ),
}
_REQUESTS: Final = {
    name: {"grant_type": grant_type, **request}
    for grant_type, examples in _EXAMPLES.items()
    for name, request in examples.requests.items()
}
_ANSWERS: Final = {name: shown for examples in _EXAMPLES.values() for name, shown in examples.answers.items()}
_REFUSALS: Final[Refusals] = {
    400: (
        "The request is malformed or not allowed for this client, or the custom-claims function denied access.",
        {
            "invalid_request": "the subject token or the actor token is not acceptable",
            "unauthorized_client": "this application may not exchange tokens",
            "unsupported_grant_type": "this grant type is not supported",
            "invalid_target": "the resource is unknown",
            "invalid_grant": "the code or refresh token is not acceptable",
            "invalid_scope": "a requested scope was not consented to",
            "access_denied": "the custom-claims function failed",
        },
    ),
    401: UNAUTHENTICATED,
    403: (
        "The subject is not a member of the organization, or has not consented to organization tokens. Or the user, in"
        " an exchange the actor, must sign in again or more strongly: acr_values and max_age say how, and a refresh"
        " token or subject token is still usable.",
        {
            "access_denied": "the subject is not a member of this organization",
            "insufficient_scope": "this needs the scope urn:service:scope:organizations",
        },
    ),
    415: NOT_A_FORM,
    429: (
        f"{TOO_MANY_FAILURES[0]} Or the client has sent more requests than the operator allows: nothing is spent.",
        TOO_MANY_FAILURES[1],
    ),
    500: FAILED,
    503: (
        "A store does not answer: a subject token or a code may or may not be spent. Or a revision has not arrived, the"
        " awaited one or that of the subject token or the code, or no worker is free for the custom-claims function:"
        " nothing is spent; repeat the request.",
        {"temporarily_unavailable": "the awaited revision has not arrived yet"},
    ),
}


TOKEN_OPERATION: Final = operation_opt(
    Operation(
        method="POST",
        operation_id="Token",
        summary="Get an access token",
        description=(
            "Issue an access token for one grant (RFC 6749 section 3.2).\n\n"
            "An empty parameter is treated as absent, an unknown one is ignored. Repeated parameters and"
            " audience are refused."
        ),
        tags=("Tokens",),
        request_headers=(
            RequestHeader(
                HEADER,
                "Revision that the response must reflect, as returned by writes.",
                "management:97",
                pattern="^(management|template):(0|[1-9][0-9]{0,17})$",
            ),
        ),
        body=form(GrantRequest, examples=_REQUESTS),
        answers={
            200: answer("An access token.", Content(TokenResponse, examples=_ANSWERS), *RATE_LIMIT),
            **refusals(_REFUSALS, further={429: RATE_LIMIT}),
        },
        credentials=(BASIC,),
        credentials_required=False,
    )
)
"""``opt`` of the route."""

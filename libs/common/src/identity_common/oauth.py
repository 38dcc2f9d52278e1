"""The names of OAuth 2.0 that the services share."""

from typing import Final

GRANT_AUTHORIZATION_CODE: Final = "authorization_code"
GRANT_CLIENT_CREDENTIALS: Final = "client_credentials"
GRANT_REFRESH_TOKEN: Final = "refresh_token"  # noqa: S105 - a type, not a token
GRANT_TOKEN_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"  # noqa: S105 - a type, not a token

TOKEN_TYPE_ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 - a type, not a token
TOKEN_TYPE_ID_TOKEN: Final = "urn:ietf:params:oauth:token-type:id_token"  # noqa: S105 - an identifier

SCOPE_IMPERSONATIONS: Final = "impersonations"
"""Lets a user see and end impersonations of their own account."""
SCOPE_ACCOUNT: Final = "account"
"""Lets a user see and change their own account; of first-party applications only."""

OIDC_SCOPES: Final = frozenset(
    {"openid", "offline_access", "profile", "email", "phone", "address", "roles", SCOPE_IMPERSONATIONS, SCOPE_ACCOUNT}
)
"""Scopes defined by OpenID Connect or by this service; only the Management API has one of such a name, ``roles``."""

USERINFO_SCOPES: Final = OIDC_SCOPES - {"offline_access"}
"""OIDC scopes that a userinfo token may carry; ``offline_access`` requests a refresh token and grants nothing."""

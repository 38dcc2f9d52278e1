"""Who may call what is about the caller: users themselves, by a userinfo token of their own sign-in.

Owns the check of such a token, and the challenge to sign in again, also of an administrator who changes the own user.
Does not own which scope a route needs, nor how recent and how strong the sign-in must be: the route declares it
(``OwnSignIn``).
"""

from functools import partial
from typing import Final

import msgspec
from litestar.handlers import BaseRouteHandler

from identity_common.access.callers import Caller
from identity_common.access.management_api import Access, Connection, admitted_caller, auth_time_of
from identity_common.clock import Clock, now_ms
from identity_common.http.if_match import Versions
from identity_common.http.json_body import JsonRequest
from identity_common.http.openapi.declarations import OwnSignIn, is_list, more_of
from identity_common.http.problems import ApiError
from identity_common.http.query_parameters import require_declared
from identity_common.oauth import SCOPE_ACCOUNT
from stead import AccessToken
from stead.verify.acr import Level, acr_of, level_of, satisfies

RECENT_S: Final = 600
"""How long ago a sign-in may be for what changes how the user signs in, in seconds."""
ACCOUNT: Final = OwnSignIn(SCOPE_ACCOUNT)
"""The user's account."""
ACCOUNT_SIGN_IN: Final = OwnSignIn(SCOPE_ACCOUNT, max_age_s=RECENT_S)
"""What changes how the user signs in."""
ACCOUNT_FACTORS: Final = OwnSignIn(SCOPE_ACCOUNT, max_age_s=RECENT_S, level="mfa")
"""What takes a second factor away: not for the password alone, which the factor is there to protect against."""


def _forbidden(needed: OwnSignIn) -> ApiError:
    challenge = f'Bearer error="insufficient_scope", scope="{needed.scope}"'
    return ApiError(403, "auth.forbidden", f"This needs {needed}.", headers={"WWW-Authenticate": challenge})


def _insufficient(needed: OwnSignIn, *, urn_namespace: str) -> ApiError:
    """401: the user must sign in again, as recently and as strongly as the challenge says.

    Source:
        RFC 9470 section 3.
    """
    recently, recent = f" at most {needed.max_age_s} seconds ago", f', max_age="{needed.max_age_s}"'
    if needed.level is None:
        strongly, missing, strong = "", "a more recent sign-in is required", ""
    else:
        strongly, missing = " with a second factor", "a stronger or more recent sign-in is required"
        strong = f', acr_values="{acr_of(needed.level, urn_namespace=urn_namespace)}"'
    challenge = f'Bearer error="insufficient_user_authentication", error_description="{missing}"{strong}{recent}'
    message = f"This needs a sign-in{strongly}{recently}. Sign in again."
    return ApiError(401, "auth.insufficient_user_authentication", message, headers={"WWW-Authenticate": challenge})


def require_own(token: AccessToken, needed: OwnSignIn, *, urn_namespace: str, clock: Clock = now_ms) -> None:
    """Refuse every token except one of the user's own sign-in, with the scope, recent and strong enough.

    Raises:
        ApiError: 403; 401 if the sign-in is too old or too weak, or the token does not say when or how it was.

    Source:
        RFC 6750 section 3.1, RFC 9470 section 3.
    """
    is_own = token.subject != token.client_id and token.actor is None and token.grant_type is None
    if not is_own or needed.scope not in token.scopes:
        raise _forbidden(needed)
    is_recent = needed.max_age_s is None or _is_recent(auth_time_of(token), needed.max_age_s, clock)
    if not is_recent or not satisfies(_level_of(token, urn_namespace), needed.level):
        raise _insufficient(needed, urn_namespace=urn_namespace)


def require_recent_sign_in(caller: Caller, *, clock: Clock = now_ms) -> None:
    """Refuse a caller whose sign-in is too old for what the body of the request asks for.

    Raises:
        ApiError: 401.
    """
    if not _is_recent(caller.auth_time, RECENT_S, clock):
        raise _insufficient(ACCOUNT_SIGN_IN, urn_namespace="")


def require_recent_if_own(connection: Connection) -> None:
    """Refuse to change how the user of the path signs in if it is the caller, who has not signed in recently.

    A stolen session of an administrator would otherwise take over the administrator's own account.

    Raises:
        ApiError: 401.
    """
    caller = admitted_caller(connection)
    if caller.user_id == connection.path_params["user_id"]:
        require_recent_sign_in(caller)


async def recent_if_own(connection: Connection, _: BaseRouteHandler) -> None:
    """Guard: see ``require_recent_if_own``."""
    require_recent_if_own(connection)


def _is_recent(auth_time: int | None, max_age_s: int, clock: Clock) -> bool:
    return clock() // 1000 - (auth_time or 0) <= max_age_s


def _level_of(token: AccessToken, urn_namespace: str) -> Level | None:
    acr = token.claims.get("acr")
    return level_of(acr, urn_namespace=urn_namespace) if isinstance(acr, str) else None


async def require_own_sign_in(connection: Connection, handler: BaseRouteHandler) -> None:
    """Guard: the user that the route is about; ``admitted_caller`` returns it to the handler.

    As under the rest of the API, a write is then recorded in the audit trail, and is carried out only if its
    ``If-Match`` holds.

    Raises:
        ApiError: See ``Access.require`` and ``require_own``.
        Invalid: The operation does not declare a query parameter.
    """
    access: Access = connection.app.state.person_access
    more = more_of(connection.route_handler)
    needed: OwnSignIn = more.own_sign_in  # type: ignore[assignment]  # of every handler with this guard
    permit = partial(require_own, needed=needed, urn_namespace=connection.app.state.urn_namespace)
    caller = await access.require(connection.scope, permit)
    caller = msgspec.structs.replace(caller, is_own_account=True)
    require_declared(connection.scope["query_string"], more, in_pages=is_list(connection.route_handler))
    access.admit(connection, handler, caller)
    versions: Versions = connection.app.state.versions
    await versions.require(connection.scope)


def own_id(request: JsonRequest) -> str:
    """Return the id of the user that ``require_own_sign_in`` has admitted."""
    return admitted_caller(request).user_id or ""  # never empty: the guard admits users only

"""Browser sessions in the memory of this process; a real application keeps them in Redis.

The cookie is a random id without meaning. It changes at sign-in, which prevents session fixation.
"""

import secrets
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec
from litestar import Request
from litestar.datastructures import Cookie

from stead import AccessToken, AsyncIdentityClient
from support_desk.backend import Customer

_COOKIE: Final = "support-desk"
_IDLE_S: Final = 30 * 60
_MAX_SESSIONS: Final = 1000


class Impersonation(msgspec.Struct, frozen=True):
    """An agent acting as a customer.

    Attributes:
        id: Its public id at Stead; not a secret.
        bearer: The access token as issued.
        token: The verified access token.
    """

    id: str
    customer: Customer
    reason: str
    ticket_id: str
    bearer: str
    token: AccessToken

    def __repr__(self) -> str:
        return f"Impersonation({self.id!r})"


class BegunImpersonation(msgspec.Struct, frozen=True, kw_only=True):
    """An impersonation whose subject token has not been exchanged yet.

    Attributes:
        id: Its public id at Stead; not a secret.
        subject_token: Secret; usable once, within ten minutes.
        acr_values: How strongly the agent must sign in before the exchange; empty for any way.
        max_age_s: How long ago that sign-in may be, in seconds; None for any time.
    """

    id: str
    customer: Customer
    reason: str
    ticket_id: str
    subject_token: str
    acr_values: tuple[str, ...] = ()
    max_age_s: int | None = None

    def __repr__(self) -> str:
        return f"BegunImpersonation({self.id!r})"


class Session:
    """The session of one browser.

    Attributes:
        client: Signs the agent in and holds the agent's own tokens.
        csrf_token: A field of every form in this session.
        begun: What the agent must sign in again for; None without.
        impersonation: None unless the agent acts as a customer.
    """

    def __init__(self, client: AsyncIdentityClient) -> None:
        self.client = client
        self.csrf_token = secrets.token_urlsafe(32)
        self.begun: BegunImpersonation | None = None
        self.impersonation: Impersonation | None = None
        self.used_at = time.monotonic()


class Sessions:
    """All sessions; the least recently used one is evicted if there are too many.

    Args:
        new_client: Creates the client of a session.
        secure: Whether the cookie is for https only.
    """

    def __init__(self, new_client: Callable[[], AsyncIdentityClient], *, secure: bool) -> None:
        self._new_client = new_client
        self._secure = secure
        self._sessions: dict[str, Session] = {}

    def find(self, request: Request[Any, Any, Any]) -> Session | None:
        """Return the session of a request, signed in or not; None if there is none or it has expired."""
        session_id = request.cookies.get(_COOKIE, "")
        session = self._sessions.pop(session_id, None)
        if session is None or time.monotonic() - session.used_at > _IDLE_S:
            return None
        session.used_at = time.monotonic()
        self._sessions[session_id] = session  # last: the first is the least recently used
        return session

    def signed_in(self, request: Request[Any, Any, Any]) -> Session | None:
        """Return the session of a request if it is signed in."""
        session = self.find(request)
        return session if session is not None and session.client.is_signed_in() else None

    def begin(self, client: AsyncIdentityClient | None = None) -> tuple[Session, Cookie]:
        """Return a new session and its cookie, for an existing client or a new one."""
        while len(self._sessions) >= _MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        session_id = secrets.token_urlsafe(32)
        session = self._sessions[session_id] = Session(client or self._new_client())
        return session, self._cookie(session_id)

    def end(self, request: Request[Any, Any, Any]) -> Cookie:
        """Delete the session of a request; return the cookie that deletes its cookie."""
        self._sessions.pop(request.cookies.get(_COOKIE, ""), None)
        return self._cookie("", max_age_s=0)

    def _cookie(self, value: str, *, max_age_s: int | None = None) -> Cookie:
        return Cookie(
            key=_COOKIE,
            value=value,
            max_age=max_age_s,
            path="/",
            secure=self._secure,
            httponly=True,
            samesite="lax",
        )

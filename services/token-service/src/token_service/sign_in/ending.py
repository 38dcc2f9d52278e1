"""Ending sessions: at sign-out, and by request of the user or of the Management API."""

from identity_common.failures import missing_by_id
from identity_common.telemetry.logs import get_logger
from token_service.authorizations import Authorizations, Through
from token_service.sign_in.sessions import Session, Sessions

_log = get_logger(__name__)


class SessionEnds:
    """Ends sessions, with what applications got in them.

    The authorizations end first, so that a failed request can be repeated; and once more after the session, for those
    that began in between (later ones get no code).
    """

    def __init__(self, sessions: Sessions, authorizations: Authorizations) -> None:
        self._sessions = sessions
        self._authorizations = authorizations

    async def sign_out(self, session: Session) -> None:
        """End a session whose browser signs out."""
        await self._authorizations.end_of_session(session.id)
        await self._end(session)

    async def of_person(self, which: Through, *, subject: str | None, until: int) -> list[Session]:
        """End the sessions of a person at a provider, or those of one session there, and return them.

        A sign-in that is under way by then begins none.

        Args:
            which: Those that have begun.
            subject: Of the person, whose user may not be known yet.
            until: Milliseconds since the epoch.
        """
        session_id = which.provider_session_id
        if session_id is None:
            await self._sessions.mark_ended(which.connector_id, subject=subject, until=until)
        else:
            await self._sessions.mark_ended(which.connector_id, provider_session_id=session_id, until=until)
        return [] if which.user_id is None and session_id is None else await self.through(which)

    async def through(self, which: Through) -> list[Session]:
        """End the sessions that came through a connector, and return them."""
        await self._authorizations.end_through(which)
        ended = await self._sessions.end_through(which)
        if ended:
            await self._authorizations.end_through(which)
            _log.info("connector.sessions-ended", connector_id=which.connector_id, count=len(ended))
        return ended

    async def by_request(self, user_id: str, session_id: str) -> None:
        """End a session of a user by the current request, which the audit trail records.

        Raises:
            Missing: The user has no such session, and no authorization that began in it is live.
        """
        session = await self._sessions.of_user(user_id, session_id)
        if not await self._authorizations.end_by_request(user_id, session_id, is_live=session is not None):
            raise missing_by_id("entity.not_found")
        if session is not None:
            await self._end(session)

    async def _end(self, session: Session) -> None:
        await self._sessions.end(session)
        await self._authorizations.end_of_session(session.id)
        _log.info("session.ended", user_id=session.user_id)

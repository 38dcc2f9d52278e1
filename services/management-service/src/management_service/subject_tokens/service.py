"""Mints subject tokens."""

from typing import NoReturn

import msgspec

from identity_common.clock import Clock, now_ms
from identity_common.failures import UNKNOWN_RELATION, Conflict, ErrorData, NotFound, body_too_large
from identity_common.identifiers import new_id
from identity_common.telemetry.logs import get_logger
from identity_common.wire.subject_tokens import SubjectTokenRecord
from management_service.subject_tokens.caller import CallerCheck
from management_service.subject_tokens.rules import (
    SubjectTokenCreation,
    context_is_too_large,
    missing_context,
    new_subject_token,
)
from management_service.subject_tokens.store import RefusedMinting, RequestOrigin, SubjectTokenWriter

_log = get_logger(__name__)
_encode = msgspec.json.Encoder().encode


class MintedSubjectToken(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A new subject token.

    Attributes:
        subject_token: To be exchanged once; only its hash is stored.
        expires_in: Seconds.
    """

    subject_token: str
    expires_in: int

    def __repr__(self) -> str:
        """Hide the token."""
        return "MintedSubjectToken(…)"


class SubjectTokens:
    """Mints subject tokens."""

    def __init__(self, store: SubjectTokenWriter, *, ttl_s: int, clock: Clock = now_ms) -> None:
        self._store = store
        self._ttl_s = ttl_s
        self._clock = clock

    async def mint(
        self, creation: SubjectTokenCreation, check: CallerCheck, origin: RequestOrigin
    ) -> tuple[MintedSubjectToken, str]:
        """Mint a token for a live user; only its hash is stored, with a TTL.

        The revocation of the caller's token is checked in the round trip that stores the new one. If the check fails,
        the new token is never returned, though the audit trail has it.

        Returns:
            The new token, and the public id of the impersonation that it begins.

        Raises:
            NotFound: There is no such user.
            Conflict: ``user.suspended``; by the policy of impersonations ``subject_token.context_required`` and
                ``user.excluded_from_impersonation``, which the audit trail has.
            TooLarge: The context.
        """
        record = await self._record(creation, check, origin)
        subject_token = new_subject_token()
        storing = self._store.store(
            subject_token, record, requested_by=check.user_id, token_id=check.token_id, origin=origin
        )
        await check.finish()
        await self._store.require_stored(storing, record)
        return MintedSubjectToken(subject_token=subject_token, expires_in=self._ttl_s), record.id

    async def _record(
        self, creation: SubjectTokenCreation, check: CallerCheck, origin: RequestOrigin
    ) -> SubjectTokenRecord:
        """Return the record of a new token for a live user."""
        now = self._clock()  # before the user is read: a later change that ends tokens then ends this one too
        user = await check.named_user(creation.user_id)
        context = _encode(creation.context)
        if context_is_too_large(context):
            raise body_too_large("The context is too large.")
        if missing := missing_context(creation.context, user.required_context):
            await self._refuse(_context_required(missing), creation, check, origin)
        if user.is_suspended is None:
            raise NotFound(UNKNOWN_RELATION, "The request refers to an id that does not exist.")
        if user.is_suspended:
            raise Conflict("user.suspended", "The user is suspended.")
        if user.is_excluded:
            await self._refuse(_excluded(), creation, check, origin)
        return SubjectTokenRecord(
            id=new_id(),
            user_id=creation.user_id,
            issued_to=check.client_id,
            issued_at=max(now, user.tokens_valid_after),  # ahead of this clock if another replica set it
            expires_at=now + self._ttl_s * 1000,
            revision=user.revision,
            minted_at=now,
            context=msgspec.Raw(context),
        )

    async def _refuse(
        self, refusal: Conflict, creation: SubjectTokenCreation, check: CallerCheck, origin: RequestOrigin
    ) -> NoReturn:
        """Refuse by the policy of impersonations: recorded, but not of a caller whose token was revoked."""
        caller = await check.finish()
        refused = RefusedMinting(
            reason=refusal.code,
            client_id=caller.client_id,
            user_id=creation.user_id,
            requested_by=check.user_id,
            token_id=check.token_id,
        )
        self._store.record_refusal(refused, origin)
        _log.info("subject-token.not-minted", reason=refusal.code, client_id=caller.client_id)
        raise refusal


def _excluded() -> Conflict:
    message = "The user has a role whose holders cannot be impersonated."
    return Conflict("user.excluded_from_impersonation", message)


def _context_required(missing: list[str]) -> Conflict:
    message = "The context must have the members in data.missing, as text that is not blank."
    return Conflict("subject_token.context_required", message, data=ErrorData(missing=missing))

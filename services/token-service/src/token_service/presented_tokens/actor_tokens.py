"""The actor token of an exchange: its validation, and the ``act`` claim that it yields."""

from collections.abc import Mapping
from typing import NoReturn

import msgspec

from identity_common.telemetry.logs import get_logger
from identity_common.wire.actor_tokens import ActorIdentified, ActorNotIdentified, IdentifyActor
from stead.verify.access_tokens import AccessToken, issued_at_ms
from stead.verify.acr import Level, acr_of, level_of
from stead.verify.impersonations import ImpersonationSegments
from token_service.directory import Directory
from token_service.presented_tokens.foreign_actors import ForeignActors
from token_service.presented_tokens.live_tokens import LiveTokens, TokenRefused
from token_service.presented_tokens.liveness import why_user_not_live
from token_service.tokens.claims import Actor, SignInClaims, actor_chain

_log = get_logger(__name__)


class NotAcceptable(Exception):  # noqa: N818 - the name is what happened
    """A subject token or an actor token was refused.

    Attributes:
        reason: Code for the audit trail; None if the facts about the request have it.
    """

    def __init__(self, reason: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason


class ActingParty(msgspec.Struct, frozen=True):
    """The actor of an exchange.

    Attributes:
        claim: The ``act`` claim.
        within: The impersonations that the actor token was issued in; none if it comes from a sign-in.
        issued_at: When the actor token was issued, milliseconds since the epoch: not before any tokensValidAfter of the
            users in ``claim``.
        signed_in: How the user who presents the token had signed in: its subject, or the first actor of a token that
            was issued by exchange. None if the token does not say.
        level: How strong that sign-in was; None if the token does not say.
    """

    claim: Actor
    within: ImpersonationSegments | None
    issued_at: int
    signed_in: SignInClaims | None = None
    level: Level | None = None


class ActorTokens:
    """Verifies actor tokens.

    They are our userinfo tokens with ``openid``, of a live user, issued to a first-party application; or ID tokens of
    providers that are trusted for actors, about a live user.

    Args:
        directory: Looks up the actor token's application, and the user of an ID token.
        live_tokens: Verifies our tokens.
        foreign: Judges those of other providers.
        userinfo_audience: The ``aud`` that an actor token must have.
        by_exchange: Whether a token that was issued by exchange is accepted: an impersonator could then act as the
            impersonated user.
        urn_namespace: The setting: ``service``.
    """

    def __init__(
        self,
        directory: Directory,
        live_tokens: LiveTokens,
        foreign: ForeignActors,
        *,
        userinfo_audience: str,
        by_exchange: bool,
        urn_namespace: str,
    ) -> None:
        self._directory = directory
        self._live_tokens = live_tokens
        self._foreign = foreign
        self._userinfo_audience = userinfo_audience
        self._by_exchange = by_exchange
        self._urn_namespace = urn_namespace

    async def verify(self, actor_token: str, *, at_least: Mapping[str, int]) -> ActingParty:
        """Return the actor that an actor token identifies.

        Args:
            actor_token: As presented.
            at_least: Revisions that the actor's record must include.

        Raises:
            NotAcceptable: It identifies no actor that may act.
        """
        try:
            live = await self._live_tokens.verify(actor_token, audience=self._userinfo_audience, at_least=at_least)
        except TokenRefused as error:
            _refuse(f"actor token: {error}")
        token = live.token
        if "openid" not in token.scopes:
            _refuse("actor token lacks openid")
        if token.grant_type is not None and not self._by_exchange:
            _refuse("actor token was issued by exchange")
        if live.person is None:
            _refuse("actor token has no user")
        application = self._directory.in_memory.application(token.client_id)
        if application is None or application.is_third_party:
            _refuse("actor token of a third-party application")
        actor = actor_chain(token.subject, token.actor)
        if actor is None:
            _refuse("actor token's chain is too deep")
        within = ImpersonationSegments.parse(token.id) if token.grant_type is not None else None
        signed_in = _signed_in(token)
        level = level_of(signed_in.acr, urn_namespace=self._urn_namespace) if signed_in else None
        return ActingParty(actor, within, issued_at_ms(token), signed_in, level)

    async def verify_foreign(self, id_token: str, *, at_least: Mapping[str, int]) -> ActingParty:
        """Return the actor that an ID token of another provider identifies.

        Args:
            id_token: As presented.
            at_least: Revisions that the actor's record must include.

        Raises:
            NotAcceptable: It identifies no actor that may act.
            TemporarilyUnavailable: It cannot be judged now.
        """
        answer = await self._foreign.ask(IdentifyActor(id_token), ActorIdentified)
        if isinstance(answer, ActorNotIdentified):
            _refuse(f"ID token: {answer.reason}")
        issued_at = answer.issued_at * 1000
        person = await self._directory.person(answer.user_id, at_least=at_least)
        if (reason := why_user_not_live(person, issued_at_ms=issued_at)) is not None:
            _refuse(f"ID token: {reason}")
        signed_in = None
        if answer.auth_time is not None:
            acr = acr_of(answer.level, urn_namespace=self._urn_namespace)
            signed_in = SignInClaims(auth_time=answer.auth_time, amr=answer.amr, acr=acr)
        return ActingParty(Actor(sub=answer.user_id), None, issued_at, signed_in, answer.level)


def _signed_in(token: AccessToken) -> SignInClaims | None:
    said = token if token.grant_type is None else token.actor_authentication
    if said is None or said.acr is None:
        return None
    auth_time = None if said.auth_time is None else int(said.auth_time)
    return SignInClaims(auth_time=auth_time, amr=said.amr, acr=said.acr)


def _refuse(reason: str) -> NoReturn:
    _log.info("actor-token.refused", reason=reason)
    raise NotAcceptable("actor_token.not_acceptable")

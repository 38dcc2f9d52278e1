"""The request in which token-service asks management-service whom an actor token of another provider is about.

A NATS request on a subject that belongs to no stream, sealed, since it contains the token. Only token-service may send
it, only management-service may reply.
"""

from typing import Final

import msgspec

from identity_common.clock import Clock, now_ms
from identity_common.sealing import SealingKeys
from identity_common.wire.sealed_requests import SealedRequests
from stead.verify.acr import Level

ACTOR_TOKEN_TIMEOUT_S: Final = 6.0
"""How long token-service waits for the reply: a provider may have to be asked for its keys."""


def actor_token_subject(tenant_id: str) -> str:
    """Return the subject of the request."""
    return f"identity-rpc.{tenant_id}.actor-token"


class IdentifyActor(msgspec.Struct, frozen=True):
    """Asks which user an ID token of a connector's provider is about.

    Attributes:
        id_token: As presented.
    """

    id_token: str


class ActorIdentified(msgspec.Struct, frozen=True, omit_defaults=True, tag="identified"):
    """The token is acceptable as an actor token.

    Attributes:
        user_id: The user who has the identity.
        issued_at: When it was issued, seconds since the epoch.
        level: How strong the sign-in was, by what the connector is trusted for.
        auth_time: When the user signed in, seconds since the epoch; None if the provider does not say.
        amr: The methods that the provider names, if it is trusted to say how people have signed in.
    """

    user_id: str
    issued_at: int
    level: Level = "password"
    auth_time: int | None = None
    amr: tuple[str, ...] = ()


class ActorNotIdentified(msgspec.Struct, frozen=True, tag="not-identified"):
    """The token is not acceptable.

    Attributes:
        reason: Why, for the log alone.
    """

    reason: str


class ActorUnavailable(msgspec.Struct, frozen=True, omit_defaults=True, tag="unavailable"):
    """It cannot be judged now: the database or the provider does not answer.

    Attributes:
        retry_after_s: Seconds until it may be possible.
    """

    retry_after_s: int = 1


ActorAnswer = ActorIdentified | ActorNotIdentified | ActorUnavailable


class ActorTokenRequests(SealedRequests[IdentifyActor, ActorAnswer]):
    """Seals and opens the requests of one tenant.

    Args:
        keys: The environment variable keys, which both services have.
        tenant_id: The tenant.
        clock: Clock, for tests.
    """

    def __init__(self, keys: SealingKeys, *, tenant_id: str, clock: Clock = now_ms) -> None:
        super().__init__(
            keys,
            actor_token_subject(tenant_id),
            msgspec.json.Decoder(IdentifyActor),
            msgspec.json.Decoder(ActorAnswer),
            clock=clock,
        )

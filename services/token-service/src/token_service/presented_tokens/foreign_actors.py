"""Asks management-service whom an actor token of another provider is about, over the bus."""

from identity_common.bus.connection import Bus
from identity_common.bus.sealed_questions import SealedQuestions
from identity_common.wire.actor_tokens import (
    ACTOR_TOKEN_TIMEOUT_S,
    ActorNotIdentified,
    ActorTokenRequests,
    ActorUnavailable,
    IdentifyActor,
)


class ForeignActors(SealedQuestions[IdentifyActor, ActorNotIdentified]):
    """The people of connectors that are trusted for actors."""

    def __init__(self, bus: Bus, requests: ActorTokenRequests) -> None:
        super().__init__(
            bus,
            requests,
            refused=ActorNotIdentified,
            unavailable=ActorUnavailable,
            name="actor-token",
            timeout_s=ACTOR_TOKEN_TIMEOUT_S,
            why="no answer about the actor token",
        )

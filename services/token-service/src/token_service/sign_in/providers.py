"""Asks management-service about sign-ins at the providers of connectors, over the bus."""

from identity_common.bus.connection import Bus
from identity_common.bus.sealed_questions import SealedQuestions
from identity_common.wire.provider_sign_in import (
    PROVIDER_TIMEOUT_S,
    NotAccepted,
    ProviderQuestion,
    ProviderSignInRequests,
    ProviderUnavailable,
)


class Providers(SealedQuestions[ProviderQuestion, NotAccepted]):
    """management-service's operations at providers."""

    def __init__(self, bus: Bus, requests: ProviderSignInRequests) -> None:
        super().__init__(
            bus,
            requests,
            refused=NotAccepted,
            unavailable=ProviderUnavailable,
            name="providers",
            timeout_s=PROVIDER_TIMEOUT_S,
            why="no answer about a provider",
        )

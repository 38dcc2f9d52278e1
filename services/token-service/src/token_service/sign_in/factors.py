"""Asks management-service about passkeys and second factors, over the bus."""

from identity_common.bus.connection import Bus
from identity_common.bus.sealed_questions import SealedQuestions
from identity_common.wire.factors import REPLY_TIMEOUT_S, FactorRequests, Question, Refused, Unavailable


class Factors(SealedQuestions[Question, Refused]):
    """management-service's operations on factors."""

    def __init__(self, bus: Bus, requests: FactorRequests) -> None:
        super().__init__(
            bus,
            requests,
            refused=Refused,
            unavailable=Unavailable,
            name="factors",
            timeout_s=REPLY_TIMEOUT_S,
            why="no answer about factors",
        )

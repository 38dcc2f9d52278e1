"""The not-valid feed: a signed sequence of what verifiers must no longer accept, with a heartbeat each second.

Owns collecting it from the revocations and the bus, its keys, and what the endpoints serve. Does not own why something
is not valid (``token_service.presented_tokens``, the other services), nor the entries and messages, which the SDK
defines for both sides (``stead.verify.feed``).
"""

from token_service.not_valid.keys import (
    KEYS_MAX_AGE_S,
    FeedKeys,
    FeedKeyStatus,
    NextFeedKeyWaitsError,
    StoredFeedKey,
)
from token_service.not_valid.sequencer import LOCK, Sequencer
from token_service.not_valid.snapshots import FeedSnapshot, Snapshots, UnknownPositionError
from token_service.not_valid.tail import Tail

__all__ = [
    "KEYS_MAX_AGE_S",
    "LOCK",
    "FeedKeyStatus",
    "FeedKeys",
    "FeedSnapshot",
    "NextFeedKeyWaitsError",
    "Sequencer",
    "Snapshots",
    "StoredFeedKey",
    "Tail",
    "UnknownPositionError",
]

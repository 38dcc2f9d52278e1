"""Revocations: tokens that are refused before they expire.

Owns the rows, which are the truth, and their copy in Redis, which every request reads. A revocation names an access
token (its ``jti``), or an authorization or a signing key and then covers every token of it. Does not own who may revoke
what.
"""

from token_service.presented_tokens.revocations.revocations import Revocations
from token_service.presented_tokens.revocations.store import Revocation

__all__ = ["Revocation", "Revocations"]

"""Revocations: tokens that are refused before they expire.

Owns the rows, which are the truth, and their copy in Redis, which every request reads. A revocation names an access
token (by ``jti``), or an authorization, an impersonation or a signing key, and then covers all of its tokens; a cutoff
covers a party's impersonations that began up to a given time. Does not own who may revoke what.
"""

from token_service.presented_tokens.revocations.revocations import Readings, Revocations
from token_service.presented_tokens.revocations.store import Revocation

__all__ = ["Readings", "Revocation", "Revocations"]

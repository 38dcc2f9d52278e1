"""Revocations: which tokens count no more although they have not expired.

Owns the rows, which are the truth, and their copy in Redis, which every request reads. A revocation names an access
token (its ``jti``) or an authorization, which takes every token that descends from it along. Does not own who may
revoke what.
"""

from token_service.presented_tokens.revocations.revocations import Revocations
from token_service.presented_tokens.revocations.store import Revocation

__all__ = ["Revocation", "Revocations"]

"""Audit entries of token-service: the outcome of each token request and sign-in, and each attempt to exchange.

Owns the entries. Does not own the take: its script appends the attempt in the step that spends the subject token.
"""

from token_service.audit.token_requests import AuditedTokenRequest, Origin, TokenAudit

__all__ = ["AuditedTokenRequest", "Origin", "TokenAudit"]

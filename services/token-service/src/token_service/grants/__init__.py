"""The grants of the token endpoint: one table ``grant_type → grant``, and one path that every request takes through it.

Owns the forms, who may request what, and the order of refusals. Does not own HTTP, signatures, the directory, nor the
validation of presented tokens (``token_service.presented_tokens``).
"""

from token_service.grants.table import Grant, Grants, TokenRequest, TokenResponse

__all__ = ["Grant", "Grants", "TokenRequest", "TokenResponse"]

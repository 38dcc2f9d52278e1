"""The grants of the token endpoint: one table ``grant_type → grant``, and one path through it for all of them.

Owns who may ask for what, and in which order a request is refused. Does not own HTTP, signatures or the directory.
"""

from token_service.grants.table import Grant, Grants, TokenRequest, TokenResponse

__all__ = ["Grant", "Grants", "TokenRequest", "TokenResponse"]

"""What a sign-in leaves behind for a client: consents, codes, authorizations and their refresh tokens.

A *consent* is what a person agreed to, once and for all; an *authorization* is what one client gets at one sign-in, by
way of a *code*, and the family of its refresh tokens. Codes lie in Redis, everything else in PostgreSQL. Does not own
who may ask for what (``token_service.grants``), pages and sessions, nor what becomes of access tokens when an
authorization ends (``token_service.presented_tokens.revocations``).
"""

from token_service.authorizations.authorizations import Authorizations
from token_service.authorizations.codes import Code, Codes
from token_service.authorizations.consented import Authorization, Consented
from token_service.authorizations.consents import Consent, Consents, Holder
from token_service.authorizations.refresh_tokens import FoundRefreshToken, RefreshTokens

__all__ = [
    "Authorization",
    "Authorizations",
    "Code",
    "Codes",
    "Consent",
    "Consented",
    "Consents",
    "FoundRefreshToken",
    "Holder",
    "RefreshTokens",
]

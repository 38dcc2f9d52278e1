"""Results of a sign-in for a client: consents, codes, authorizations and their refresh tokens.

A *consent* is what a user has agreed to for an application, across sign-ins; an *authorization* is what one client gets
at one sign-in, through a *code*, and the family of its refresh tokens. Codes are in Redis, everything else is in
PostgreSQL. Does not own who may request what (``token_service.grants``), pages and sessions
(``token_service.sign_in``), nor how revoked access tokens are refused (``token_service.presented_tokens.revocations``).
"""

from token_service.authorizations.authorizations import Authorizations
from token_service.authorizations.codes import Code, Codes
from token_service.authorizations.consented import Authorization, Consented
from token_service.authorizations.consents import Consent, Consents, Holder
from token_service.authorizations.refresh_tokens import FoundRefreshToken, RefreshTokens
from token_service.authorizations.through import Through

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
    "Through",
]

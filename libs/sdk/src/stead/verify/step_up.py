"""What a route demands of the sign-in behind an access token (RFC 9470), without I/O.

Owns whose sign-in counts, and whether it is recent and strong enough. Does not own the challenge (``StepUpRequired``).
"""

from __future__ import annotations

import msgspec

from stead.errors import StepUpRequired
from stead.verify.access_tokens import AccessToken
from stead.verify.acr import is_known, meets


class SignInDemand(msgspec.Struct, frozen=True, kw_only=True):
    """How recently and how strongly the user must have signed in.

    Attributes:
        max_age_s: How long ago the sign-in may be, in seconds; None for any time.
        acr: The weakest accepted ``acr``: ``urn:service:acr:mfa``, in the namespace of the service, or ``phr``; None
            for any sign-in.
        accepts_actor: Whether the sign-in of an impersonation's actor counts. Otherwise only users themselves are
            accepted, since the subject of an exchanged token has not signed in.

    Raises:
        ValueError: Nothing is demanded, ``max_age_s`` is not a positive integer, or ``acr`` is unknown.
    """

    max_age_s: int | None = None
    acr: str | None = None
    accepts_actor: bool = False

    def __post_init__(self) -> None:
        if self.max_age_s is None and self.acr is None:
            raise ValueError("demand max_age_s, acr or both")
        if self.max_age_s is not None and (type(self.max_age_s) is not int or self.max_age_s < 1):
            raise ValueError("max_age_s must be a positive number of seconds")
        if self.acr is not None and not is_known(self.acr):
            raise ValueError("acr must be phr, or end in :acr:mfa or :acr:password: urn:service:acr:mfa")

    def judge(self, token: AccessToken, *, now: float, leeway_s: float) -> None:
        """Raise unless the sign-in behind a verified token meets the demand.

        Args:
            token: The token.
            now: Seconds since the epoch.
            leeway_s: Tolerated clock difference in seconds.

        Raises:
            StepUpRequired: It does not, or the token does not say so.
        """
        auth_time, acr = self._sign_in_of(token)
        is_recent = self.max_age_s is None or (auth_time is not None and now - auth_time <= self.max_age_s + leeway_s)
        if not is_recent or not (self.acr is None or meets(acr, self.acr)):
            acr_values = () if self.acr is None else (self.acr,)
            raise StepUpRequired(acr_values=acr_values, max_age_s=self.max_age_s)

    def _sign_in_of(self, token: AccessToken) -> tuple[float | None, str | None]:
        """Return ``auth_time`` and ``acr`` of the user who signed in, where that user's sign-in counts."""
        if token.actor is None and token.grant_type is None:
            return token.auth_time, token.acr
        actor = token.actor_authentication if self.accepts_actor else None
        return (None, None) if actor is None else (actor.auth_time, actor.acr)

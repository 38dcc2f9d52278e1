"""How a user has signed in: the factors, when each was used, and what tokens say about them. Pure."""

from typing import Final, Literal

import msgspec

from stead.verify.acr import Level

SECOND_FACTORS: Final = ("authenticator", "passkey")
FactorKind = Literal["authenticator", "passkey"]
"""What a user can set up: an authenticator app (RFC 6238), or a passkey (WebAuthn)."""

FactorMethod = Literal["password", "passkey", "authenticator", "recovery-code"]
"""What a user signs in with; a recovery code stands in for any second factor."""

_AMR: Final[dict[FactorMethod, tuple[str, ...]]] = {
    "password": ("pwd",),
    "passkey": ("pop", "user"),
    "authenticator": ("otp",),
    "recovery-code": ("otp",),
}


class UsedFactor(msgspec.Struct, frozen=True):
    """A factor that was used.

    Attributes:
        at: When, milliseconds since the epoch.
    """

    method: FactorMethod
    at: int


class Authentication(msgspec.Struct, frozen=True):
    """A sign-in: its factors in the order of their use, at least one.

    A passkey counts as two factors, since it is accepted only with the user's verification, by PIN or biometrics.

    Attributes:
        judged_valid_after: The user's tokensValidAfter when the first factor was judged, milliseconds since the epoch;
            None if an earlier version recorded the sign-in.
    """

    factors: tuple[UsedFactor, ...]
    judged_valid_after: int | None = None

    @classmethod
    def of(
        cls, factors: tuple[UsedFactor, ...], *, auth_time: int, judged_valid_after: int | None = None
    ) -> "Authentication":
        """Return a sign-in; without factors it was by password, as all were before they were stored."""
        return cls(factors or (UsedFactor("password", auth_time),), judged_valid_after)

    @property
    def auth_time(self) -> int:
        """When the first factor was used, milliseconds since the epoch."""
        return self.factors[0].at

    @property
    def valid_since(self) -> int:
        """The latest tokensValidAfter with which the sign-in is live, milliseconds since the epoch.

        What it was judged against, rather than its time: that is by another clock than tokensValidAfter, and a change
        may come between the two.
        """
        return self.auth_time if self.judged_valid_after is None else self.judged_valid_after

    @property
    def latest(self) -> int:
        """When the last factor was used, milliseconds since the epoch."""
        return self.factors[-1].at

    @property
    def level(self) -> Level:
        """How strong the sign-in is."""
        methods = {factor.method for factor in self.factors}
        if "passkey" in methods:
            return "phr"
        return "mfa" if len(methods) > 1 else "password"

    @property
    def amr(self) -> tuple[str, ...]:
        """The claim ``amr``: sorted names.

        Source:
            RFC 8176 section 2; ``pop``: OpenID Connect Extended Authentication Profile ACR Values 1.0.
        """
        names = {name for factor in self.factors for name in _AMR[factor.method]}
        return tuple(sorted(names | {"mfa"} if self.level != "password" else names))

    def used(self, method: FactorMethod) -> bool:
        """Return whether a factor of this kind was used."""
        return any(factor.method == method for factor in self.factors)

    def adding(self, factor: UsedFactor) -> "Authentication":
        """Return the sign-in with another factor, in place of an earlier use of the same method."""
        factors = (*(each for each in self.factors if each.method != factor.method), factor)
        return Authentication(factors, self.judged_valid_after)

"""How a user has signed in: the factors, when each was used, and what tokens say about them. Pure."""

from typing import Final, Literal

import msgspec

from stead.verify.acr import Level, strongest

SECOND_FACTORS: Final = ("authenticator", "passkey")
FactorKind = Literal["authenticator", "passkey"]
"""What a user can set up: an authenticator app (RFC 6238), or a passkey (WebAuthn)."""

FactorMethod = Literal["password", "passkey", "authenticator", "recovery-code", "provider"]
"""What a user signs in with; a recovery code stands in for any second factor, a connector's provider for a password."""

_AMR: Final[dict[FactorMethod, tuple[str, ...]]] = {
    "password": ("pwd",),
    "passkey": ("pop", "user"),
    "authenticator": ("otp",),
    "recovery-code": ("otp",),
    "provider": (),  # what it is trusted to say is in ``AtProvider``
}


class AtProvider(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A sign-in at the provider of a connector.

    Attributes:
        connector_id: The connector.
        revision: Management's revision that includes the sign-in: the user, the identity, the groups; 0 while the
            identity is not linked yet.
        level: How strong it was, by what the connector is trusted for.
        amr: The methods that the provider is trusted to name.
        auth_time: When the person signed in there, as far as the provider says it, milliseconds since the epoch.
        session_id: ``sid`` at the provider (OpenID Connect Back-Channel Logout 1.0).
        subject: Stands for the person there; a hash.
        begun_at: When the browser was sent there, milliseconds since the epoch.
    """

    connector_id: str
    revision: int
    level: Level = "password"
    amr: tuple[str, ...] = ()
    auth_time: int | None = None
    session_id: str | None = None
    subject: str | None = None
    begun_at: int = 0


class UsedFactor(msgspec.Struct, frozen=True, omit_defaults=True):
    """A factor that was used.

    Attributes:
        at: When, milliseconds since the epoch; of a provider: when it sent the browser back.
        provider: What the provider said, if the method is ``provider``; or the connector whose identity this sign-in
            was to be linked to, with which it ends.
    """

    method: FactorMethod
    at: int
    provider: AtProvider | None = None


class Authentication(msgspec.Struct, frozen=True):
    """A sign-in: its factors in the order of their use, at least one.

    A passkey counts as two factors, since it is accepted only with the user's verification, by PIN or biometrics. A
    provider counts as a password, unless it is trusted for more.

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
    def began_at(self) -> int:
        """When the user signed in here, milliseconds since the epoch."""
        return self.factors[0].at

    @property
    def valid_since(self) -> int:
        """The latest tokensValidAfter with which the sign-in is live, milliseconds since the epoch.

        What it was judged against, rather than its time: that is by another clock than tokensValidAfter, and a change
        may come between the two.
        """
        return self.began_at if self.judged_valid_after is None else self.judged_valid_after

    @property
    def auth_time(self) -> int | None:
        """When the first factor was used, milliseconds since the epoch; None if a provider does not say."""
        first = self.factors[0]
        return first.at if first.provider is None else first.provider.auth_time

    @property
    def provider(self) -> AtProvider | None:
        """The sign-in at a provider, if it came through one."""
        return next((each.provider for each in reversed(self.factors) if each.provider is not None), None)

    @property
    def latest(self) -> int:
        """When the user proved last who they are, milliseconds since the epoch; 0 if a provider alone knows.

        That a provider sent the browser back proves nothing new: it may have known the browser for weeks.
        """
        return max(each.at if each.provider is None else each.provider.auth_time or 0 for each in self.factors)

    @property
    def level(self) -> Level:
        """How strong the sign-in is."""
        methods = {"password" if factor.method == "provider" else factor.method for factor in self.factors}
        here: Level = "phr" if "passkey" in methods else "mfa" if len(methods) > 1 else "password"
        return strongest(here, self.provider.level if self.provider else None) or here

    @property
    def amr(self) -> tuple[str, ...]:
        """The claim ``amr``: sorted names.

        Source:
            RFC 8176 section 2; ``pop``: OpenID Connect Extended Authentication Profile ACR Values 1.0.
        """
        names = {name for factor in self.factors for name in _AMR[factor.method]}
        if names and self.level != "password":
            names.add("mfa")
        return tuple(sorted(names.union(self.provider.amr if self.provider else ())))

    def used(self, method: FactorMethod) -> bool:
        """Return whether a factor of this kind was used."""
        return any(factor.method == method for factor in self.factors)

    def adding(self, factor: UsedFactor) -> "Authentication":
        """Return the sign-in with another factor, in place of an earlier use of the same method."""
        factors = (*(each for each in self.factors if each.method != factor.method), factor)
        return Authentication(factors, self.judged_valid_after)

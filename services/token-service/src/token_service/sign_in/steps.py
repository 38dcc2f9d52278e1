"""What a browser has to do next for an authorization request."""

import msgspec

from stead.verify.acr import Level
from token_service.authorizations import Consented
from token_service.directory import Person
from token_service.sign_in.request import Action
from token_service.sign_in.sessions import Session


class SignedIn(msgspec.Struct, frozen=True):
    """A live user at this browser.

    Attributes:
        revision: Management's revision, if the user signed in with this request: later checks must not use older
            records.
    """

    session: Session
    person: Person
    revision: int = 0


class NeedsSignIn(msgspec.Struct, frozen=True):
    """The user must sign in."""


class NeedsAccount(msgspec.Struct, frozen=True):
    """The user must select an account: the one that is signed in at this browser, or another."""

    who: SignedIn


class NeedsFactor(msgspec.Struct, frozen=True):
    """The user must use another factor of those that they have set up.

    Attributes:
        level: What the sign-in then has to be: with ``phr``, a passkey; else any second factor, or a recovery code.
    """

    who: SignedIn
    level: Level


class NeedsEnrolment(msgspec.Struct, frozen=True):
    """The user, who has signed in a moment ago and as strongly as they can, must set up a factor.

    Attributes:
        level: What the sign-in then has to be: with ``phr``, a passkey; else any second factor.
    """

    who: SignedIn
    level: Level


class NeedsAction(msgspec.Struct, frozen=True):
    """The user, who has signed in a moment ago and as strongly as they can, is asked to do something."""

    who: SignedIn
    action: Action


class NeedsLink(msgspec.Struct, frozen=True):
    """The user has signed in to the account that an identity at a provider is to be linked to."""

    who: SignedIn


class NeedsConsent(msgspec.Struct, frozen=True):
    """The user must consent.

    Attributes:
        wanted: Everything that is requested.
        known: What the user has consented to before.
    """

    who: SignedIn
    wanted: Consented
    known: Consented


class Granted(msgspec.Struct, frozen=True):
    """Nothing is missing: the client gets the code."""

    code: str

    def __repr__(self) -> str:
        """Hide the code."""
        return "Granted(…)"


NeedsMore = NeedsFactor | NeedsEnrolment | NeedsAction | NeedsLink
"""What comes between signing in and consent."""

NextStep = NeedsSignIn | NeedsAccount | NeedsMore | NeedsConsent | Granted

"""A person's own account."""

from __future__ import annotations

import msgspec

from stead.models.impersonations import Impersonation
from stead.models.users import Consent, Factors, SignInSession
from stead.models.versions import Versioned


class MyProfile(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the profile of a person says about them: standard claims of OpenID Connect.

    Attributes:
        preferred_username: Name by which the person wishes to be called. Not unique.
        profile: URL of a page about the person.
        website: URL of the person's own page.
        birthdate: ``YYYY-MM-DD``, with the year ``0000`` if it is withheld, or ``YYYY``.
        zoneinfo: Time zone, such as ``Europe/Paris``.
        locale: Language tag, such as ``de-AT``.
    """

    family_name: str | None = None
    given_name: str | None = None
    middle_name: str | None = None
    nickname: str | None = None
    preferred_username: str | None = None
    profile: str | None = None
    website: str | None = None
    gender: str | None = None
    birthdate: str | None = None
    zoneinfo: str | None = None
    locale: str | None = None

    def __repr__(self) -> str:
        return "MyProfile()"  # personal data, which does not belong in a log


class MyAccount(Versioned, frozen=True, kw_only=True, rename="camel"):
    """A person's own account. Its repr shows the id only.

    Attributes:
        id: The ``sub`` of the person's tokens.
        is_email_verified: Whether the person, or an administrator, has confirmed the e-mail address.
        has_password: Whether there is a password; changing it needs the present one.
        can_change_password: Whether there may be another one: the person does not have to sign in at a provider.
        can_change_email: Whether the e-mail address can be changed: the service can send mail.
    """

    id: str
    tenant_id: str = ""
    username: str | None = None
    primary_email: str | None = None
    primary_phone: str | None = None
    name: str | None = None
    avatar: str | None = None
    profile: MyProfile = MyProfile()
    is_email_verified: bool = False
    has_password: bool = False
    can_change_password: bool = False
    can_change_email: bool = False
    created_at: int | None = None
    updated_at: int | None = None

    def __repr__(self) -> str:
        return f"MyAccount(id={self.id!r})"


class MyImpersonation(Impersonation, frozen=True, kw_only=True, rename="camel"):
    """An impersonation in which the person is the subject.

    Attributes:
        actor_name: Name of the user who acts for the person, as of now; None if that user was deleted.
        client_name: Name of the application that exchanged the subject token, as of now; None if it was deleted.
    """

    actor_name: str | None = None
    client_name: str | None = None


class MySession(SignInSession, frozen=True, kw_only=True, rename="camel"):
    """A browser in which the person is signed in. Its repr hides where.

    Attributes:
        is_current: Whether the access token of the request comes from it.
    """

    is_current: bool = False


class MyFactors(Factors, frozen=True, kw_only=True, rename="camel"):
    """The factors that the person has set up.

    Attributes:
        can_add: Which types the person can set up, on the pages of the sign-in.
        is_required: Whether everyone here needs one, so that the last one cannot be removed.
    """

    can_add: tuple[str, ...] = ()
    is_required: bool = False


class MyIdentity(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An identity of the person at a provider: how they sign in there is how they sign in here.

    Attributes:
        id: Unique id.
        provider_name: Name of the provider.
        created_at: When it was linked, milliseconds since the epoch, UTC.
        last_used_at: Time of the last sign-in with it, milliseconds since the epoch, UTC; None if there was none.
    """

    id: str
    provider_name: str
    created_at: int
    last_used_at: int | None = None


class MyConsent(Consent, frozen=True, kw_only=True, rename="camel"):
    """What the person has consented to for one application.

    Attributes:
        application_name: Name of the application, as of now; empty if it is not known yet.
    """

    application_name: str = ""

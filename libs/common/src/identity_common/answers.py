"""Response bodies that two services render for a resource that one of them owns. Pure."""

from identity_common.fields import Answer, FreeFormAnswer


class UserAnswer(Answer):
    """A user, without the password.

    Attributes:
        tenant_id: Id of the tenant.
        id: Id of the user; ``sub`` of its tokens.
        username: Unique name for signing in, regardless of case.
        primary_email: Unique e-mail address, regardless of case.
        primary_phone: Unique phone number.
        name: Full name.
        avatar: URL of a picture.
        external_id: Unique id of the user in another system.
        custom_data: Free-form object for the integrator.
        profile: Free-form object with more data about the user. ``familyName``, ``givenName``, ``middleName``,
            ``nickname``, ``preferredUsername``, ``profile``, ``website``, ``gender``, ``birthdate``, ``zoneinfo`` and
            ``locale`` become claims of OpenID Connect with the scope ``profile``, the object ``address`` with
            ``address``.
        is_email_verified: Whether the e-mail address is verified, by a mailed link or by an administrator;
            ``email_verified`` in ID tokens.
        is_suspended: Whether the user is suspended: it cannot sign in, and its tokens are inactive.
        has_password: Whether the user has a password.
        created_at: Time of creation, milliseconds since the epoch.
        updated_at: Time of the last change, milliseconds since the epoch.
    """

    tenant_id: str
    id: str
    username: str | None
    primary_email: str | None
    primary_phone: str | None
    name: str | None
    avatar: str | None
    external_id: str | None
    custom_data: FreeFormAnswer
    profile: FreeFormAnswer
    is_email_verified: bool
    is_suspended: bool
    has_password: bool
    created_at: int
    updated_at: int

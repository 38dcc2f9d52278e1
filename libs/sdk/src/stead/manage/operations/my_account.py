"""A person's own account: with their userinfo token, from a sign-in with the scope ``account``."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from stead._transport.api import IfMatch, api_path, command, decode, json_request
from stead._transport.operations import Operation
from stead.manage.lists import MAX_PAGE_SIZE, CursorRequest, ListRequest
from stead.manage.operations._bodies import flag, patch_body
from stead.models import Factor, MyAccount, MyConsent, MyFactors, MyIdentity, MyImpersonation, MySession

_ACCOUNT = "my-account"


def get_my_account() -> Operation[MyAccount]:
    """Return the person's account."""
    return decode((yield json_request("GET", api_path(_ACCOUNT))), MyAccount)


def update_my_account(
    *,
    username: str | UnsetType | None = UNSET,
    name: str | UnsetType | None = UNSET,
    avatar: str | UnsetType | None = UNSET,
    if_match: IfMatch = UNSET,
) -> Operation[MyAccount]:
    """Change the given members; None clears a member.

    Raises:
        InvalidInput: A member of the request is invalid.
        RecentSignInRequired: ``username`` is given, and the person signed in too long ago.
        Conflict: ``user.username_already_in_use``, ``entity.invalid_name``; or ``user.last_identifier``: nothing would
            remain to sign in with.
        VersionMismatch: ``if_match`` does not name the current version.
    """
    body = patch_body(username=username, name=name, avatar=avatar)
    return decode((yield json_request("PATCH", api_path(_ACCOUNT), body, if_match=if_match)), MyAccount)


def update_my_profile(
    *,
    family_name: str | UnsetType | None = UNSET,
    given_name: str | UnsetType | None = UNSET,
    middle_name: str | UnsetType | None = UNSET,
    nickname: str | UnsetType | None = UNSET,
    preferred_username: str | UnsetType | None = UNSET,
    profile: str | UnsetType | None = UNSET,
    website: str | UnsetType | None = UNSET,
    gender: str | UnsetType | None = UNSET,
    birthdate: str | UnsetType | None = UNSET,
    zoneinfo: str | UnsetType | None = UNSET,
    locale: str | UnsetType | None = UNSET,
) -> Operation[MyAccount]:
    """Change the given members of the profile; None removes a member.

    Raises:
        InvalidInput: A member of the request is invalid.
    """
    body = patch_body(
        familyName=family_name,
        givenName=given_name,
        middleName=middle_name,
        nickname=nickname,
        preferredUsername=preferred_username,
        profile=profile,
        website=website,
        gender=gender,
        birthdate=birthdate,
        zoneinfo=zoneinfo,
        locale=locale,
    )
    return decode((yield json_request("PATCH", api_path(_ACCOUNT, "profile"), body)), MyAccount)


def set_my_password(password: str, *, current_password: str | None = None) -> Operation[None]:
    """Set a new password, which ends all sessions and tokens of the person, those of this client too.

    Args:
        password: 8 to 256 characters.
        current_password: Required if there is one.

    Raises:
        InvalidInput: The password is not acceptable, or the current one is missing.
        RecentSignInRequired: The person signed in too long ago.
        Conflict: ``session.invalid_credentials``: the current password is wrong; or ``user.same_password``.
        TooManyAttempts: Too many current passwords were wrong.
    """
    body = patch_body(currentPassword=UNSET if current_password is None else current_password, password=password)
    return command("POST", api_path(_ACCOUNT, "password"), body)


def change_my_email(email: str) -> Operation[None]:
    """Send a link to a new e-mail address, which becomes the person's once they have followed it.

    Raises:
        InvalidInput: It is not an e-mail address.
        RecentSignInRequired: The person signed in too long ago.
        Conflict: ``mail.not_configured``: the service cannot send mail (``can_change_email``); or
            ``user.signs_in_at_provider``: the present address leads the person to a provider.
        TooManyAttempts: Too many mails were requested for the address, or for the account.
    """
    return command("POST", api_path(_ACCOUNT, "primary-email"), {"email": email})


def get_my_factors() -> Operation[MyFactors]:
    """Return what the person signs in with besides the password, or instead of it."""
    return decode((yield json_request("GET", api_path(_ACCOUNT, "factors"))), MyFactors)


def rename_my_factor(factor_id: str, name: str) -> Operation[Factor]:
    """Name a passkey of the person.

    Raises:
        NotFound: The person has no such passkey; an authenticator app has no name.
        InvalidInput: The name is too long.
        Conflict: ``entity.invalid_name``.
    """
    path = api_path(_ACCOUNT, "factors", factor_id)
    return decode((yield json_request("PATCH", path, {"name": name})), Factor)


def remove_my_factor(factor_id: str) -> Operation[None]:
    """Remove a passkey of the person, or the authenticator app; with the last of them, the recovery codes.

    Raises:
        RecentSignInRequired: The person signed in too long ago, or without a second factor.
        NotFound: The person has no such factor.
        Conflict: ``user.last_factor``: the tenant requires one; or ``user.last_credential``: nothing would remain to
            sign in with.
    """
    return command("DELETE", api_path(_ACCOUNT, "factors", factor_id))


def list_my_identities(*, page_size: int = MAX_PAGE_SIZE) -> ListRequest[MyIdentity]:
    """Iterate over the providers at which the person can sign in, in the order in which they were linked.

    Args:
        page_size: Identities per request, 1 to 100.
    """
    return ListRequest(api_path(_ACCOUNT, "identities"), MyIdentity, page_size=page_size)


def remove_my_identity(identity_id: str) -> Operation[None]:
    """Let the person no longer sign in at a provider; its groups' roles, and its sessions here, end.

    Raises:
        RecentSignInRequired: The person signed in too long ago.
        NotFound: The person has no such identity.
        Conflict: ``user.last_way_in``: nothing would remain to sign in with, or only what is closed to the people of
            the provider.
    """
    return command("DELETE", api_path(_ACCOUNT, "identities", identity_id))


def list_my_impersonations(
    *, active: bool | None = None, page_size: int = MAX_PAGE_SIZE
) -> CursorRequest[MyImpersonation]:
    """Iterate over the impersonations in which the person is the subject, newest first.

    Args:
        active: Only those that have neither ended nor expired (true), or only the others (false).
        page_size: Impersonations per request, 1 to 100.
    """
    path = api_path(_ACCOUNT, "impersonations")
    return CursorRequest(path, MyImpersonation, page_size=page_size, params={"active": flag(active)})


def end_my_impersonation(impersonation_id: str, *, reason: str | None = None) -> Operation[None]:
    """End an impersonation in which the person is the subject; see ``client.impersonations.end``.

    Args:
        impersonation_id: From the list.
        reason: Why, for the audit trail and the story of the impersonation, at most 256 characters.

    Raises:
        NotFound: The person is not the subject, or the id is unknown.
        Conflict: ``impersonation.too_many_ends``.
    """
    body = None if reason is None else {"reason": reason}
    return command("POST", api_path(_ACCOUNT, "impersonations", impersonation_id, "end"), body)


def list_my_sessions(*, page_size: int = MAX_PAGE_SIZE) -> ListRequest[MySession]:
    """Iterate over the sessions in which the person is signed in; the last to sign in come first.

    Args:
        page_size: Sessions per request, 1 to 100.
    """
    return ListRequest(api_path(_ACCOUNT, "sessions"), MySession, page_size=page_size)


def end_my_session(session_id: str) -> Operation[None]:
    """End a session of the person, as signing out does; see ``client.users.end_session``.

    With the current session, the tokens of this client end too.

    Raises:
        NotFound: The person has no such session.
    """
    return command("DELETE", api_path(_ACCOUNT, "sessions", session_id))


def list_my_consents() -> Operation[list[MyConsent]]:
    """Return what the person has consented to, one for each application."""
    return decode((yield json_request("GET", api_path(_ACCOUNT, "consents"))), list[MyConsent])


def withdraw_my_consent(application_id: str) -> Operation[None]:
    """Withdraw the person's consent to an application; see ``client.users.withdraw_consent``.

    Args:
        application_id: From ``consents``.

    Raises:
        NotFound: The person has not consented to anything for it.
    """
    return command("DELETE", api_path(_ACCOUNT, "consents", application_id))

"""Users, their API roles, consents, factors and sessions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType, structs

from stead._transport.api import (
    IfMatch,
    api_path,
    command,
    decode,
    json_request,
    require_success,
    unexpected_answer,
)
from stead._transport.operations import Operation, Request
from stead.manage.lists import MAX_PAGE_SIZE, ListRequest
from stead.manage.operations._bodies import FreeForm, SearchField, create_body, patch_body
from stead.models import (
    Consent,
    EffectivePermissions,
    EnrolmentCode,
    Factors,
    ImportedUser,
    Invitation,
    OpenInvitation,
    PermissionsInOrganization,
    Role,
    SignInSession,
    User,
)

PasswordAlgorithm: TypeAlias = Literal["Argon2id", "Argon2i", "Argon2d", "Bcrypt", "Scrypt", "PBKDF2"]
"""The function that made the digest of a password, in its usual notation: ``$2b$12$…``, ``$argon2id$v=19$…``."""


def create_user(
    *,
    username: str | None = None,
    password: str | None = None,
    password_digest: str | None = None,
    password_algorithm: PasswordAlgorithm | None = None,
    name: str | None = None,
    primary_email: str | None = None,
    primary_phone: str | None = None,
    avatar: str | None = None,
    external_id: str | None = None,
    is_email_verified: bool | None = None,
    allows_password: bool | None = None,
    custom_data: FreeForm | None = None,
    profile: FreeForm | None = None,
) -> Operation[User]:
    """Create a user.

    ::

        user = client.users.create(username="ada", primary_email="ada@example.com")

    Raises:
        Conflict: ``user.username_already_in_use``, ``user.email_already_in_use``, ``user.phone_already_in_use``,
            ``user.external_id_already_in_use``; ``user.invalid_phone``: not in international form (E.164);
            ``entity.invalid_name``; or ``user.unacceptable_password_digest``.
        InvalidInput: A member of the request is invalid.
    """
    body = create_body(
        username=username,
        password=password,
        passwordDigest=password_digest,
        passwordAlgorithm=password_algorithm,
        name=name,
        primaryEmail=primary_email,
        primaryPhone=primary_phone,
        avatar=avatar,
        externalId=external_id,
        isEmailVerified=is_email_verified,
        allowsPassword=allows_password,
        customData=custom_data,
        profile=profile,
    )
    return decode((yield json_request("POST", api_path("users"), body)), User)


def import_users(rows: Iterable[Mapping[str, Any]]) -> Operation[list[ImportedUser]]:
    """Move in users from another system, with the digests of their passwords; return what became of each.

    ::

        row = {"externalId": "auth0|4711", "username": "ada", "passwordDigest": "$2b$…", "passwordAlgorithm": "Bcrypt"}
        client.users.import_users([row])

    A user whose external id exists is kept as it is, so an import may be repeated.

    Args:
        rows: 1 to 10,000 users, in the words of the API; together at most 4 MiB of JSON.

    Raises:
        InvalidInput: There are no rows, or too many.
        Unavailable: Nothing was imported. If something was, the others are ``failed``: import them again.
    """
    content = b"\n".join(msgspec.json.encode(row) for row in rows)
    answer = yield Request(
        method="POST",
        path=api_path("users", "import"),
        content=content,
        headers={"Content-Type": "application/x-ndjson"},
    )
    require_success(answer)
    try:
        return msgspec.json.Decoder(ImportedUser).decode_lines(answer.content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise unexpected_answer("the response does not have the expected form", answer) from None


def get_user(user_id: str) -> Operation[User]:
    """Return a user.

    Raises:
        NotFound: The id is unknown.
    """
    return decode((yield json_request("GET", api_path("users", user_id))), User)


def list_users(
    *,
    search: str | None = None,
    exact: Mapping[SearchField, str] | None = None,
    like: Mapping[SearchField, str] | None = None,
    joint: Literal["and", "or"] = "and",
    ids: Iterable[str] = (),
    without_role_id: str | None = None,
    without_organization_id: str | None = None,
    page_size: int = MAX_PAGE_SIZE,
) -> ListRequest[User]:
    """Iterate over the users, ordered by name.

    ::

        client.users.list(exact={"primaryEmail": "ada@example.com"})
        client.users.list(like={"username": "ada%"})

    Args:
        search: Only users with this text in their ids, name, user name, e-mail address or phone number.
        exact: Only users whose fields have these values, ignoring case except for the ids.
        like: The same; each ``%`` stands for any text.
        joint: Whether all of these conditions must hold, or one.
        ids: Only users with one of these ids, 100 at most; empty for all.
        without_role_id: Only users that do not have this API role.
        without_organization_id: Only users that are not members of this organization.
        page_size: Items per request, 1 to 100.

    Raises:
        ValueError: A field is in both ``exact`` and ``like``.
        InvalidInput: A text is empty or longer than 128 characters.
        Conflict: ``user.search_too_slow``; ``organization.too_many_members`` if the organization of
            ``without_organization_id`` has more than 200,000.
    """
    params: dict[str, str | list[str] | None] = {
        "search": search,
        "ids": list(ids),
        "excludeRoleId": without_role_id,
        "excludeOrganizationId": without_organization_id,
    }
    for mode, texts in (("exact", exact or {}), ("like", like or {})):
        for field, text in texts.items():
            if f"mode.{field}" in params:
                raise ValueError(f"{field} is in both exact and like")
            params |= {f"search.{field}": text, f"mode.{field}": mode}
    if exact or like:
        params["joint"] = joint
    return ListRequest(api_path("users"), User, page_size=page_size, params=params)


def update_user(
    user_id: str,
    *,
    username: str | UnsetType | None = UNSET,
    name: str | UnsetType | None = UNSET,
    primary_email: str | UnsetType | None = UNSET,
    primary_phone: str | UnsetType | None = UNSET,
    avatar: str | UnsetType | None = UNSET,
    external_id: str | UnsetType | None = UNSET,
    is_email_verified: bool | UnsetType = UNSET,
    allows_password: bool | UnsetType = UNSET,
    custom_data: FreeForm | UnsetType | None = UNSET,
    profile: FreeForm | UnsetType | None = UNSET,
    if_match: IfMatch = UNSET,
) -> Operation[User]:
    """Change the given members; None clears a member.

    Raises:
        NotFound: The id is unknown.
        RecentSignInRequired: The token is the user's own, who signed in too long ago to change this.
        InvalidInput: A member of the request is invalid.
        Conflict: ``user.username_already_in_use``, ``user.email_already_in_use``, ``user.phone_already_in_use``,
            ``user.external_id_already_in_use``; ``user.invalid_phone``: not in international form (E.164);
            ``entity.invalid_name``; or ``user.last_administrator``.
        VersionMismatch: ``if_match`` does not name the current version.
    """
    body = patch_body(
        username=username,
        name=name,
        primaryEmail=primary_email,
        primaryPhone=primary_phone,
        avatar=avatar,
        externalId=external_id,
        isEmailVerified=is_email_verified,
        allowsPassword=allows_password,
        customData=custom_data,
        profile=profile,
    )
    return decode((yield json_request("PATCH", api_path("users", user_id), body, if_match=if_match)), User)


def delete_user(user_id: str, *, if_match: IfMatch = UNSET) -> Operation[None]:
    """Delete a user.

    Their tokens become inactive at introspection; verifiers with the not-valid
    feed refuse them within a second, others accept them until they expire.

    Raises:
        NotFound: The id is unknown.
        Conflict: ``user.last_administrator``.
        VersionMismatch: ``if_match`` does not name the current version.
    """
    return command("DELETE", api_path("users", user_id), if_match=if_match)


def suspend_user(user_id: str, *, suspended: bool = True) -> Operation[None]:
    """Suspend a user, or lift the suspension.

    Earlier tokens become, and stay, inactive at introspection; verifiers with the not-valid feed refuse them within a
    second, others accept them until they expire.

    Raises:
        NotFound: The id is unknown.
        Conflict: ``user.last_administrator``.
    """
    return command("PATCH", api_path("users", user_id, "is-suspended"), {"isSuspended": suspended})


def set_user_password(user_id: str, password: str) -> Operation[None]:
    """Set a user's password, which lifts the limit of sign-in attempts.

    Earlier tokens become inactive at introspection; verifiers with the not-valid
    feed refuse them within a second, others accept them until they expire.

    Raises:
        NotFound: The id is unknown.
        RecentSignInRequired: The token is the user's own, who signed in too long ago to change this.
        InvalidInput: The password is not acceptable.
    """
    return command("PATCH", api_path("users", user_id, "password"), {"password": password})


def invite_user(user_id: str, *, minutes: int | None = None) -> Operation[Invitation]:
    """Invite a user to choose a password, in place of an earlier invitation of this user.

    The invitation can be accepted once, until it expires, the user's password is set otherwise, or the user is
    suspended; see ``accept_invitation``.

    Args:
        user_id: Who is invited.
        minutes: How long it is valid; a day by default.

    Raises:
        NotFound: The id is unknown.
        RecentSignInRequired: The token is the user's own, who signed in too long ago to change this.
        InvalidInput: ``minutes`` is less than 1, or more than 30 days.
    """
    body = create_body(minutes=minutes)
    return decode((yield json_request("POST", api_path("users", user_id, "invitation"), body)), Invitation)


def withdraw_user_invitation(user_id: str) -> Operation[None]:
    """Withdraw the invitation of a user, if there is one.

    Raises:
        NotFound: The id is unknown.
    """
    return command("DELETE", api_path("users", user_id, "invitation"))


def list_invitations(
    *,
    search: str | None = None,
    status: Literal["Pending", "Expired"] | None = None,
    user_id: str | None = None,
    page_size: int = MAX_PAGE_SIZE,
) -> ListRequest[OpenInvitation]:
    """Iterate over the invitations that were not accepted, in the order in which they expire.

    Args:
        search: Only of users with this text in their id, name, user name, e-mail address or phone number.
        status: Only those that are pending, or that have expired.
        user_id: Only the one of this user.
        page_size: Items per request, 1 to 100.

    Raises:
        InvalidInput: A text is empty or longer than 128 characters.
    """
    params = {"q": search, "status": status, "userId": user_id}
    return ListRequest(api_path("invitations"), OpenInvitation, page_size=page_size, params=params)


def clear_user_sign_in_attempts(user_id: str) -> Operation[None]:
    """Reset the count of wrong passwords, so that a user may sign in again at once.

    Raises:
        NotFound: The id is unknown.
    """
    return command("POST", api_path("users", user_id, "sign-in-attempts", "clear"))


def send_user_verification_email(user_id: str) -> Operation[None]:
    """Mail a link to a user's e-mail address, in place of an earlier one; opening it, and a click there, verify it.

    Raises:
        NotFound: The id is unknown.
        Conflict: The user has no e-mail address, or it is verified; or the system sends no mail.
        Unavailable: The address was sent too many mails a moment ago.
    """
    return command("POST", api_path("users", user_id, "verification-email"))


def list_user_roles(user_id: str, *, page_size: int = MAX_PAGE_SIZE) -> ListRequest[Role]:
    """Iterate over a user's API roles, ordered by name.

    Raises:
        NotFound: The user does not exist.
    """
    return ListRequest(api_path("users", user_id, "roles"), Role, page_size=page_size)


def assign_user_roles(user_id: str, role_ids: Iterable[str]) -> Operation[None]:
    """Assign API roles to a user, in addition to their other roles.

    Raises:
        NotFound: The user does not exist.
        Conflict: A role does not exist or is for applications.
    """
    return command("POST", api_path("users", user_id, "roles"), {"roleIds": list(role_ids)})


def replace_user_roles(user_id: str, role_ids: Iterable[str], *, if_match: IfMatch = UNSET) -> Operation[None]:
    """Make these the only API roles of a user.

    Raises:
        NotFound: The user does not exist.
        Conflict: A role does not exist or is for applications; ``user.last_administrator``.
        VersionMismatch: ``if_match`` does not name the current version.
    """
    return command("PUT", api_path("users", user_id, "roles"), {"roleIds": list(role_ids)}, if_match=if_match)


def remove_user_role(user_id: str, role_id: str) -> Operation[None]:
    """Remove an API role from a user.

    Raises:
        NotFound: The user does not exist, or does not have the role.
        Conflict: ``user.last_administrator``.
    """
    return command("DELETE", api_path("users", user_id, "roles", role_id))


def get_user_effective_permissions(
    user_id: str, *, search: str | None = None, page: int | None = None, page_size: int = 20
) -> Operation[EffectivePermissions]:
    """Return all permissions of a user, each with the roles that it comes from, as tokens may carry them now.

    ::

        for resource in client.users.effective_permissions(user.id).resources:
            for scope in resource.scopes:
                print(resource.indicator, scope.name, [role.name for role in scope.roles])

    The result has every organization, from as many requests as there are pages of them, unless one page is named.

    Args:
        user_id: The user.
        search: Only organizations with this text in their id, name or description; all resources in any case.
        page: Only this page of the organizations, from 1.
        page_size: Organizations per request, 1 to 100; fewer if their permissions are very many.

    Raises:
        NotFound: The user does not exist.
        Conflict: ``user.too_many_permissions``: more than 50,000 in one request, each counted once per role.
        Unavailable: template-service, which knows the organizations, does not answer.
    """
    path = api_path("users", user_id, "effective-permissions")
    params: dict[str, str | int] = {"page_size": page_size} | ({} if search is None else {"q": search})
    organizations: list[PermissionsInOrganization] = []
    for number in count(page or 1):
        answer = yield json_request("GET", path, params={"page": number, **params})
        found = decode(answer, EffectivePermissions)
        organizations += found.organizations
        if page is not None or "next" not in answer.links:
            break
        if not found.organizations:
            raise unexpected_answer("an empty page has a next one", answer)
    total = answer.headers.get("Total-Number", "")
    counted = int(total) if total.isascii() and total.isdecimal() else len(organizations)
    return structs.replace(found, organizations=tuple(organizations), organization_count=counted)


def list_user_consents(user_id: str) -> Operation[list[Consent]]:
    """Return the consents of a user, one per application.

    Raises:
        NotFound: The user does not exist.
    """
    return decode((yield json_request("GET", api_path("users", user_id, "consents"))), list[Consent])


def withdraw_user_consent(user_id: str, application_id: str) -> Operation[None]:
    """Withdraw a user's consent for an application.

    The tokens that it obtained for the user become inactive at introspection; verifiers with the not-valid feed refuse
    them within a second, others accept them until they expire.

    Raises:
        NotFound: The user has given this application no consent.
    """
    return command("DELETE", api_path("users", user_id, "consents", application_id))


def get_user_factors(user_id: str) -> Operation[Factors]:
    """Return what a user signs in with besides the password, or instead of it.

    Raises:
        NotFound: The user does not exist.
    """
    return decode((yield json_request("GET", api_path("users", user_id, "factors"))), Factors)


def remove_user_factor(user_id: str, factor_id: str) -> Operation[None]:
    """Remove a passkey of a user, or the authenticator app; with the last of them, the recovery codes.

    Raises:
        NotFound: The user has no such factor.
        Conflict: ``user.last_factor``: the tenant requires one, so only a reset removes it;
            ``user.last_administrator``.
    """
    return command("DELETE", api_path("users", user_id, "factors", factor_id))


def reset_user_factors(user_id: str, *, reason: str) -> Operation[None]:
    """Remove all factors and recovery codes of a user who has lost them, and end all sessions.

    Where the tenant requires a second factor, the user sets up a new one at the next sign-in, which needs a code: one
    that is mailed to the verified address, or that of ``create_enrolment_code``.

    Args:
        user_id: The user.
        reason: Why, for the audit trail, at most 256 characters.

    Raises:
        NotFound: The user does not exist.
        InvalidInput: The reason is blank or too long.
        Conflict: ``user.last_administrator``.
    """
    return command("POST", api_path("users", user_id, "factors", "reset"), {"reason": reason})


def create_user_enrolment_code(user_id: str) -> Operation[EnrolmentCode]:
    """Create a code with which a user sets up the first factor, in place of an earlier one.

    Give it to the user in person: with the password, it suffices to sign in as them.

    Raises:
        NotFound: The user does not exist.
        Conflict: ``user.has_factor``: the user has one, and sets up another with it; ``factor.off``: the policy of the
            tenant allows none.
    """
    return decode((yield json_request("POST", api_path("users", user_id, "factors", "enrolment-code"))), EnrolmentCode)


def list_user_sessions(user_id: str, *, page_size: int = MAX_PAGE_SIZE) -> ListRequest[SignInSession]:
    """Iterate over the sessions in which a user is signed in; the last to sign in come first.

    Args:
        user_id: The user.
        page_size: Items per request, 1 to 100.

    Raises:
        NotFound: The user does not exist.
    """
    return ListRequest(api_path("users", user_id, "sessions"), SignInSession, page_size=page_size)


def end_user_session(user_id: str, session_id: str) -> Operation[None]:
    """End a session of a user, as signing out does.

    The tokens that applications obtained in it become inactive at introspection; verifiers with the not-valid feed
    refuse them within a second, others accept access tokens until they expire.

    Raises:
        NotFound: The user has no such session.
    """
    return command("DELETE", api_path("users", user_id, "sessions", session_id))

"""``/api/users``."""

from typing import Final, Literal, get_args

import msgspec
from litestar import Controller, Response, delete, get, patch, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody
from msgspec import Raw

from identity_common.access.own_sign_in import recent_if_own, require_recent_if_own
from identity_common.access.parents import parent_exists
from identity_common.answers import UserAnswer
from identity_common.failures import Invalid, Issue, invalid_input
from identity_common.fields import Answer, FreeFormAnswer
from identity_common.http.json_body import JsonRequest, decode_line
from identity_common.http.listing import PAGED, Listing
from identity_common.http.openapi.declarations import JSON_LINES, PUBLISHES_NOTHING, Filter, documented
from identity_common.http.problems import ErrorBody, error_body
from management_service.memberships import Memberships
from management_service.users.imports import MAX_ROWS, Outcome, Row, UserImports
from management_service.users.rules import (
    CustomData,
    FieldSearch,
    MovedUser,
    NewPassword,
    SearchField,
    SearchMode,
    Suspension,
    UserCreation,
    UserSearch,
    UserUpdate,
)
from management_service.users.service import Users
from management_service.users.store import User

_FIELDS: Final[tuple[SearchField, ...]] = get_args(SearchField)
_JOINT: Final = Filter(
    "joint",
    "Whether all conditions of the search must hold (and), or only one (or, the default).",
    values=("and", "or"),
)
_SEARCH: Final = (
    *(
        Filter(f"search.{field}", f"Only users with this {field}; % matches any text, unless the mode is exact.")
        for field in _FIELDS
    ),
    *(
        Filter(
            f"mode.{field}",
            f"How search.{field} is compared: like (default) or exact.",
            values=get_args(SearchMode),
            hint="regular expressions are refused, as one can keep the database busy: use like with %",
        )
        for field in _FIELDS
    ),
    _JOINT,
)
_WITHOUT_ORGANIZATION: Final = Filter(
    "excludeOrganizationId", "Only users that are not members of this organization, regardless of joint."
)
_IDS: Final = Filter("ids", "Only users with one of these ids, regardless of joint.", is_repeatable=True)
_WITHOUT_ROLE: Final = Filter("excludeRoleId", "Only users that do not hold this API role, regardless of joint.")


def _read_search(listing: Listing) -> UserSearch:
    """Return the conditions that a query names.

    Raises:
        Invalid: A mode is without the text to compare.
    """
    fields, problems = [], []
    for field in _FIELDS:
        text, mode = listing.filter(f"search.{field}"), listing.filter(f"mode.{field}")
        if text is not None:
            fields.append(FieldSearch(field, text, "exact" if mode == "exact" else "like"))
        elif mode is not None:
            problems.append(Issue(path=f"mode.{field}", message=f"requires search.{field}"))
    if problems:
        raise invalid_input(*problems)
    is_joint = listing.filter(_JOINT.name) == "and"
    joint: Literal["and", "or"] = "and" if is_joint else "or"
    return UserSearch(
        listing.page.search,
        tuple(fields),
        joint,
        ids=listing.filters(_IDS.name),
        without_role_id=listing.filter(_WITHOUT_ROLE.name),
    )


_NEW_USER: Final = {
    "username": "alice",
    "primaryEmail": "alice@example.com",
    "password": "correct horse battery staple",
    "name": "Alice",
}


class ManagedUserAnswer(UserAnswer):
    """A user, without the password.

    Attributes:
        allows_password: Whether a password counts although a connector signs the user in at a provider.
    """

    allows_password: bool


class ImportedUser(Answer, omit_defaults=True):
    """What became of a line of an import.

    Attributes:
        line: Number of the line, from 1; blank ones do not count.
        status: ``created``; ``existing``: a user has the external id, and is kept as it is; ``refused``: ``error`` says
            what is wrong with the line; ``failed``: the line is not at fault, and the same import completes it later.
        external_id: The external id in the line, if it could be read.
        id: Id of the user with the external id.
        error: Why there is none.
    """

    line: int
    status: Literal["created", "existing", "refused", "failed"]
    external_id: str | None = None
    id: str | None = None
    error: ErrorBody | None = None


_encode: Final = msgspec.json.Encoder().encode


def _moved_user(line: bytes) -> Row:
    try:
        return decode_line(line, MovedUser)
    except Invalid as failure:
        return failure


def _imported(number: int, outcome: Outcome) -> ImportedUser:
    error = None if outcome.failure is None else error_body(outcome.failure)
    return ImportedUser(
        line=number, status=outcome.status, external_id=outcome.external_id, id=outcome.user_id, error=error
    )


def user_answer(user: User) -> ManagedUserAnswer:
    """Return a user as the API shows it."""
    return ManagedUserAnswer(
        tenant_id=user.tenant_id,
        id=user.id,
        username=user.username,
        primary_email=user.primary_email,
        primary_phone=user.primary_phone,
        name=user.name,
        avatar=user.avatar,
        external_id=user.external_id,
        custom_data=Raw(user.custom_data.encode()),
        profile=Raw(user.profile.encode()),
        is_email_verified=user.is_email_verified,
        allows_password=user.allows_password,
        is_suspended=user.is_suspended,
        has_password=user.has_password,
        created_at=user.created_at,
        updated_at=user.updated_at,
    )


class UserController(Controller):
    """Users."""

    path = "/users"
    tags = ("Users",)
    dependencies = PAGED

    @post(
        "/",
        operation_id="CreateUser",
        summary="Create a user",
        status_code=200,
        opt=documented(body_example=_NEW_USER),
    )
    async def create_user(self, data: JSONBody[UserCreation], users: NamedDependency[Users]) -> ManagedUserAnswer:
        """Create a user; every field is optional."""
        return user_answer(await users.create(data))

    @post(
        "/import",
        operation_id="ImportUsers",
        summary="Import users",
        status_code=200,
        opt=documented(
            body=MovedUser,
            body_media_type=JSON_LINES,
            answer=ImportedUser,
            media_type=JSON_LINES,
            example={
                "line": 1,
                "status": "created",
                "externalId": "auth0|507f1f77bcf86cd799439011",
                "id": "8m4b7n1c5z9l",
            },
            never=(422,),
        ),
    )
    async def import_users(self, request: JsonRequest, user_imports: NamedDependency[UserImports]) -> Response[bytes]:
        """Create a user for each line of the body, a JSON object, with the default roles; 10,000 lines at most.

        The response has a line for each, in order. A line that is at fault stops no other. A user that has the external
        id already is kept as it is: the same import may be repeated, and completes one that was interrupted.
        """
        lines = await request.lines(at_most=MAX_ROWS)
        outcomes = await user_imports.run(map(_moved_user, lines))
        return Response(
            b"".join(_encode(_imported(number, each)) + b"\n" for number, each in enumerate(outcomes, 1)),
            media_type=JSON_LINES,
        )

    @get(
        "/",
        operation_id="ListUsers",
        summary="List users",
        opt=documented(filters=(*_SEARCH, _IDS, _WITHOUT_ORGANIZATION, _WITHOUT_ROLE), refuses=(422,)),
    )
    async def list_users(
        self,
        listing: NamedDependency[Listing],
        users: NamedDependency[Users],
        memberships: NamedDependency[Memberships],
    ) -> Response[list[ManagedUserAnswer]]:
        """List users by name; ``q`` searches in ids, names, user names, e-mail addresses and phone numbers.

        Ids include external ids. ``search.<field>`` compares one field, ignoring case except in ids; several conditions
        are joined by ``joint``. A search that takes longer than a second is refused.
        """
        search = _read_search(listing)
        members = await memberships.members(listing.filter(_WITHOUT_ORGANIZATION.name), "user")
        found, total = await users.list_users(listing.page, search, without=members)
        return listing.answer([user_answer(user) for user in found], total)

    @get("/{user_id:str}", operation_id="GetUser", summary="Get a user")
    async def get_user(self, user_id: FromPath[str], users: NamedDependency[Users]) -> ManagedUserAnswer:
        """Get one user."""
        return user_answer(await users.get(user_id))

    @patch("/{user_id:str}", operation_id="UpdateUser", summary="Update a user")
    async def update_user(
        self, user_id: FromPath[str], request: JsonRequest, data: JSONBody[UserUpdate], users: NamedDependency[Users]
    ) -> ManagedUserAnswer:
        """Change the given fields; null clears one.

        The last administrator keeps a user name, e-mail address or telephone number to sign in with. Users who change
        what they sign in with themselves must have signed in at most 600 seconds ago.
        """
        if data.changes_sign_in:
            require_recent_if_own(request)
        return user_answer(await users.update(user_id, data))

    @delete(
        "/{user_id:str}",
        operation_id="DeleteUser",
        summary="Delete a user",
        status_code=204,
        opt=documented(refuses=(422,)),
    )
    async def delete_user(self, user_id: FromPath[str], users: NamedDependency[Users]) -> None:
        """Delete a user. The last administrator is refused.

        Its tokens become inactive at introspection; APIs that follow the not-valid feed refuse them within a second,
        others accept them until they expire.
        """
        await users.delete(user_id)

    @get("/{user_id:str}/custom-data", operation_id="GetUserCustomData", summary="Get a user's custom data")
    async def get_custom_data(self, user_id: FromPath[str], users: NamedDependency[Users]) -> FreeFormAnswer:
        """Get the custom data of one user."""
        return Raw((await users.get(user_id)).custom_data.encode())

    @patch(
        "/{user_id:str}/custom-data",
        operation_id="UpdateUserCustomData",
        summary="Update a user's custom data",
        opt=documented(never=(422,)),
        guards=[parent_exists("user")],
    )
    async def merge_custom_data(
        self, user_id: FromPath[str], data: JSONBody[CustomData], users: NamedDependency[Users]
    ) -> Response[FreeFormAnswer]:
        """Change the given fields; null removes one. Returns all custom data."""
        user = await users.merge_custom_data(user_id, data.custom_data)
        return Response(Raw(user.custom_data.encode()))

    @patch(
        "/{user_id:str}/is-suspended",
        operation_id="UpdateUserIsSuspended",
        summary="Suspend a user",
        guards=[parent_exists("user")],
    )
    async def set_suspended(
        self, user_id: FromPath[str], data: JSONBody[Suspension], users: NamedDependency[Users]
    ) -> ManagedUserAnswer:
        """Suspend a user, which ends its sessions, or lift the suspension.

        Earlier tokens become inactive at introspection, for good; APIs that follow the not-valid feed refuse them
        within a second, others accept them until they expire.

        The last administrator is refused: the last user who can sign in with a password and holds the Management API's
        scope ``all`` by a role.
        """
        return user_answer(await users.set_suspended(user_id, is_suspended=data.is_suspended))

    @patch(
        "/{user_id:str}/password",
        operation_id="UpdateUserPassword",
        summary="Set a user's password",
        opt=documented(never=(422,)),
        guards=[parent_exists("user"), recent_if_own],
    )
    async def set_password(
        self, user_id: FromPath[str], data: JSONBody[NewPassword], users: NamedDependency[Users]
    ) -> ManagedUserAnswer:
        """Set a new password, which ends earlier sessions and resets the limit on sign-in attempts.

        Users who set their own must have signed in at most 600 seconds ago.

        Earlier tokens become inactive at introspection; APIs that follow the not-valid feed refuse them within a
        second, others accept them until they expire.
        """
        return user_answer(await users.set_password(user_id, data.password))

    @post(
        "/{user_id:str}/sign-in-attempts/clear",
        operation_id="ClearUserSignInAttempts",
        summary="Clear a user's sign-in attempts",
        status_code=204,
        opt=PUBLISHES_NOTHING,
    )
    async def clear_sign_in_attempts(self, user_id: FromPath[str], users: NamedDependency[Users]) -> None:
        """Reset the count of wrong passwords, so that the user may sign in again at once."""
        await users.clear_sign_in_attempts(user_id)

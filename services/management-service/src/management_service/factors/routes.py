"""``/api/users/{userId}/factors`` for administrators, and ``/api/my-account/factors`` for the user.

Users set factors up on the pages of the sign-in, where their browser and the challenges are.
"""

from typing import Annotated, Final

import msgspec
from litestar import Controller, delete, get, patch, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody

from identity_common.access.management_api import admitted_caller
from identity_common.access.own_sign_in import ACCOUNT, ACCOUNT_FACTORS, own_id
from identity_common.access.parents import parent_exists
from identity_common.audited_request import audit_reason
from identity_common.authentication import FactorKind
from identity_common.failures import Issue, invalid_input
from identity_common.fields import Answer, Body
from identity_common.http.json_body import JsonRequest
from identity_common.http.openapi.declarations import documented
from identity_common.names import MAX_NAME_CHARACTERS, is_blank
from management_service.factors.service import MAX_REASON, Factor, Factors, FactorsOfUser

_FACTOR: Final = {
    "id": "m5vq8x2kd7w0z3n9r6t1y",
    "type": "passkey",
    "name": "iCloud Keychain",
    "createdAt": 1_790_000_000_000,
    "lastUsedAt": 1_790_086_400_000,
    "isBackedUp": True,
}
_FACTORS: Final = {"factors": [_FACTOR], "recoveryCodes": 10}


class FactorAnswer(Answer):
    """What a user signs in with besides a password, or instead of it.

    Attributes:
        id: Id of the factor.
        type: ``passkey``, or ``authenticator``: an app that shows codes (RFC 6238).
        name: How the user calls a passkey; empty for an authenticator app.
        created_at: When it was set up, milliseconds since the epoch.
        last_used_at: When the user last signed in with it, milliseconds since the epoch; null if never.
        is_backed_up: Whether a passkey is kept in a service that synchronizes it, and so outlives its device.
    """

    id: str
    type: FactorKind
    name: str
    created_at: int
    last_used_at: int | None
    is_backed_up: bool


class FactorsAnswer(Answer):
    """The factors that a user has set up.

    Attributes:
        factors: In the order in which they were set up.
        recovery_codes: How many recovery codes are left; each replaces a second factor once.
    """

    factors: list[FactorAnswer]
    recovery_codes: int


class OwnFactorsAnswer(FactorsAnswer):
    """The factors that the caller has set up.

    Attributes:
        factors: In the order in which they were set up.
        recovery_codes: How many recovery codes are left; each replaces a second factor once.
        can_add: Which types the user can set up: none where the tenant's policy is ``off``.
        is_required: Whether the tenant requires a second factor, so that the last one cannot be removed.
    """

    can_add: list[FactorKind]
    is_required: bool


class FactorsReset(Body):
    """Why the factors of a user are removed.

    Attributes:
        reason: For the audit trail; not blank.
    """

    reason: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_REASON)]


class FactorName(Body):
    """The name of a passkey.

    Attributes:
        name: Of visible characters.
    """

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME_CHARACTERS)]


class EnrolmentCodeAnswer(Answer):
    """A new enrolment code, shown once.

    Attributes:
        code: Its value, which the user types when they set up the first factor.
        expires_at: When it expires, milliseconds since the epoch.
    """

    code: str
    expires_at: int


def _factor(factor: Factor) -> FactorAnswer:
    return FactorAnswer(
        id=factor.id,
        type=factor.kind,
        name=factor.name,
        created_at=factor.created_at,
        last_used_at=factor.last_used_at,
        is_backed_up=factor.is_backed_up,
    )


def _factors(found: FactorsOfUser) -> FactorsAnswer:
    return FactorsAnswer(factors=[_factor(each) for each in found.factors], recovery_codes=found.recovery_codes)


class FactorController(Controller):
    """The factors of a user."""

    path = "/users/{user_id:str}/factors"
    tags = ("Users",)
    guards = (parent_exists("user"),)

    @get(
        "/",
        operation_id="GetUserFactors",
        summary="Get the factors of a user",
        opt=documented(example=_FACTORS),
    )
    async def get_factors(self, user_id: FromPath[str], factors: NamedDependency[Factors]) -> FactorsAnswer:
        """Get the passkeys and the authenticator app of a user, and how many recovery codes are left."""
        return _factors(await factors.of_user(user_id))

    @delete(
        "/{factor_id:str}",
        operation_id="DeleteUserFactor",
        summary="Remove a factor of a user",
        status_code=204,
        opt=documented(refuses=(422,)),
    )
    async def remove(self, user_id: FromPath[str], factor_id: FromPath[str], factors: NamedDependency[Factors]) -> None:
        """Remove a passkey or the authenticator app; with the last of them, the recovery codes.

        The user is told by mail. Sessions go on. The last factor is refused where the tenant requires one: a reset
        removes it, and says why. So is the last passkey of the last administrator, if there is no password. The
        caller's own factors are refused: the account page removes them, and asks for a recent sign-in with one.
        """
        await factors.remove(user_id, factor_id)

    @post(
        "/reset",
        operation_id="ResetUserFactors",
        summary="Reset the factors of a user",
        status_code=204,
        opt=documented(refuses=(422,)),
    )
    async def reset(
        self, user_id: FromPath[str], data: JSONBody[FactorsReset], factors: NamedDependency[Factors]
    ) -> None:
        """Remove all factors, recovery codes and enrolment codes of a user who has lost them, and end all sessions.

        The user is told by mail. Earlier tokens become inactive at introspection; APIs that follow the not-valid feed
        refuse them within a second, others accept them until they expire. Where the tenant requires a second factor,
        the user sets up a new one at the next sign-in, with a code that is mailed to the verified address, or with an
        enrolment code. The caller's own factors are refused: another administrator resets them.
        """
        if is_blank(data.reason):
            raise invalid_input(Issue(path="reason", message="must not be blank"))
        audit_reason(data.reason)
        await factors.reset(user_id)

    @post(
        "/enrolment-code",
        operation_id="CreateUserEnrolmentCode",
        summary="Create an enrolment code for a user",
        status_code=200,
        opt=documented(example={"code": "7K2M-W0ZQ-93RT-X5VB-8NHD", "expiresAt": 1_790_086_400_000}, refuses=(422,)),
    )
    async def create_enrolment_code(
        self, user_id: FromPath[str], factors: NamedDependency[Factors]
    ) -> EnrolmentCodeAnswer:
        """Create a code with which a user sets up the first factor; it is shown once, and replaces an earlier one.

        It is valid for a day, once. A password alone does not suffice to set up the first factor: a thief with the
        password would otherwise do so before the user. Give the code to the user in person. Refused if the user has a
        factor, which proves more, or if the tenant's policy is ``off``.
        """
        code, expires_at = await factors.create_enrolment_code(user_id)
        return EnrolmentCodeAnswer(code=code, expires_at=expires_at)


class OwnFactorController(Controller):
    """The factors of the user who is signed in."""

    path = "/my-account/factors"
    tags = ("My account",)

    @get(
        "/",
        operation_id="GetOwnFactors",
        summary="Get the user's own factors",
        opt=documented(
            example={**_FACTORS, "canAdd": ["authenticator", "passkey"], "isRequired": False}, own_sign_in=ACCOUNT
        ),
    )
    async def get_factors(self, request: JsonRequest, factors: NamedDependency[Factors]) -> OwnFactorsAnswer:
        """Get the user's passkeys and authenticator app, how many recovery codes are left, and what can be added.

        The user adds factors on the pages of the sign-in: an authorization request with ``action`` leads there.
        """
        found = await factors.of_user(own_id(request))
        return OwnFactorsAnswer(
            **msgspec.structs.asdict(_factors(found)), can_add=list(found.can_add), is_required=found.is_required
        )

    @patch(
        "/{factor_id:str}",
        operation_id="UpdateOwnFactor",
        summary="Name one of the user's own passkeys",
        opt=documented(example=_FACTOR, own_sign_in=ACCOUNT),
    )
    async def rename(
        self,
        factor_id: FromPath[str],
        request: JsonRequest,
        data: JSONBody[FactorName],
        factors: NamedDependency[Factors],
    ) -> FactorAnswer:
        """Change how the user calls a passkey. An authenticator app has no name."""
        return _factor(await factors.rename_own(own_id(request), factor_id, data.name))

    @delete(
        "/{factor_id:str}",
        operation_id="DeleteOwnFactor",
        summary="Remove one of the user's own factors",
        status_code=204,
        opt=documented(own_sign_in=ACCOUNT_FACTORS, refuses=(422,)),
    )
    async def remove(self, factor_id: FromPath[str], request: JsonRequest, factors: NamedDependency[Factors]) -> None:
        """Remove a passkey or the authenticator app; with the last of them, the recovery codes.

        The user is told by mail. The last factor is refused where the tenant requires one, and the last passkey where
        there is no password.
        """
        await factors.remove_own(admitted_caller(request), factor_id)

"""The request body, and its limits."""

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
from msgspec import UNSET, UnsetType

from identity_common.failures import Issue, invalid_input
from identity_common.fields import Body, Ids
from identity_common.names import find_invisible
from identity_common.wire.events import DemandedLevel

MAX_NAMES: Final = 32
MAX_NAME: Final = 64
MAX_ROLES: Final = 100
MAX_ACTOR_AGE_S: Final = 30 * 86_400

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME)]
Names = Annotated[tuple[Name, ...], msgspec.Meta(max_length=MAX_NAMES)]
RoleIds = Annotated[Ids, msgspec.Meta(max_length=MAX_ROLES)]
ActorAge = Annotated[int, msgspec.Meta(ge=1, le=MAX_ACTOR_AGE_S)]


class ImpersonationPolicyUpdate(Body):
    """Changes of the policy; null restores a default.

    Attributes:
        require_actor: Whether an exchange without an actor token is refused; false by default.
        require_context: Names of members that the context of every subject token must have as text that is not blank;
            none by default.
        excluded_roles: Ids of API roles of the type ``User`` whose holders cannot be impersonated; none by default.
        actor_max_age_s: How long ago an actor may have signed in, seconds, at most 30 days; null, by default, for any
            time.
        actor_acr: How strongly an actor must have signed in: ``mfa``, with a second factor or a passkey; ``phr``, with
            a passkey; null, by default, for any sign-in.
    """

    require_actor: bool | UnsetType | None = UNSET
    require_context: Names | UnsetType | None = UNSET
    excluded_roles: RoleIds | UnsetType | None = UNSET
    actor_max_age_s: ActorAge | UnsetType | None = UNSET
    actor_acr: DemandedLevel | UnsetType | None = UNSET


def require_names(names: Sequence[str]) -> None:
    """Refuse names of members that are blank, have blanks around them, or characters that do not show.

    Raises:
        Invalid: There are such names.
    """
    message = "must not be blank, or have blanks around it or invisible characters in it"
    issues = [
        Issue(path=f"requireContext[{place}]", message=message)
        for place, name in enumerate(names)
        if name != name.strip() or find_invisible(name) is not None
    ]
    if issues:
        raise invalid_input(*issues)

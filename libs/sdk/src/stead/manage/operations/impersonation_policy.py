"""The policy of impersonations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

from msgspec import UNSET, UnsetType

from stead._transport.api import IfMatch, api_path, decode, json_request
from stead._transport.operations import Operation
from stead.manage.operations._bodies import patch_body
from stead.models import ImpersonationPolicy

_PATH: Final = api_path("configs", "impersonation")


def get_impersonation_policy() -> Operation[ImpersonationPolicy]:
    """Return what impersonations need, and which users they exclude."""
    return decode((yield json_request("GET", _PATH)), ImpersonationPolicy)


def update_impersonation_policy(
    *,
    require_actor: bool | UnsetType | None = UNSET,
    require_context: Iterable[str] | UnsetType | None = UNSET,
    excluded_roles: Iterable[str] | UnsetType | None = UNSET,
    actor_max_age_s: int | UnsetType | None = UNSET,
    actor_acr: Literal["mfa", "phr"] | UnsetType | None = UNSET,
    if_match: IfMatch = UNSET,
) -> Operation[ImpersonationPolicy]:
    """Change the given members; None restores a default.

    ::

        client.impersonation_policy.update(require_actor=True, require_context=["reason"])

    Args:
        require_actor: Refuse every exchange without an actor token.
        require_context: Names of members that the context of every subject token must have as text.
        excluded_roles: Ids of API roles of the type ``User``; their holders cannot be impersonated.
        actor_max_age_s: How long ago an actor may have signed in, seconds, at most 30 days.
        actor_acr: How strongly an actor must have signed in: ``mfa``, with a second factor or a passkey; ``phr``, with
            a passkey.
        if_match: The ``etag`` of the policy as it was read.

    Raises:
        InvalidInput: A name has blanks around it; there are too many names or roles; or the age is out of range.
        Conflict: A role does not exist, or is not of the type ``User``.
        VersionMismatch: ``if_match`` does not name the current version.
    """
    body = patch_body(
        requireActor=require_actor,
        requireContext=_listed(require_context),
        excludedRoles=_listed(excluded_roles),
        actorMaxAgeS=actor_max_age_s,
        actorAcr=actor_acr,
    )
    return decode((yield json_request("PATCH", _PATH, body, if_match=if_match)), ImpersonationPolicy)


def _listed(values: Iterable[str] | UnsetType | None) -> list[str] | UnsetType | None:
    return values if values is UNSET or values is None else list(values)

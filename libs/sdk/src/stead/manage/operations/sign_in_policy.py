"""The policy of signing in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

from msgspec import UNSET, UnsetType

from stead._transport.api import IfMatch, api_path, decode, json_request
from stead._transport.operations import Operation
from stead.manage.operations._bodies import patch_body
from stead.models import SignInPolicy

_PATH: Final = api_path("configs", "sign-in")


def get_sign_in_policy() -> Operation[SignInPolicy]:
    """Return who may register, and whether users need a second factor."""
    return decode((yield json_request("GET", _PATH)), SignInPolicy)


def update_sign_in_policy(
    *,
    registration: Literal["off", "invited", "domains", "open"] | UnsetType | None = UNSET,
    registration_domains: Iterable[str] | UnsetType | None = UNSET,
    second_factor: Literal["off", "optional", "required"] | UnsetType | None = UNSET,
    if_match: IfMatch = UNSET,
) -> Operation[SignInPolicy]:
    """Change the given members; None restores a default.

    ::

        client.sign_in_policy.update(registration="domains", registration_domains=["example.com"])

    Args:
        registration: Which e-mail addresses may register: ``off``; ``invited`` for those with an open invitation to an
            organization, ``domains`` for those of some domains, ``open`` for all.
        registration_domains: The domains of ``domains``, without their subdomains.
        second_factor: Whether users sign in with a second factor: ``off``, none can be set up; ``optional``, with one
            that they have set up; ``required``, all of them.
        if_match: The ``etag`` of the policy as it was read.

    Raises:
        InvalidInput: A domain is not one; or there are too many.
        Conflict: ``domains`` without a domain (``sign_in.domains_required``).
        VersionMismatch: ``if_match`` does not name the current version.
    """
    domains = registration_domains
    if domains is not UNSET and domains is not None:
        domains = list(domains)
    body = patch_body(registration=registration, registrationDomains=domains, secondFactor=second_factor)
    return decode((yield json_request("PATCH", _PATH, body, if_match=if_match)), SignInPolicy)

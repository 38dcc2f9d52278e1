"""The consent page: a description of the access that an application requests."""

from collections.abc import Sequence
from typing import Final

import msgspec
from litestar import Response

from identity_common.names import by_name
from identity_common.wire.events import ApplicationState, UserState
from stead.event_types import OrganizationState
from token_service.authorizations import Consented
from token_service.sign_in.pages.views import Choice, Group, Item, page
from token_service.sign_in.requestable_access import Descriptions
from token_service.sign_in.steps import NeedsConsent

_ABOUT_PEOPLE: Final = (
    "openid",
    "profile",
    "email",
    "phone",
    "address",
    "roles",
    "impersonations",
    "account",
    "offline_access",
    "organizations",
    "organization_roles",
)
"""Scopes about the user, in display order; ours by the last part of their URN."""


class Form(msgspec.Struct, frozen=True):
    """The form of the page.

    Attributes:
        action: Path that it is posted to.
        switch_action: Path to sign in as another user; None if the request accepts one user only.
        destination: Host and port that the answer redirects to; None for an application on the user's device.
        request_id: Of the pending request.
        csrf_token: Of the pending request.
    """

    action: str
    switch_action: str | None
    destination: str | None
    request_id: str
    csrf_token: str

    def __repr__(self) -> str:
        """Hide the secrets."""
        return "Form(…)"


def consent_page(
    step: NeedsConsent,
    descriptions: Descriptions,
    form: Form,
    *,
    language: str,
    application: ApplicationState,
    organizations: Sequence[OrganizationState] | None,
    picked: frozenset[str] | None = None,
) -> Response[str]:
    """Return the page.

    Args:
        step: What is requested, and what was consented to before.
        descriptions: Of what is requested.
        form: Its form.
        language: Its tag.
        application: The client.
        organizations: Those that the user may pick; None if there is nothing to pick.
        picked: Those to tick; None ticks those picked before.
    """
    if picked is None:
        picked = step.known.organizations or frozenset()
    wanted, known = step.wanted, step.known
    is_first_time = not known.everything()  # everything is new: no need to say so
    before = wanted if is_first_time else known
    return page(
        "consent.html",
        language,
        application=application,
        leads_elsewhere=True,
        has_script=True,
        person=name_of(step.who.person.user),
        about_you=_about_you(wanted, before),
        groups=_groups(wanted, before, descriptions),
        in_organizations=[
            _permission(name, descriptions.permissions.get(name), is_new=name not in before.organization_permissions)
            for name in sorted(wanted.organization_permissions, key=by_name)
        ],
        organizations=[Choice(each.id, each.name, each.id in picked) for each in organizations or ()],
        **msgspec.structs.asdict(form),
    )


def _about_you(wanted: Consented, before: Consented) -> list[Item]:
    """Return the scopes about the user, each by its key in the template."""
    keys = {scope.rpartition(":")[2]: scope for scope in wanted.scopes}
    return [Item(key, is_new=keys[key] not in before.scopes) for key in _ABOUT_PEOPLE if key in keys]


def _groups(wanted: Consented, before: Consented, descriptions: Descriptions) -> list[Group]:
    """Return the scopes requested of each API; an API without scopes only learns who the user is."""
    groups = []
    for indicator, names in wanted.resource_scopes.items():
        known = before.resource_scopes.get(indicator)
        items = [
            _permission(name, descriptions.scopes.get((indicator, name)), is_new=name not in (known or ()))
            for name in sorted(names, key=by_name)
        ]
        groups.append(Group(descriptions.resources.get(indicator, indicator), items, is_new=known is None))
    return groups


def _permission(name: str, description: str | None, *, is_new: bool) -> Item:
    """Return a permission as an item: its description with its name, or its name alone."""
    return Item(description, name, is_new) if description else Item(name, is_new=is_new)


def name_of(user: UserState) -> str:
    """Return how a page addresses a user."""
    return user.name or identifier_of(user) or user.id


def identifier_of(user: UserState) -> str | None:
    """Return what a user may sign in with."""
    return user.username or user.primary_email or user.primary_phone

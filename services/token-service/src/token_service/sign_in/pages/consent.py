"""The consent page: what an application requests, in words."""

from collections.abc import Sequence
from typing import Final

from litestar import Response

from identity_common.wire.events import ApplicationState, UserState
from stead.event_types import OrganizationState
from token_service.authorizations import Consented
from token_service.sign_in.flow import Descriptions, NeedsConsent
from token_service.sign_in.pages.views import Choice, Group, Item, page

_ABOUT_PEOPLE: Final = {
    "openid": "Know who you are",
    "profile": "See your name and your picture",
    "email": "See your e-mail address",
    "phone": "See your telephone number",
    "address": "See your address",
    "roles": "See your roles",
    "offline_access": "Stay signed in while you are away",
    ":scope:organizations": "See the organizations that you belong to, and act in them",
    ":scope:organization_roles": "See your roles in your organizations",
}
"""What each scope about the user lets an application do, in order of display; our own by the end of their URN."""
_ORDER: Final = list(_ABOUT_PEOPLE.values())


def consent_page(
    step: NeedsConsent,
    descriptions: Descriptions,
    *,
    application: ApplicationState,
    organizations: Sequence[OrganizationState] | None,
    form_action: str,
    action: str,
    request_id: str,
    csrf_token: str,
) -> Response[str]:
    """Return the page.

    Args:
        step: What is requested, and what was consented to before.
        descriptions: Of what is requested.
        application: The client.
        organizations: Those that the user may pick; none if there is nothing to pick.
        form_action: Where the answer may redirect to.
        action: Path that the form is posted to.
        request_id: Of the pending request.
        csrf_token: Of the pending request.
    """
    picked = step.known.organizations or frozenset()
    choices = [Choice(each.id, each.name, each.id in picked) for each in organizations or ()]
    return page(
        "consent.html",
        form_action=form_action,
        application=application.name,
        person=name_of(step.who.person.user),
        groups=_groups(step.wanted, step.known, descriptions),
        organizations=choices if organizations is not None else None,
        problem="",
        action=action,
        request_id=request_id,
        csrf_token=csrf_token,
    )


def _groups(wanted: Consented, known: Consented, descriptions: Descriptions) -> list[Group]:
    is_first_time = not known.everything()
    people = [Item(_words(name), is_new=name not in known.scopes) for name in wanted.scopes]
    groups = [Group("About you", sorted(people, key=lambda item: _ORDER.index(item.text)))]
    for indicator, names in wanted.resource_scopes.items():
        before = known.resource_scopes.get(indicator, frozenset())
        items = [
            _permission(name, descriptions.scopes.get((indicator, name)), is_new=name not in before)
            for name in sorted(names)
        ]
        items = items or [Item("Know that it is you", is_new=indicator not in known.resource_scopes)]
        groups.append(Group(descriptions.resources.get(indicator, indicator), items))
    permissions = [
        _permission(name, descriptions.permissions.get(name), is_new=name not in known.organization_permissions)
        for name in sorted(wanted.organization_permissions)
    ]
    groups.append(Group("In your organizations", permissions))
    if is_first_time:  # everything is new: no need to say so
        groups = [Group(group.title, [Item(item.text, item.name) for item in group.items]) for group in groups]
    return [group for group in groups if group.items]


def _permission(name: str, description: str | None, *, is_new: bool) -> Item:
    """Return a permission by its description, with its name; by its name alone without a description."""
    return Item(description, name, is_new) if description else Item(name, is_new=is_new)


def _words(scope: str) -> str:
    """Return a scope about the user in words."""
    for ending, words in _ABOUT_PEOPLE.items():
        if scope == ending or (ending.startswith(":") and scope.endswith(ending)):
            return words
    raise LookupError(scope)


def name_of(user: UserState) -> str:
    """Return how a page addresses a user."""
    return user.name or user.username or user.primary_email or user.primary_phone or user.id

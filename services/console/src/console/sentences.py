"""What an entry of the audit trail mentions: whom and what, by name, linked to their pages.

The sentences themselves are texts of ``templates/sentences.html``.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import quote

from markupsafe import Markup

from identity_common.pages.bidi_isolation import displayed, isolated
from stead.models import AuditEntry

_AT_MOST: Final = 3
_PAGES: Final = {
    "user": "/console/users/{}",
    "application": "/console/applications/{}",
    "organization": "/console/organizations/{}",
    "role": "/console/roles/{}",
    "resource": "/console/resources/{}",
    "organization_role": "/console/template/roles/{}",
    "permission": "/console/template/permissions/{}",
}
"""Placeholder of a sentence → the page of what it mentions."""
_OBJECTS: Final = {
    **{name: name for name in ("user", "application", "organization", "resource", "permission", "scope", "key")},
    "organization_role": "organization_role",
    "organization_scope": "permission",
    "resource_scope": "scope",
    "role": "role",
}
"""Parameter of a path or member of a body, without ``Id`` → placeholder."""
_CHANGED: Final = {
    "CreateUser": "user",
    "CreateRole": "role",
    "CreateApplication": "application",
    "CreateResource": "resource",
    "CreateResourceScope": "scope",
    "CreateOrganization": "organization",
    "CreateOrganizationRole": "organization_role",
    "CreateOrganizationScope": "permission",
    **dict.fromkeys(
        (
            *("ReplaceClaimsFunction", "UpdateClaimsFunction", "DeleteClaimsFunction", "TestClaimsFunction"),
            *("DryRunClaimsFunction", "RecordClaimsFunctionInputs", "ActivateClaimsFunctionVersion"),
        ),
        "kind",
    ),
}
"""Operation whose object is in neither path nor body of its entry, but in what it changed → placeholder."""
_OF_TEMPLATE: Final = re.compile(r"(?:Create|Update|Delete|Add|Replace|Remove)OrganizationRole")
_OF_TEMPLATE_SERVICE: Final = frozenset({"organization", "organization_role", "permission"})
_WORD: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")

MayOpen = Callable[[str], bool]


class _Mention(NamedTuple):
    """What a sentence mentions: where, which kind of object it is, and its id."""

    placeholder: str
    kind: str
    id: str | None


def mentioned(entry: AuditEntry, known: Mapping[str, str], may_open: MayOpen | None) -> dict[str, Markup]:
    """Return what a sentence about an entry mentions, by placeholder.

    Args:
        entry: The entry, with names.
        known: Further names, by id.
        may_open: Whether the page at this address may be opened; None for text without markup, such as a title.
    """
    names = {**known, **entry.names}
    found: dict[str, dict[str, Markup]] = {}
    for placeholder, kind, id_ in (*_people(entry), *_objects(entry)):
        if id_:
            found.setdefault(placeholder, {})[id_] = linked(kind, id_, names.get(id_), may_open)
    return {placeholder: _joined([*shown.values()]) for placeholder, shown in found.items()}


def template_objects(entry: AuditEntry) -> list[tuple[str, str]]:
    """Return the kinds and ids of what an entry mentions that belongs to template-service, which has its names."""
    found = [(each.kind, each.id) for each in _objects(entry)]
    found.append(("organization", entry.organization_id))
    return [(kind, id_) for kind, id_ in found if id_ and kind in _OF_TEMPLATE_SERVICE]


def _people(entry: AuditEntry) -> list[_Mention]:
    """Return who and what acted, and on whose behalf."""
    parties = entry.impersonation
    actor = _Mention("actor", "user", entry.actor_id or (None if parties is None else parties.actor_id))
    if _is_of_tokens(entry):
        if entry.actor_id is None and entry.key.startswith("token.exchange."):
            actor = _Mention("actor", "application", entry.application_id)
        requester = ("user", entry.requested_by) if entry.requested_by else ("application", entry.application_id)
        user, application = _Mention("user", "user", entry.user_id), entry.application_id
        return [actor, _Mention("who", *requester), user, _Mention("application", "application", application)]
    author = ("user", entry.user_id) if entry.user_id else ("application", entry.application_id)
    return [actor, _Mention("who", *author), _Mention("user", "user", None if parties is None else parties.user_id)]


def _objects(entry: AuditEntry) -> list[_Mention]:
    """Return the objects of a write: those in its path and body, and else the first that it changed."""
    operation = entry.operation or ""
    if _is_of_tokens(entry):
        return []
    given = [(name, each) for name, some in entry.given.items() for each in some]
    found = [(_placeholder(name, operation), each) for name, each in (*entry.ids.items(), *given)]
    if operation in _CHANGED and entry.aggregates:
        found.append((_CHANGED[operation], entry.aggregates[0].rpartition("/")[2]))
    return [_Mention(placeholder, placeholder, each) for placeholder, each in found if placeholder is not None]


def _is_of_tokens(entry: AuditEntry) -> bool:
    """Return whether an entry is of tokens, sign-ins or consents, and not of a write through the Management API."""
    return entry.key.startswith("subject-token.") or (entry.key.startswith("token.") and entry.operation is None)


def _placeholder(name: str, operation: str) -> str | None:
    singular = re.sub(r"_?ids?$", "", _WORD.sub("_", name).lower())
    placeholder = _OBJECTS.get(singular)
    if placeholder == "role" and _OF_TEMPLATE.match(operation):
        return "organization_role"
    return placeholder


def linked(kind: str, id_: str, name: str | None, may_open: MayOpen | None) -> Markup:
    """Return a name, with a link to its page; an object without a name was deleted, and has no page."""
    if may_open is None:
        return Markup.escape(displayed(name or id_))
    if name is None:
        return Markup("<code>{}</code>").format(displayed(id_))
    page = _PAGES.get(kind, "").format(quote(id_, safe=""))
    if not page or not may_open(page):
        return Markup.escape(displayed(name))
    return Markup('<a href="{}">{}</a>').format(page, displayed(name))


def _joined(shown: Sequence[Markup]) -> Markup:
    """Return the first of several, and how many others there are; the text isolates the whole."""
    if len(shown) == 1:
        return shown[0]
    text = Markup(", ").join(isolated(each) for each in shown[:_AT_MOST])
    return text if len(shown) <= _AT_MOST else text + f" (+{len(shown) - _AT_MOST})"

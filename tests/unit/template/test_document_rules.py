"""The rules of the template document, without a database: refusals name their place, and differences are complete."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from identity_common.failures import Issue
from identity_common.fields import MAX_RELATED
from stead.event_types import GrantedPermission
from template_service.document import rules
from template_service.document.rules import (
    Role,
    Template,
    TemplateDocument,
    TemplatePermission,
    TemplateRole,
    TemplateScope,
)

_NAMES = ("a", "b", "c", "d")
_RESOURCES = (None, "https://orders.example.com", "https://stock.example.com")
_grants = st.frozensets(st.builds(GrantedPermission, st.sampled_from(_NAMES), st.sampled_from(_RESOURCES)), max_size=6)
_descriptions = st.none() | st.sampled_from(["", "old", "new"])
_roles = st.builds(Role, _descriptions, st.sampled_from(["User", "MachineToMachine"]), _grants)
_templates = st.builds(
    Template,
    st.dictionaries(st.sampled_from(_NAMES), _descriptions),
    st.dictionaries(st.sampled_from(("admin", "editor", "viewer")), _roles),
)
_memberships = st.frozensets(st.sampled_from(("admin", "editor", "viewer")))


@given(_templates)
def test_a_template_and_its_document_say_the_same(template: Template) -> None:
    document = rules.document_of(template)
    assert rules.template_of(document) == template
    assert rules.repetitions(document) == []


@given(_templates, _templates)
def test_the_changes_turn_the_one_template_into_the_other(before: Template, after: Template) -> None:
    permissions, roles = rules.permission_changes(before, after), rules.role_changes(before, after)
    described = {each.name: each.description.after for each in permissions.updated}
    kept = {name: text for name, text in before.permissions.items() if name not in permissions.deleted}
    created = {name: after.permissions[name] for name in permissions.created}
    assert {**kept, **described, **created} == after.permissions

    applied = {name: role for name, role in before.roles.items() if name not in roles.deleted}
    for change in roles.updated:
        role = applied[change.name]
        applied[change.name] = Role(
            role.description if change.description is UNSET else change.description.after,
            role.type if change.type is UNSET else change.type.after,
            (role.grants | set(change.added)) - set(change.removed),
        )
    assert {**applied, **{name: after.roles[name] for name in roles.created}} == after.roles


@given(_templates)
def test_a_template_does_not_differ_from_itself(template: Template) -> None:
    assert rules.permission_changes(template, template) == rules.PermissionChanges((), (), ())
    assert rules.role_changes(template, template) == rules.RoleChanges((), (), ())
    assert rules.changed_grants(template, template) == {}


@given(_templates, _templates, _memberships)
def test_the_grouped_grants_tell_what_a_member_gains_and_loses(
    before: Template, after: Template, held: frozenset[str]
) -> None:
    held &= before.roles.keys()  # a role that the change creates has no members

    def permissions(template: Template) -> set[GrantedPermission]:
        return {each for name in held if name in template.roles for each in template.roles[name].grants}

    gained, lost = set(), set()
    for grants, group in rules.changed_grants(before, after).items():
        held_before = any(grant.before for grant in grants if grant.role in held)
        holds_now = any(grant.after for grant in grants if grant.role in held)
        gained |= set(group) if holds_now and not held_before else set()
        lost |= set(group) if held_before and not holds_now else set()
    assert gained == permissions(after) - permissions(before)
    assert lost == permissions(before) - permissions(after)


_DOCUMENT = TemplateDocument(
    permissions=(TemplatePermission("read"), TemplatePermission("openid"), TemplatePermission("read")),
    roles=(
        TemplateRole("admin", permissions=("read", "write", "read")),
        TemplateRole(
            "admin", scopes=(TemplateScope("urn:a", "x"), TemplateScope("urn:b", "x"), TemplateScope("urn:a", "x"))
        ),
    ),
)


def test_every_refusal_names_the_place_in_the_document() -> None:
    def places(issues: list[Issue]) -> list[str]:
        return [issue.path for issue in issues]

    assert places(rules.repetitions(_DOCUMENT)) == [
        "permissions[2].name",
        "roles[1].name",
        "roles[0].permissions[2]",
        "roles[1].scopes[2]",
    ]
    assert places(rules.unacceptable_names(_DOCUMENT, urn_namespace="service")) == ["permissions[1].name"]
    assert places(rules.undefined_permissions(_DOCUMENT)) == ["roles[0].permissions[1]"]
    known = {GrantedPermission("x", "urn:a")}
    assert places(rules.unknown_scopes(_DOCUMENT, known)) == ["roles[1].scopes[1]"]
    assert places(rules.scopes_of_resource(_DOCUMENT, "urn:b")) == ["roles[1].scopes[1]"]
    assert places(rules.types_of(_DOCUMENT, {"admin"})) == ["roles[0].type", "roles[1].type"]


def test_roles_and_documents_are_too_large_just_beyond_their_limits() -> None:
    names = tuple(f"p{number}" for number in range(MAX_RELATED + 1))
    full, beyond = TemplateRole("full", permissions=names[:-1]), TemplateRole("beyond", permissions=names)
    assert [each.path for each in rules.too_large_roles(TemplateDocument((), (full, beyond)))] == ["roles[1]"]
    most, rest = divmod(rules.MAX_GRANTS, MAX_RELATED)
    roles = (full,) * most + (TemplateRole("rest", permissions=names[:rest]),)
    assert not rules.is_too_large(TemplateDocument((), roles))
    assert rules.is_too_large(TemplateDocument((), (*roles, TemplateRole("one", permissions=names[:1]))))

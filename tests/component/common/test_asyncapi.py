"""docs/events/asyncapi.yaml describes every subject and payload: checked against the structs and real messages."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from identity_common.wire.events import AppliedState, Watermark
from provision import ServerAddresses
from stead.event_types import (
    CloudEvent,
    GrantedPermission,
    MemberPermissionsState,
    MemberState,
    OrganizationPermissionState,
    OrganizationRoleState,
    OrganizationState,
)
from tests.support.management_api import Management, unique
from tests.support.organizations import APPLICATIONS, USERS, Organization, member_of_kind
from tests.support.public_events import DOCUMENT, Captured, captured, channel_of, problems
from tests.support.published_sign_ins import provider_sign_ins
from tests.support.template_api import Template
from tests.support.template_source import TemplateSource

WITHIN_S = 60
Record = tuple[str, Sequence[str], str, msgspec.Struct]

STRUCTS = (
    CloudEvent,
    OrganizationPermissionState,
    OrganizationRoleState,
    OrganizationState,
    MemberState,
    MemberPermissionsState,
    GrantedPermission,
    AppliedState,
    Watermark,
)
STATES: dict[str, type[msgspec.Struct]] = {
    "permission": OrganizationPermissionState,
    "role": OrganizationRoleState,
    "organization": OrganizationState,
    "member": MemberState,
    "member-permissions": MemberPermissionsState,
    "applied": AppliedState,
    "revision": Watermark,
}


def normal(schema: Any) -> Any:
    """Return a schema without the differences in notation between the two sources."""
    if isinstance(schema, list):
        return [normal(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "anyOf" in schema:  # the document has no null: the member is omitted
        (schema,) = [each for each in schema["anyOf"] if each != {"type": "null"}]
    if "x-extensible-enum" in schema:
        return {"enum": schema["x-extensible-enum"]}
    found = {name: normal(each) for name, each in schema.items() if name not in {"title", "description", "default"}}
    if "$ref" in found:
        found["$ref"] = found["$ref"].rpartition("/")[2]
    if "required" in found:
        found["required"] = sorted(found["required"])
    if "properties" in schema:  # some properties are named like keywords
        found["properties"] = {name: normal(each) for name, each in schema["properties"].items()}
    return found


def test_the_schemas_are_those_of_the_structs() -> None:
    _, structs = msgspec.json.schema_components(STRUCTS)
    structs["CloudEvent"]["required"] += ["specversion", "datacontenttype"]  # constants: always present
    documented = DOCUMENT["components"]["schemas"]
    assert {name: normal(documented[name]) for name in documented if name != "Headers"} == normal(structs)


def test_defaults_are_those_of_the_structs() -> None:
    _, structs = msgspec.json.schema_components(STRUCTS[1:])
    for name, struct in structs.items():
        documented = DOCUMENT["components"]["schemas"][name]["properties"]
        for member, described in struct["properties"].items():
            default = msgspec.to_builtins(described.get("default"))
            assert (list(default) if isinstance(default, tuple) else default) == documented[member].get("default")


def test_every_kind_has_a_channel_a_message_and_an_operation() -> None:
    messages = DOCUMENT["components"]["messages"]
    assert DOCUMENT["channels"].keys() == messages.keys() == STATES.keys()
    for name, channel in DOCUMENT["channels"].items():
        assert channel["address"].startswith(f"identity.{{tenantId}}.{name}.")
        assert channel["parameters"].keys() == set(re.findall(r"\{(\w+)\}", channel["address"]))
        assert channel["messages"] == {name: {"$ref": f"#/components/messages/{name}"}}
        of_kind = messages[name]["payload"]["allOf"][1]["properties"]
        assert of_kind["data"] == {"$ref": f"#/components/schemas/{STATES[name].__name__}"}
        assert {each.partition(".")[0] for each in of_kind["type"]["enum"]} == {name}
    sent = {each["channel"]["$ref"].rpartition("/")[2] for each in DOCUMENT["operations"].values()}
    assert sent == STATES.keys()


def references(node: Any) -> list[str]:
    if isinstance(node, dict):
        found = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
        return found + [each for child in node.values() for each in references(child)]
    return [each for child in node for each in references(child)] if isinstance(node, list) else []


def test_every_reference_resolves() -> None:
    for reference in references(DOCUMENT):
        node = DOCUMENT
        for step in reference.removeprefix("#/").split("/"):
            node = node[step]


def test_the_examples_are_as_described() -> None:
    for name, message in DOCUMENT["components"]["messages"].items():
        for example in message.get("examples", ()):
            payload = example["payload"]
            subject = f"identity.default.{name}.{payload['subject'].replace('/', '.')}"
            data = msgspec.json.encode(payload)
            assert problems(Captured(subject, {"Nats-Msg-Id": payload["id"]}, data)) == []
            msgspec.convert(payload["data"], STATES[name])


def every_event(source: TemplateSource) -> list[Record]:
    """Return every kind of event in every possible shape."""
    read, write = GrantedPermission("read"), GrantedPermission("write", "https://api.example.com")
    role = OrganizationRoleState(
        id="r1", name="Reader", type="MachineToMachine", permission_ids=("p1",), scope_ids=("s1", "s2")
    )
    return [
        ("permission", ["p1"], "created", OrganizationPermissionState(id="p1", name="read")),
        ("permission", ["p1"], "updated", OrganizationPermissionState(id="p1", name='re%d:"things"😀')),
        ("role", ["r1"], "created", role),
        ("role", ["r2"], "updated", OrganizationRoleState(id="r2", name="Empty")),
        ("organization", ["o1"], "created", OrganizationState(id="o1", name="Acme")),
        ("organization", ["o1"], "updated", OrganizationState(id="o1", is_mfa_required=True)),
        ("member", ["o1", "u1"], "created", MemberState(organization_id="o1", member_id="u1", role_ids=("r1", "r2"))),
        (
            "member",
            ["o1", "a1"],
            "updated",
            MemberState(organization_id="o1", member_id="a1", member_type="application"),
        ),
        *(
            ("member-permissions", ["o1", "u1"], "updated", source.granted("o1", "u1", *names, cause=cause))
            for names, cause in (
                (("read", "write@https://api.example.com"), "assignment"),
                (("read",), "role-changed"),
                (("write",), "permission-changed"),
                ((), "permission-deleted"),
                (("read",), "role-deleted"),
                (("read",), "republished"),
                ((), "member-removed"),
                ((), "organization-deleted"),
            )
        ),
        (
            "member-permissions",
            ["o1", "a1"],
            "updated",
            source.granted("o1", "a1", member_type="application", incomplete=True, added=(), permissions=()),
        ),
        (
            "member-permissions",
            ["o2", "a1"],
            "updated",
            source.granted("o2", "a1", member_type="application", added=(read, write), permissions=(read, write)),
        ),
        ("applied", ["management"], "updated", AppliedState(id="management", revision=7)),
        ("member", ["o1", "u1"], "deleted", MemberState(organization_id="o1", member_id="u1", deleted=True)),
        ("organization", ["o1"], "deleted", OrganizationState(id="o1", deleted=True)),
        ("role", ["r1"], "deleted", OrganizationRoleState(id="r1", deleted=True)),
        ("permission", ["p1"], "deleted", OrganizationPermissionState(id="p1", deleted=True)),
    ]


async def test_every_message_on_the_bus_is_as_described_and_a_cloud_event(servers: ServerAddresses) -> None:
    async with TemplateSource(servers) as source:
        happened = every_event(source)
        revision = await source.record_all(happened)
        messages = await captured(servers.subscriber_nats_url, source.tenant_id, until=revision)

    assert [problem for message in messages for problem in problems(message)] == []
    assert {channel_of(message.subject) for message in messages} == STATES.keys()
    decoded = [msgspec.json.decode(message.data, type=CloudEvent) for message in messages]
    told = [(event.type, event.subject) for event in decoded if event.type != "revision.published"]
    assert told == [(f"{kind}.{verb}", "/".join(ids)) for kind, ids, verb, _ in happened]


@pytest.mark.heavy
async def test_every_message_of_the_running_service_is_as_described(management: Management) -> None:
    async with Management(management.addresses, management.issuer) as own, Template(own) as template:
        resource = await template.resource("read:orders")
        people = [await member_of_kind(template, USERS) for _ in range(2)]
        machine = await member_of_kind(template, APPLICATIONS)
        await template.caught_up()
        permission = await template.permission()
        granted = {"organizationScopeIds": [permission["id"]], "resourceScopeIds": [resource["scopes"][0]["id"]]}
        role = await template.role(type="User", **granted)
        machine_role = await template.role(type="MachineToMachine", **granted)
        users = await Organization.new(template, USERS, *people)
        machines = await Organization.new(template, APPLICATIONS, machine)
        await users.assign(people, [role["id"]])
        await machines.assign([machine], [machine_role["id"]])
        await template.client.patch(f"/api/organization-scopes/{permission['id']}", json={"name": unique("renamed")})
        await template.client.patch(f"/api/organizations/{users.id}", json={"name": "Renamed"})
        await template.client.patch(f"/api/organization-roles/{role['id']}", json={"description": "again"})
        await users.remove(people[0])
        async with provider_sign_ins(template) as sign_ins:
            await sign_ins.sign_in(people[1], await sign_ins.connector())
        await own.client.delete(f"/api/users/{people[1]}")
        await template.caught_up()
        await machines.delete()
        await template.client.delete(f"/api/organization-roles/{role['id']}")
        await template.client.delete(f"/api/organization-scopes/{permission['id']}")
        await template.fan_outs_done()
        messages = await captured(
            management.addresses.subscriber_nats_url, template.tenant_id, until=await template.revision()
        )

    assert [problem for message in messages for problem in problems(message)] == []
    assert {channel_of(message.subject) for message in messages} == STATES.keys()
    told = {msgspec.json.decode(message.data, type=CloudEvent).type for message in messages}
    assert told >= {
        f"{kind}.{verb}" for kind in ("permission", "role", "organization") for verb in ("created", "deleted")
    }
    assert told >= {"permission.updated", "member.created", "member.deleted", "member-permissions.updated"}


@pytest.mark.parametrize(
    "spoil",
    [
        lambda event: event | {"more": 1},
        lambda event: event | {"type": "role.exploded"},
        lambda event: event | {"data": event["data"] | {"memberType": "robot"}},
        lambda event: event | {"data": event["data"] | {"more": 1}},
        lambda event: event | {"data": {"organizationId": "o1"}},
        lambda event: event | {"revision": "1"},
        lambda event: {name: value for name, value in event.items() if name != "tenantid"},
    ],
)
def test_the_check_rejects_deviations(spoil: Any) -> None:
    (example,) = DOCUMENT["components"]["messages"]["member-permissions"]["examples"]
    payload = example["payload"]
    subject = f"identity.default.member-permissions.{payload['subject'].replace('/', '.')}"
    headers = {"Nats-Msg-Id": payload["id"]}
    assert problems(Captured(subject, headers, msgspec.json.encode(spoil(payload)))) != []
    assert problems(Captured("identity.default.unheard-of.1", headers, msgspec.json.encode(payload))) != []

"""Every kind of state that management-service publishes is republished, and has a reader."""

import asyncio
import re
from pathlib import Path
from typing import Any, Final

import msgspec
import nats

from identity_common.identifiers import new_id
from identity_common.wire import events, impersonations
from identity_common.wire.events import (
    ApplicationState,
    AppliedState,
    AssignmentState,
    ClaimsFunctionState,
    ConnectorState,
    IdentityState,
    ImpersonationPolicyState,
    NarrowingState,
    ProviderGroupsState,
    ResourceState,
    RoleState,
    ScopeState,
    SecretState,
    SignInPolicyState,
    UserState,
)
from identity_common.wire.impersonations import AGGREGATE as IMPERSONATION
from identity_common.wire.impersonations import ImpersonationEndsState
from management_service.commands import republish
from tests.support.claims_function import ScriptAnswers
from tests.support.claims_function_versions import saved
from tests.support.management_api import Management, unique
from tests.support.provider import Provider
from tests.support.provider_sign_ins import ProviderPages
from tests.support.waiting import WAIT_S

KINDS: Final[dict[str, Any]] = {
    "user": UserState,
    "application": ApplicationState,
    "resource": ResourceState,
    "scope": ScopeState,
    "role": RoleState,
    "assignment": AssignmentState,
    "narrowing": NarrowingState,
    "claims-function": ClaimsFunctionState,
    "impersonation-policy": ImpersonationPolicyState,
    "sign-in-policy": SignInPolicyState,
    "connector": ConnectorState,
    "identity": IdentityState,
    "provider-groups": ProviderGroupsState,
    IMPERSONATION: ImpersonationEndsState,
}
PARTS: Final = {SecretState}
"""Of the state of another aggregate."""
PASSING: Final = {"narrowing"}
"""Not stored, so not republished: it says what was lost in its own revision."""
READERS: Final = ("token-service", "template-service")
SERVICES: Final = Path(__file__).parents[3] / "services"


def test_every_state_has_a_kind() -> None:
    states = {
        each
        for module in (events, impersonations)
        for name, each in vars(module).items()
        if name.endswith("State") and issubclass(each, msgspec.Struct)
    }
    assert states == {*KINDS.values(), *PARTS, AppliedState}  # the last one is template-service's


def test_every_kind_of_state_has_a_reader() -> None:
    """A module that names the subjects of its states."""
    sources = [path.read_text() for service in READERS for path in (SERVICES / service / "src").rglob("*.py")]
    reading = " ".join(source for source in sources if "event_subject(" in source)
    named = set(re.findall(r'"([a-z-]+)"', reading.replace("tenant_id, AGGREGATE", f'"{IMPERSONATION}"')))
    assert KINDS.keys() - named == set()


async def created_everything(own: Management) -> None:
    user, application = (await own.created("users"))["id"], await own.machine()
    resource = (await own.created("resources", name="n", indicator=f"https://{unique('r')}.example.com"))["id"]
    scope = (await own.created(f"resources/{resource}/scopes", name="read"))["id"]
    for kind, holder in (("User", f"users/{user}"), ("MachineToMachine", f"applications/{application}")):
        role = (await own.created("roles", name=unique("r"), description="", type=kind, scopeIds=[scope]))["id"]
        await own.client.post(f"/api/{holder}/roles", json={"roleIds": [role]})
    await saved(own)
    await own.client.post(f"/api/impersonations/{new_id()}/end")
    await own.client.patch("/api/configs/impersonation", json={"requireActor": True})
    await own.client.patch("/api/configs/sign-in", json={"registration": "open"})
    async with await nats.connect(own.addresses.token_nats_url, inbox_prefix="_INBOX_token") as client:
        with Provider() as provider:
            pages = ProviderPages(own, client, provider)
            await pages.connect()
            await pages.signed_in(sub="person-1")
            removed = (await pages.signed_in(sub="person-2")).user_id
            [identity] = (await own.client.get(f"/api/users/{removed}/identities")).json()
            await own.client.delete(f"/api/users/{removed}/identities/{identity['id']}")


async def republished_kinds(own: Management) -> set[str]:
    """Republish everything, and return the kinds of what was published."""
    before = await own.revision()
    await asyncio.to_thread(republish, own.settings)
    query = "SELECT count(*) FROM republication WHERE tenant_id = $1"
    async with asyncio.timeout(WAIT_S):
        while await own.database.fetchval(query, own.tenant_id):  # noqa: ASYNC110 - seen from outside only
            await asyncio.sleep(0.02)
    return {name.partition(".")[0] for name, event in (await own.last_events()).items() if event.revision > before}


async def test_a_republication_has_every_kind_of_state(management: Management) -> None:
    async with Management(management.addresses, management.issuer) as own, ScriptAnswers(own):
        await created_everything(own)
        assert await republished_kinds(own) == KINDS.keys() - PASSING

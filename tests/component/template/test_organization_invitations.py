"""``/api/organization-invitations``."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, Self

import httpx2 as httpx
import nats
import pytest
import pytest_asyncio
from sqlalchemy import text

from identity_common.outbox.mail import MailOutbox
from identity_common.sealing import SealingKeys
from identity_common.wire.mail import Mail
from identity_common.wire.organization_invitations import (
    AcceptInvitation,
    Answer,
    FindInvitation,
    InvitationAccepted,
    InvitationFound,
    Invited,
    IsInvited,
    OrganizationInvitationRequests,
    Question,
    Refused,
)
from provision import ServerAddresses
from template_service.app import VERSIONS
from template_service.organization_invitations.service import link_sha256
from template_service.organization_invitations.store import find_by_link
from template_service.parts.shared import Shared
from template_service.restoration import mend
from tests.support.issuer import Issuer
from tests.support.management_api import Management, issues, refusal, unique
from tests.support.queued_mail import QueuedMail
from tests.support.template_api import Template, revision
from tests.support.waiting import WAIT_S

PATH = "/api/organization-invitations"
DAY_MS = 24 * 60 * 60 * 1000
NOT_PENDING = (422, "organization_invitation.not_pending")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def tomorrow() -> int:
    return now_ms() + DAY_MS


def an_address() -> str:
    return f"{unique('Bob')}@Example.com"


@pytest_asyncio.fixture
async def mails(template: Template) -> AsyncIterator[QueuedMail]:
    async with QueuedMail(template.database, template.tenant_id, template.settings.mail_keys) as mails:
        yield mails


async def user_with(template: Template, address: str | None, **members: Any) -> str:
    user: str = (await template.management.created("users", primaryEmail=address, **members))["id"]
    return user


async def invited(template: Template, address: str, **members: Any) -> Any:
    """Invite an address to an organization, a new one unless it is named."""
    if "organizationId" not in members:
        members["organizationId"] = (await template.organization())["id"]
    return await template.created("organization-invitations", invitee=address, expiresAt=tomorrow(), **members)


async def decided(template: Template, invitation: Any, **decision: Any) -> httpx.Response:
    return await template.client.put(f"{PATH}/{invitation['id']}/status", json=decision)


async def accepted(template: Template, invitation: Any, user: str) -> httpx.Response:
    return await decided(template, invitation, status="Accepted", acceptedUserId=user)


async def roles_of(template: Template, organization_id: str, user: str) -> list[str]:
    answer = await template.client.get(f"/api/organizations/{organization_id}/users/{user}/roles")
    return [role["id"] for role in answer.json()] if answer.is_success else [answer.json()["code"]]


async def set_in(template: Template, invitation: Any, column: str, value: object) -> None:
    await template.database.execute(
        f"UPDATE organization_invitations SET {column} = $3 WHERE tenant_id = $1 AND id = $2",
        template.tenant_id,
        invitation["id"],
        value,
    )


async def an_hour_later(template: Template) -> None:
    await template.database.execute(
        "UPDATE mailed_invitees SET sent_at = ARRAY(SELECT unnest(sent_at) - 3600000) WHERE tenant_id = $1",
        template.tenant_id,
    )


async def test_an_invitation_is_shown_as_it_was_created_without_a_link(template: Template, mails: QueuedMail) -> None:
    address, role = an_address(), await template.role()
    inviter = await user_with(template, None, username=unique("i").replace("-", ""), name="Ada Lovelace")
    organization = await template.organization()
    body = {
        "organizationId": organization["id"],
        "invitee": address,
        "organizationRoleIds": [role["id"], role["id"]],
        "expiresAt": tomorrow(),
        "inviterId": inviter,
    }
    before_ms = now_ms()
    answer = await template.client.post(PATH, json=body)
    invitation = answer.json()
    assert answer.status_code == 201
    assert invitation == {
        "tenantId": template.tenant_id,
        "id": invitation["id"],
        "organizationId": organization["id"],
        "invitee": address,
        "inviterId": inviter,
        "acceptedUserId": None,
        "status": "Pending",
        "organizationRoles": [{"id": role["id"], "name": role["name"]}],
        "createdAt": invitation["createdAt"],
        "updatedAt": invitation["createdAt"],
        "expiresAt": body["expiresAt"],
        "messageSentAt": None,
    }
    assert before_ms <= invitation["createdAt"] <= now_ms()
    assert (await template.client.get(f"{PATH}/{invitation['id']}")).json() == invitation
    assert await mails.to(address) == []


async def test_an_invitation_is_mailed_with_a_new_link_each_time(template: Template, mails: QueuedMail) -> None:
    """Only the mail has the link, and the database its hash."""
    address, organization = an_address(), await template.organization(name=unique("Acme & Söhne"))
    inviter = await user_with(template, None, username=unique("i").replace("-", ""), name="Ada Lovelace")
    message = {"language": "de", "message": "Willkommen!\n<b>Bis bald</b>"}
    invitation = await invited(
        template, address, organizationId=organization["id"], inviterId=inviter, messagePayload=message
    )
    (first,) = await mails.to(address)
    link = first.values["link"]
    assert (first.kind, first.recipient, first.language, first.organization_id, first.expires_at) == (
        "organization-invitation",
        address,
        "de",
        organization["id"],
        invitation["expiresAt"],
    )
    assert first.values == {
        "link": link,
        "organization": organization["name"],
        "inviter": "Ada Lovelace",
        "message": message["message"],
        "minutes": "1440",
    }
    path, _, secret = link.partition("?link=")
    assert (path, len(secret)) == ("/sign-in/invitation", 43)
    assert secret not in str(await template.database.fetch("SELECT * FROM organization_invitations"))

    again = f"{PATH}/{invitation['id']}/message"
    refused = await template.client.post(again, json={})
    assert refusal(refused) == (429, "organization_invitation.mailed_too_often")
    assert int(refused.headers["Retry-After"]) >= 60
    await set_in(template, invitation, "sent_at", [now_ms() - 61_000])
    assert (await template.client.post(again, json={})).status_code == 204
    _, second = await mails.to(address)
    assert second.values["link"] != link
    assert (second.language, set(second.values)) == (None, {"link", "organization", "inviter", "minutes"})


async def test_an_address_gets_at_most_five_mails_in_an_hour(template: Template, mails: QueuedMail) -> None:
    """Of all organizations together, however many requests come at once."""
    address = an_address()
    organizations = [(await template.organization())["id"] for _ in range(8)]

    async def invite(organization: str, cased: str) -> int:
        body = {"organizationId": organization, "invitee": cased, "expiresAt": tomorrow(), "messagePayload": {}}
        return (await template.client.post(PATH, json=body)).status_code

    cased = [address, address.upper(), address.lower(), address.title()] * 2
    statuses = await asyncio.gather(*map(invite, organizations, cased))
    assert sorted(statuses) == [201] * 5 + [429] * 3
    found = (await template.client.get(PATH, params={"invitee": address})).json()
    assert len(found) == 5  # what was refused left nothing behind
    for each in found[:3]:
        assert (await template.client.delete(f"{PATH}/{each['id']}")).status_code == 204
    assert (await template.client.delete(f"/api/organizations/{found[3]['organizationId']}")).status_code == 204
    kept = found[0]["organizationId"]
    assert await invite(kept, address) == 429  # deleting makes no room
    assert address not in str(await template.database.fetch("SELECT * FROM mailed_invitees")).lower()
    await an_hour_later(template)
    await set_in(template, found[4], "sent_at", [now_ms() - 61_000])
    assert (await template.client.post(f"{PATH}/{found[4]['id']}/message", json={})).status_code == 204
    assert await invite(kept, address) == 201


async def test_accepting_gives_membership_and_roles_once_and_an_existing_member_keeps_its_own(
    template: Template,
) -> None:
    address = an_address()
    user = await user_with(template, address.lower())
    role, other = (await template.role())["id"], (await template.role())["id"]
    invitation = await invited(template, address, organizationRoleIds=[role])
    organization = invitation["organizationId"]
    before = await template.revision()
    answer = await accepted(template, invitation, user)
    updated = answer.json()["updatedAt"]
    expected = invitation | {"status": "Accepted", "acceptedUserId": user, "updatedAt": updated}
    assert (answer.status_code, answer.json(), revision(answer)) == (200, expected, before + 2)
    assert await roles_of(template, organization, user) == [role]
    assert (await template.event_data("member", organization, user))["roleIds"] == [role]
    assert refusal(await accepted(template, invitation, user)) == NOT_PENDING
    assert refusal(await decided(template, invitation, status="Revoked")) == NOT_PENDING
    assert refusal(await template.client.post(f"{PATH}/{invitation['id']}/message", json={})) == NOT_PENDING

    second = await invited(template, address, organizationId=organization, organizationRoleIds=[other])
    assert (await accepted(template, second, user)).json()["status"] == "Accepted"
    assert sorted(await roles_of(template, organization, user)) == sorted([role, other])
    third = await invited(template, address, organizationId=organization)
    before = await template.revision()
    answer = await accepted(template, third, user)
    assert (answer.json()["status"], await template.revision()) == ("Accepted", before)


async def test_of_64_acceptances_and_withdrawals_one_wins(template: Template) -> None:
    address, role = an_address(), (await template.role())["id"]
    user = await user_with(template, address)
    await template.caught_up()
    invitation = await invited(template, address, organizationRoleIds=[role])
    answers = await asyncio.gather(
        *(
            accepted(template, invitation, user) if number % 8 else decided(template, invitation, status="Revoked")
            for number in range(64)
        )
    )
    (won,) = (answer.json() for answer in answers if answer.is_success)
    assert {refusal(answer) for answer in answers if not answer.is_success} == {NOT_PENDING}
    found = (await template.client.get(f"{PATH}/{invitation['id']}")).json()
    assert found == won
    held = await roles_of(template, invitation["organizationId"], user)
    assert held == ([role] if won["status"] == "Accepted" else ["organization.require_membership"])


async def test_only_the_account_with_the_address_can_accept(template: Template) -> None:
    address = an_address()
    invitation = await invited(template, address)
    other = await user_with(template, an_address())
    for user, expected in (
        (other, (422, "organization_invitation.other_address")),
        (
            await user_with(template, None, username=unique("u").replace("-", "")),
            (422, "organization_invitation.other_address"),
        ),
        ("nobody", (422, "entity.relation_foreign_key_not_found")),
        (await template.management.machine(), (422, "entity.relation_foreign_key_not_found")),
    ):
        assert refusal(await accepted(template, invitation, user)) == expected
    suspended = await user_with(template, address)
    path = f"/api/users/{suspended}/is-suspended"
    await template.management.client.patch(path, json={"isSuspended": True})
    await template.caught_up()
    assert refusal(await accepted(template, invitation, suspended)) == (422, "user.suspended")
    assert (await template.client.get(f"{PATH}/{invitation['id']}")).json() == invitation


async def test_an_invitation_ends_by_expiry_revocation_and_deletion(template: Template) -> None:
    address = an_address()
    user = await user_with(template, address)
    expired, revoked, deleted = [await invited(template, address) for _ in range(3)]
    await set_in(template, expired, "expires_at", now_ms())
    answer = await decided(template, revoked, status="Revoked")
    assert answer.json() == revoked | {"status": "Revoked", "updatedAt": answer.json()["updatedAt"]}
    assert (await template.client.delete(f"{PATH}/{deleted['id']}")).status_code == 204
    for invitation, expected in ((expired, NOT_PENDING), (revoked, NOT_PENDING)):
        assert refusal(await accepted(template, invitation, user)) == expected
    assert refusal(await accepted(template, deleted, user)) == (404, "entity.not_exists_with_id")
    assert (await template.client.get(f"{PATH}/{expired['id']}")).json()["status"] == "Expired"
    # One that has ended does not stand in the way of the next.
    for before in (expired, revoked, deleted):
        await invited(template, address, organizationId=before["organizationId"])


async def test_an_address_has_one_pending_invitation_to_an_organization(template: Template) -> None:
    address = an_address()
    invitation = await invited(template, address)
    organization = {"organizationId": invitation["organizationId"]}
    body = organization | {"invitee": address.upper(), "expiresAt": tomorrow()}
    answers = await asyncio.gather(*(template.client.post(PATH, json=body) for _ in range(8)))
    assert {refusal(answer) for answer in answers} == {(422, "entity.unique_integrity_violation")}
    await decided(template, invitation, status="Revoked")
    answers = await asyncio.gather(*(template.client.post(PATH, json=body) for _ in range(8)))
    assert sorted(answer.status_code for answer in answers) == [201] + [422] * 7


async def test_roles_are_judged_again_and_a_deleted_organization_has_no_invitations(template: Template) -> None:
    address = an_address()
    user = await user_with(template, address)
    kept, gone, turned = [await template.role() for _ in range(3)]
    ids = [kept["id"], gone["id"], turned["id"]]
    invitation = await invited(template, address, organizationRoleIds=ids)
    assert (await template.client.delete(f"/api/organization-roles/{gone['id']}")).status_code == 204
    path = f"/api/organization-roles/{turned['id']}"
    assert (await template.client.patch(path, json={"type": "MachineToMachine"})).status_code == 200
    shown = (await template.client.get(f"{PATH}/{invitation['id']}")).json()
    assert shown["organizationRoles"] == [{"id": kept["id"], "name": kept["name"]}]
    assert (await accepted(template, invitation, user)).is_success
    assert await roles_of(template, invitation["organizationId"], user) == [kept["id"]]

    invitation = await invited(template, address)
    answers = await asyncio.gather(
        template.client.delete(f"/api/organizations/{invitation['organizationId']}"),
        *(accepted(template, invitation, user) for _ in range(8)),
    )
    assert {answer.status_code for answer in answers} <= {200, 204, 404, 422}
    assert refusal(await template.client.get(f"{PATH}/{invitation['id']}")) == (404, "entity.not_exists_with_id")
    assert (await template.client.get(PATH, params={"organizationId": invitation["organizationId"]})).json() == []


async def test_what_an_invitation_names_must_exist_and_fit(template: Template) -> None:
    good = {
        "organizationId": (await template.organization())["id"],
        "invitee": an_address(),
        "expiresAt": tomorrow(),
    }
    machines = (await template.role(type="MachineToMachine"))["id"]
    unknown, wrong = (422, "entity.relation_foreign_key_not_found"), (422, "entity.db_constraint_violated")
    for members, expected in (
        ({"organizationId": "none"}, unknown),
        ({"organizationRoleIds": ["none"]}, unknown),
        ({"inviterId": "none"}, unknown),
        ({"organizationRoleIds": [machines]}, wrong),
    ):
        assert refusal(await template.client.post(PATH, json=good | members)) == expected, members
    assert (await template.client.get(PATH, params={"invitee": good["invitee"]})).json() == []


@pytest.mark.parametrize(
    ("members", "paths"),
    [
        ({"invitee": "bob"}, {"invitee"}),
        ({"invitee": ""}, {"invitee"}),
        ({"invitee": "bob@example.com\nBcc: eve@example.com"}, {"invitee"}),
        ({"invitee": "bob@example.com, eve@example.com"}, {"invitee"}),
        ({"invitee": "bob\u200b@example.com"}, {"invitee"}),
        ({"invitee": f"{'x' * 260}@a.b"}, {"invitee"}),
        ({"expiresAt": 1}, {"expiresAt"}),
        ({"expiresAt": 2**62}, {"expiresAt"}),
        ({"expiresAt": "tomorrow", "invitee": 1}, {"expiresAt", "invitee"}),
        ({"organizationRoleIds": ["x"] * 101}, {"organizationRoleIds"}),
        ({"organizationRoleIds": "x", "inviterId": ""}, {"organizationRoleIds", "inviterId"}),
        ({"messagePayload": True}, {"messagePayload"}),
        ({"messagePayload": {"link": "https://evil.example.com"}}, {"messagePayload"}),
        ({"messagePayload": {"message": "x" * 1001}}, {"messagePayload.message"}),
        ({"status": "Accepted", "acceptedUserId": "u"}, {"status", "acceptedUserId"}),
    ],
)
async def test_every_wrong_member_of_a_new_invitation_is_named(
    template: Template, members: dict[str, Any], paths: set[str]
) -> None:
    body = {"organizationId": "none", "invitee": "bob@example.com", "expiresAt": tomorrow()} | members
    assert issues(await template.client.post(PATH, json=body)) == paths


@pytest.mark.parametrize(
    ("decision", "paths"),
    [
        ({}, {"status"}),
        ({"status": "Pending"}, {"status"}),
        ({"status": "Accepted"}, {"acceptedUserId"}),
        ({"status": "Accepted", "acceptedUserId": None}, {"acceptedUserId"}),
        ({"status": "Revoked", "acceptedUserId": "u"}, {"acceptedUserId"}),
        ({"status": "Revoked", "userId": "u"}, {"userId"}),
    ],
)
async def test_a_decision_is_complete(template: Template, decision: dict[str, Any], paths: set[str]) -> None:
    assert issues(await decided(template, await invited(template, an_address()), **decision)) == paths


async def test_invitations_are_filtered_and_found_by_address(template: Template) -> None:
    marker = unique("filtered")
    inviter = await user_with(template, f"{marker}@id.test")
    organization = (await template.organization())["id"]
    addresses = [f"{marker}-{number}@id.test" for number in range(3)]
    first, second, third = [
        await invited(template, address, organizationId=organization, inviterId=inviter) for address in addresses
    ]
    elsewhere = await invited(template, addresses[0].upper())
    await decided(template, second, status="Revoked")
    await set_in(template, third, "expires_at", now_ms())
    for params, expected in (
        ({"organizationId": organization}, [first, second, third]),
        ({"inviterId": inviter}, [first, second, third]),
        ({"invitee": addresses[0]}, sorted([first, elsewhere], key=lambda each: each["id"])),
        ({"organizationId": organization, "status": "Pending"}, [first]),
        ({"organizationId": organization, "status": "Revoked"}, [second]),
        ({"organizationId": organization, "status": "Expired"}, [third]),
        ({"organizationId": organization, "status": "Accepted"}, []),
        ({"q": marker.upper(), "organizationId": organization}, [first, second, third]),
        ({"q": f"{marker}-1"}, [second]),
    ):
        answer = await template.client.get(PATH, params=params)
        assert [each["id"] for each in answer.json()] == [each["id"] for each in expected], params
        assert answer.headers["Total-Number"] == str(len(expected))
    assert issues(await template.client.get(f"{PATH}?status=Open")) == {"status"}


async def test_a_deleted_user_takes_its_accepted_invitations_along(template: Template) -> None:
    """They hold its address."""
    address = an_address()
    user = await user_with(template, address)
    invitation = await invited(template, address)
    assert (await accepted(template, invitation, user)).is_success
    await template.management.client.delete(f"/api/users/{user}")
    await template.caught_up()
    assert refusal(await template.client.get(f"{PATH}/{invitation['id']}")) == (404, "entity.not_exists_with_id")


class Asked:
    """Asks template-service on the bus, as management-service does."""

    def __init__(self, template: Template) -> None:
        keys = SealingKeys(template.settings.mail_keys)
        self._requests = OrganizationInvitationRequests(keys, tenant_id=template.tenant_id)
        self._url = template.management.settings.nats_url

    async def __aenter__(self) -> Self:
        self._bus = await nats.connect(self._url, inbox_prefix="_INBOX_management")
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._bus.close()

    async def __call__(self, question: Question) -> Answer:
        sealed = self._requests.seal_question(question)
        reply = await self._bus.request(self._requests.subject, sealed, timeout=WAIT_S)
        return self._requests.open_answer(reply.data, sealed_question=sealed)


async def link_of(mails: QueuedMail, address: str) -> str:
    """Return what is stored of the link in the last mail to an address."""
    return link_sha256(await mails.link(address))


async def test_a_link_is_accepted_once_by_the_account_with_its_address(template: Template, mails: QueuedMail) -> None:
    """Of 64 at once; the account may be new, or have the address only since a moment ago."""
    address, role = an_address(), (await template.role())["id"]
    organization = await template.organization()
    invitation = await invited(
        template, address, organizationId=organization["id"], organizationRoleIds=[role], messagePayload={}
    )
    link = await link_of(mails, address)
    async with Asked(template) as ask:
        found = InvitationFound(organization=organization["name"], invitee=address)
        assert await ask(FindInvitation(link_sha256=link)) == found
        assert await ask(IsInvited(email=address.upper())) == Invited(is_invited=True)
        other = await user_with(template, an_address())
        refused = Refused(reason="account-not-accepted")
        assert await ask(AcceptInvitation(link_sha256=link, user_id=other)) == refused
        assert await ask(AcceptInvitation(link_sha256=link, user_id="nobody")) == refused
        user = await user_with(template, an_address())
        await template.management.client.patch(f"/api/users/{user}", json={"primaryEmail": address})
        accepting = AcceptInvitation(link_sha256=link, user_id=user, address="192.0.2.1", user_agent="test")
        answers = await asyncio.gather(*(ask(accepting) for _ in range(64)))
        gone = Refused(reason="link-not-valid")
        assert sorted(map(type, answers), key=str) == [InvitationAccepted] + [Refused] * 63
        assert {answer.reason for answer in answers if isinstance(answer, Refused)} == {"link-not-valid"}
        assert await ask(FindInvitation(link_sha256=link)) == gone
        assert await ask(IsInvited(email=address)) == Invited(is_invited=False)
    assert await roles_of(template, organization["id"], user) == [role]
    shown = (await template.client.get(f"{PATH}/{invitation['id']}")).json()
    assert (shown["status"], shown["acceptedUserId"]) == ("Accepted", user)


async def test_an_address_that_only_compares_equal_is_not_invited(template: Template) -> None:
    """The letter \u00df folds to ss: each of the two domains may be another person's."""
    address = f"{unique('ada')}@strasse.test"
    await invited(template, address)
    async with Asked(template) as ask:
        for email, expected in ((address.upper(), True), (address.replace("strasse", "stra\u00dfe"), False)):
            assert await ask(IsInvited(email=email)) == Invited(is_invited=expected), email


async def test_a_link_ends_when_another_is_mailed_and_with_its_invitation(
    template: Template, mails: QueuedMail
) -> None:
    address = an_address()
    user = await user_with(template, address)
    gone = Refused(reason="link-not-valid")

    async def ended(ask: Asked, link: str) -> None:
        assert await ask(FindInvitation(link_sha256=link)) == gone
        assert await ask(AcceptInvitation(link_sha256=link, user_id=user)) == gone

    async with Asked(template) as ask:
        invitation = await invited(template, address, messagePayload={})
        first = await link_of(mails, address)
        await set_in(template, invitation, "sent_at", [])
        assert (await template.client.post(f"{PATH}/{invitation['id']}/message", json={})).is_success
        second = await link_of(mails, address)
        await ended(ask, first)
        await decided(template, invitation, status="Revoked")
        await ended(ask, second)

        invitation = await invited(template, address, messagePayload={})
        await set_in(template, invitation, "expires_at", now_ms())
        await ended(ask, await link_of(mails, address))
        for path in ("organization-invitations/{id}", "organizations/{organizationId}"):
            invitation = await invited(template, address, messagePayload={})
            assert (await template.client.delete(f"/api/{path.format(**invitation)}")).status_code == 204
            await ended(ask, await link_of(mails, address))
        await ended(ask, "")
        assert await ask(IsInvited(email=address)) == Invited(is_invited=False)


@pytest.mark.heavy
async def test_where_no_mail_is_sent_invitations_are_created_without(servers: ServerAddresses, issuer: Issuer) -> None:
    refused, mailed = (422, "mail.not_configured"), dict[str, Any](messagePayload={})
    async with (
        Management(servers, issuer, smtp_url="", mail_from="") as management,
        Template(management) as template,
    ):
        organization = (await template.organization())["id"]
        body = {"organizationId": organization, "invitee": an_address(), "expiresAt": tomorrow()}
        assert refusal(await template.client.post(PATH, json={**body, **mailed})) == refused
        invitation = await invited(template, body["invitee"], organizationId=organization)
        assert refusal(await template.client.post(f"{PATH}/{invitation['id']}/message", json={})) == refused
        await management.__aexit__()
        unanswered = {**body, "invitee": an_address(), **mailed}  # the mail waits until its sender is there again
        assert (await template.client.post(PATH, json=unanswered)).is_success


async def test_a_restored_database_has_no_link_and_no_queued_mail(template: Template, mails: QueuedMail) -> None:
    """Rolled back, as other tests need what the service has read."""
    address = an_address()
    await invited(template, address, messagePayload={})
    sha256 = await link_of(mails, address)
    shared = Shared(template.settings, versions=VERSIONS, catch_up_wait_s=1)
    with pytest.raises(RuntimeError):
        async with shared.changes.transaction() as transaction:
            connection, tenant_id = transaction.connection, template.tenant_id
            mail = Mail(kind="organization-invitation", recipient=address)
            await MailOutbox(SealingKeys(template.settings.mail_keys), tenant_id=tenant_id).queue(connection, mail)
            await mend(transaction, [], revision=0, tenant_id=tenant_id)
            count = text("SELECT count(*) FROM mail_outbox WHERE tenant_id = :tenant")
            queued = await connection.scalar(count, {"tenant": tenant_id})
            assert (queued, await find_by_link(connection, tenant_id, sha256)) == (0, None)
            raise RuntimeError
    await shared.connections.stop()

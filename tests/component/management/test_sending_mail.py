"""Sending mail: what a mail server may answer, TLS, long outages, and mail that is not sent."""

from __future__ import annotations

import base64
import ssl
from collections.abc import AsyncIterator
from email.message import EmailMessage
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2 as httpx
import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry
from sqlalchemy import text

from identity_common.clock import now_ms
from identity_common.sealing import SealingKeys
from identity_common.smtp_address import SmtpAddress
from identity_common.wire.account_links import LinkContext
from identity_common.wire.mail import Mail, mail_subject
from management_service.links.store import MailedLinks
from management_service.mail.smtp import SmtpServer
from management_service.mail.transports import Nowhere, Unreachable
from provision import ServerAddresses
from tests.support.issuer import Issuer
from tests.support.mail import MailServer, MailTenant
from tests.support.management_api import Management
from tests.support.tls_terminator import Certificate
from tests.support.waiting import eventually_here

MAIL = Mail(
    kind="password-recovery",
    recipient="ada@id.test",
    language="de",
    values={"link": "/sign-in/recovery?a=1#secret", "minutes": "15"},
)
DAY_MS = 86_400_000


def to(recipient: str, **changed: Any) -> Mail:
    return replace(MAIL, recipient=recipient, **changed)


def over(server: MailServer, **changed: Any) -> SmtpServer:
    address = SmtpAddress.parse(f"smtp://127.0.0.1:{server.port}")
    options: dict[str, Any] = {"local_hostname": "id.test", "requires_tls": False, "timeout_s": 5.0}
    return SmtpServer(changed.pop("address", address), **{**options, **changed})


def part(message: EmailMessage, kind: str) -> str:
    found = message.get_body((kind,))
    assert found is not None
    return str(found.get_content())


@pytest.fixture
async def mail(management: Management) -> AsyncIterator[MailTenant]:
    async with MailTenant(management) as mail:
        yield mail


@pytest.fixture
async def server() -> AsyncIterator[MailServer]:
    async with MailServer() as server:
        yield server


def counted(registry: CollectorRegistry, reason: str) -> float:
    return registry.get_sample_value("stead_mail_failed_total", {"reason": reason}) or 0


@pytest.fixture
async def own(servers: ServerAddresses, issuer: Issuer, server: MailServer) -> AsyncIterator[Management]:
    """A service that sends its mail to this server."""
    settings = {"smtp_url": f"smtp://127.0.0.1:{server.port}", "smtp_require_tls": False, "smtp_timeout_s": 5.0}
    async with Management(servers, issuer, mail_from="Acme <stead@büro.test>", mail_name="Acme", **settings) as own:
        yield own


@pytest.mark.servers
async def test_the_service_sends_mail_in_plain_text_and_html(own: Management, server: MailServer) -> None:
    branding = {"branding": {"primaryColor": "#aa0055"}}
    application = await own.created("applications", name="Shop <x>", type="Traditional", **branding)
    user, deleted = (await own.created("users", name="Ada"))["id"], (await own.created("users", name="Eve"))["id"]
    assert (await own.client.delete(f"/api/users/{deleted}")).status_code == 204
    server.refusals = {"gone": ["550 5.1.1 no such user"]}
    async with MailTenant(own, tenant_id=own.tenant_id) as mail:
        await mail.queue(
            MAIL,
            to("eve@id.test", user_id=deleted),
            to("ada@büro.test", application_id=application["id"], user_id=user),
        )
        await mail.queue(to("gone@id.test", user_id=user))
        await mail.emptied()
        first, second = server.messages()
        assert (first["From"], first["To"]) == ("Acme <stead@xn--bro-hoa.test>", "ada@id.test")
        assert (first["Auto-Submitted"], first["Content-Language"]) == ("auto-generated", "de")
        assert (first["Subject"], second["Subject"]) == (
            "Neues Passwort für Acme wählen",
            "Neues Passwort für Shop <x> wählen",
        )
        for kind in ("plain", "html"):
            assert f"{own.settings.base_url}/sign-in/recovery?a=1#secret" in part(first, kind)
        assert "background: #aa0055" in part(second, "html")
        assert server.recipients() == ["ada@id.test", "ada@xn--bro-hoa.test"]
        answer = await own.client.get("/api/mail/failures")
        (failure,) = answer.json()
        assert answer.headers["Total-Number"] == "1"
        assert {name: failure[name] for name in failure.keys() - {"id", "occurredAt"}} == {
            "kind": "password-recovery",
            "reason": "refused",
            "recipient": "gone@id.test",
            "userId": user,
            "code": 550,
            "answer": "5.1.1 no such user",
        }
        for search, found in (("gone@", [failure]), ("registration", [])):
            assert (await own.client.get("/api/mail/failures", params={"q": search})).json() == found
        for scope, status in (("users:read", 200), ("read", 200), ("config:read", 403), ("logs:read", 403)):
            async with own.client_with(own.token(scope=scope)) as client:
                assert (await client.get("/api/mail/failures")).status_code == status, scope
        assert (await own.client.delete(f"/api/users/{user}")).status_code == 204
        assert await mail.failures() == []


@pytest.mark.servers
async def test_refusals_for_good_are_told_apart_from_those_for_now(mail: MailTenant, server: MailServer) -> None:
    server.refusals = {
        "gone": ["550 5.1.1 no such user"],
        "later": ["451 4.7.1 greylisted"],
    }
    async with mail.sending(over(server)) as registry:
        await mail.queue(to("gone@id.test"), to("later@id.test"), to("ada@id.test"))
        await eventually_here(lambda: server.recipients() == ["ada@id.test"])
        await eventually_here(lambda: counted(registry, "refused") == 1)
    assert await mail.failures() == [("gone@id.test", "refused", 550)]
    assert await mail.in_stream() == 1


@pytest.mark.servers
async def test_a_mail_at_which_the_server_ends_the_connection_holds_up_none(
    mail: MailTenant, server: MailServer
) -> None:
    """A server that asks the recipient's may wait until it gives up: anyone can name such a recipient."""
    server.refusals = {"cursed": ["421 4.4.2 closing"]}
    async with mail.sending(over(server)):
        await mail.queue(to("cursed@id.test"))
        await mail.attempted()
        await mail.queue(to("ada@id.test"))
        await mail.emptied(but=1)
    assert (server.recipients(), await mail.failures()) == (["ada@id.test"], [])


@pytest.mark.heavy
async def test_recipients_at_which_the_server_hangs_hold_up_no_others(mail: MailTenant, server: MailServer) -> None:
    """A server that asks the recipient's may wait for minutes, and anyone can name twenty such recipients."""
    hanging = [f"hang{number}@id.test" for number in range(20)]
    server.hangs_at, server.refusals = "hang", {"hang0@": ["550 5.1.1 no such user"]}
    async with mail.sending(over(server, timeout_s=120.0), timeout_s=120.0):
        await mail.queue(*map(to, hanging))
        await mail.queue(to("ada@id.test"))
        await eventually_here(lambda: server.recipients() == ["ada@id.test"])
        server.released.set()
        await mail.emptied()
    assert sorted(server.recipients()) == sorted(["ada@id.test", *hanging[1:]])
    assert await mail.failures() == [("hang0@id.test", "refused", 550)]


@pytest.mark.servers
async def test_a_mail_without_a_text_or_an_address_is_given_up_and_holds_up_none(
    mail: MailTenant, server: MailServer
) -> None:
    unusable = [
        to("ada@id.test", values={"link": "https://evil.test/", "minutes": "15"}),
        to("ada@id.test", values={"link": "//evil.test/", "minutes": "15"}),
        to("ada@id.test", values={"link": "/x\r\nBcc: eve@evil.test", "minutes": "15"}),
        to("ada@id.test", values={"minutes": "15"}),
        to("ada@id.test", values={"link": "/x", "minutes": "soon"}),
        *(
            to(address)
            for address in ("ada@id.test\r\nBcc: eve@evil.test", "ada", "@id.test", "a@b@", "a@-_.!", "a" * 300)
        ),
    ]
    async with mail.sending(over(server)) as registry:
        await mail.jetstream.publish(mail_subject("management", mail.tenant_id), b"not a mail")
        await mail.queue(*unusable, to(""), to("ada@id.test"))
        await mail.emptied()
        assert (counted(registry, "unusable"), counted(registry, "malformed")) == (len(unusable), 1)
    assert server.recipients() == ["ada@id.test"]
    # Those of one millisecond have no order.
    assert sorted(await mail.failures()) == sorted((each.recipient, "unusable", None) for each in unusable)


@pytest.mark.servers
async def test_names_reach_neither_headers_nor_markup(mail: MailTenant, server: MailServer) -> None:
    name = "Evil\r\nBcc: eve@evil.test\u2028<script>alert(1)</script>"
    message = f"{name}\n\n.\nQUIT"
    values = {"link": "/invitation", "organization": name, "inviter": name, "message": message, "minutes": "15"}
    invitation = Mail(kind="organization-invitation", recipient='"a,b"@id.test', values=values)
    async with mail.sending(over(server)):
        await mail.queue(invitation, MAIL)
        await mail.emptied()
    sent, _ = server.messages()
    assert server.recipients() == ['"a,b"@id.test', "ada@id.test"]
    assert "Bcc" not in sent
    assert sent["Subject"].startswith("Invitation to Evil Bcc: eve@evil.test")
    html = part(sent, "html")
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "> .\n> QUIT" in part(sent, "plain").replace("\r\n", "\n")


@pytest.mark.servers
async def test_an_address_beyond_ascii_needs_a_server_with_smtputf8(mail: MailTenant, server: MailServer) -> None:
    async with mail.sending(over(server)):
        await mail.queue(to("jürgen@büro.test"))
        await mail.emptied()
    assert server.recipients() == ["jürgen@xn--bro-hoa.test"]
    assert server.messages()[0]["To"] == "jürgen@xn--bro-hoa.test"


@pytest.mark.servers
@pytest.mark.parametrize(("scheme", "wrapping"), [("smtp", "starttls"), ("smtps", "tls")])
async def test_a_password_and_mail_travel_over_tls_to_a_server_with_a_trusted_certificate(
    mail: MailTenant, tmp_path: Path, scheme: str, wrapping: str
) -> None:
    certificate = Certificate(tmp_path, "mail")
    trusting = ssl.create_default_context(cafile=certificate.path)
    async with MailServer(**{wrapping: certificate.context}, login=("stead", "p@ss")) as server:

        def at(password: str) -> SmtpAddress:
            return SmtpAddress.parse(f"{scheme}://stead:{password}@localhost:{server.port}")

        transport = over(server, address=at("p%40ss"), requires_tls=True, trusted=trusting)
        async with mail.sending(transport):
            await mail.queue(MAIL)
            await mail.emptied()
        assert server.recipients() == ["ada@id.test"]
        for password, trusted, why in (
            ("wrong", trusting, "535"),
            ("p%40ss", None, "SSLCertVerificationError|SMTPConnectError"),
        ):
            with pytest.raises(Unreachable, match=why):
                async with over(server, address=at(password), requires_tls=True, trusted=trusted).session():
                    raise AssertionError


async def test_a_server_without_starttls_gets_neither_mail_nor_password(server: MailServer) -> None:
    address = SmtpAddress.parse(f"smtp://stead:secret@localhost:{server.port}")
    with pytest.raises(Unreachable):
        async with over(server, address=address, requires_tls=True).session():
            raise AssertionError
    assert (server.logins, server.sessions) == ([], 1)


@pytest.mark.servers
async def test_a_server_that_is_away_loses_no_mail_of_many_and_gets_each_once(
    mail: MailTenant, server: MailServer
) -> None:
    many = [to(f"user-{number}@id.test") for number in range(150)]
    server.stop()
    async with mail.sending(over(server)):
        await mail.queue(*many)
        await mail.attempted()
        assert (server.envelopes, await mail.in_stream()) == ([], len(many))
        await server.start()
        await mail.emptied()
    assert sorted(server.recipients()) == sorted(each.recipient for each in many)
    assert server.sessions <= 4
    assert await mail.failures() == []


@pytest.mark.servers
async def test_a_mail_is_given_up_after_a_day_or_with_its_link(mail: MailTenant, server: MailServer) -> None:
    now = now_ms()
    server.stop()
    async with mail.sending(over(server), clock=lambda: now + 1000):
        await mail.queue(to("link@id.test", expires_at=now), to("day@id.test"))
        await mail.emptied(but=1)
    assert await mail.failures() == [("link@id.test", "expired", None)]
    async with mail.sending(over(server), clock=lambda: now + DAY_MS + 60_000):
        await mail.emptied()
    assert await mail.failures() == [("link@id.test", "expired", None), ("day@id.test", "expired", None)]


@pytest.mark.servers
async def test_links_that_have_expired_are_forgotten_with_their_addresses(mail: MailTenant) -> None:
    """Also without a later link; one whose row a transaction holds is left for the next time."""

    async def subjects() -> set[str]:
        found = await mail.database.fetch("SELECT subject FROM mailed_links WHERE tenant_id = $1", mail.tenant_id)
        return {row["subject"] for row in found}

    links = MailedLinks(tenant_id=mail.tenant_id)
    async with mail.engine.begin() as connection:
        for subject, lifetime_s in (("past", 1), ("held", 1), ("future", 60)):
            await links.put(
                connection, "registration", subject, address="a@id.test", context=LinkContext(), lifetime_s=lifetime_s
            )
    then = now_ms() + 30_000
    async with mail.engine.begin() as connection:
        await connection.execute(text("SELECT FROM mailed_links WHERE subject = 'held' FOR UPDATE"))
        async with mail.sending(Nowhere(), clock=lambda: then):
            await mail.queue(MAIL)
            await mail.emptied()  # links are forgotten before the first mail is taken
    assert await subjects() == {"held", "future"}


@pytest.mark.servers
async def test_without_a_mail_server_every_mail_is_a_failure_and_nothing_waits(mail: MailTenant) -> None:
    async with mail.sending(Nowhere()):
        await mail.queue(MAIL)
        await mail.emptied()
    assert await mail.failures() == [("ada@id.test", "not-configured", None)]


@pytest.mark.servers
async def test_mail_that_no_key_opens_waits_for_the_key(mail: MailTenant, server: MailServer) -> None:
    other = SealingKeys([base64.b64encode(bytes(32)).decode()])
    async with mail.sending(over(server), keys=other):
        await mail.queue(MAIL)
        await mail.attempted()
    assert (server.envelopes, await mail.in_stream(), await mail.failures()) == ([], 1, [])


@pytest.mark.servers
async def test_a_folder_keeps_mail_for_this_machine_alone(
    servers: ServerAddresses, issuer: Issuer, tmp_path: Path
) -> None:
    folder = tmp_path / "mail"
    async with Management(servers, issuer, smtp_url="", mail_folder=str(folder)) as own:
        host = urlsplit(own.settings.base_url).netloc

        async def get(path: str, *, client: str = "127.0.0.1", **headers: str) -> httpx.Response:
            transport = httpx.ASGITransport(own.app, client=(client, 1))  # type: ignore[arg-type]
            async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}") as browser:
                return await browser.get(path, headers=headers)

        assert "No mail was sent yet." in (await get("/mail")).text
        values = {"link": "/invitation?a=1", "organization": "<script>alert(1)</script>", "minutes": "15"}
        invitation = Mail(kind="organization-invitation", recipient="ada@id.test", values=values)
        async with MailTenant(own, tenant_id=own.tenant_id) as mail:
            await mail.queue(invitation)
            await mail.emptied()
        (path,) = folder.iterdir()
        assert folder.stat().st_mode & 0o777 == 0o700
        page, plain, html = [await get(f"/mail{below}") for below in ("", f"/{path.stem}", f"/{path.stem}/html")]
        assert f'<a href="/mail/{path.stem}">' in page.text
        assert f'<a href="{own.settings.base_url}/invitation?a=1">' in plain.text
        assert "<script>" not in page.text + plain.text + html.text
        assert html.headers["Content-Security-Policy"].startswith("sandbox; default-src 'none'")
        assert {answer.headers["Referrer-Policy"] for answer in (page, plain, html)} == {"no-referrer"}
        refused = [
            await get("/mail", client="10.0.0.7"),
            await get("/mail", **{"X-Forwarded-For": "127.0.0.1"}),
            await get("/mail", Host="evil.test"),
            *[await get(f"/mail/{name}") for name in ("a" * 21, "..%2fx", path.name)],
        ]
        assert [answer.status_code for answer in refused] == [404] * 6
    async with Management(servers, issuer) as without:
        assert (await without.client.get("/mail")).status_code == 404

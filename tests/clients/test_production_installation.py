"""A new installation with production settings, in a browser; and pages while management-service is down."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from all_in_one.embedded import EmbeddedServers
from tests.support.at_a_browser import PASSWORD
from tests.support.browser import VirtualAuthenticator
from tests.support.factors import AuthenticatorApp
from tests.support.kubernetes_secrets import ADMINISTRATOR, CONSOLE, Recorded
from tests.support.processes import Deployment, Edge

pytestmark = [pytest.mark.clients, pytest.mark.asyncio(loop_scope="session")]


@pytest.fixture(scope="module")
def kubernetes() -> Iterator[Recorded]:
    with Recorded.running() as server:
        yield server


@pytest.fixture(scope="module")
def credentials(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("console")


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory, credentials: Path) -> Iterator[Deployment]:
    """The services as processes, with the settings of the production manifests."""
    servers = EmbeddedServers(tmp_path_factory.mktemp("servers"), sync=False)
    first = {
        "BOOTSTRAP_CONSOLE_MINIMUM_ACR": "mfa",
        "BOOTSTRAP_REQUIRE_ACTOR": "true",
        "BOOTSTRAP_REQUIRE_CONTEXT": "reason",
        "BOOTSTRAP_EXCLUDED_ROLES": "Administrator",
    }
    with Edge() as edge:
        try:
            with Deployment(
                servers.start(),
                tmp_path_factory.mktemp("logs"),
                console_credentials=credentials,
                management_settings=first,
                base_url=edge.base_url,
                environment="production",
            ) as installation:
                edge.replicas = installation.urls
                yield installation
        finally:
            servers.delete()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def bootstrapped(kubernetes: Recorded, installation: Deployment, credentials: Path) -> dict[str, str]:
    """Run the Job; return the Secret of the first administrator."""
    await kubernetes.bootstrap(installation.management_settings)
    for key, value in kubernetes.values(CONSOLE).items():
        (credentials / key).write_text(value)
    return kubernetes.values(ADMINISTRATOR)


@pytest.fixture
async def other(browser: Browser) -> AsyncIterator[Page]:
    """Another person's browser."""
    context = await browser.new_context(locale="de")
    yield await context.new_page()
    await context.close()


async def follow_invitation(page: Page, name: str) -> None:
    """Choose a password, and open the console with it."""
    await page.locator("[name=password]").fill(PASSWORD)
    await page.locator("[name=repeated]").fill(PASSWORD)
    await page.locator("[name=repeated]").press("Enter")
    await page.locator("a[href='/console']").click()
    await sign_in(page, name)


async def sign_in(page: Page, name: str) -> None:
    await page.locator("#identifier").fill(name)
    await page.locator("#password").fill(PASSWORD)
    await page.locator("#password").press("Enter")


async def test_the_first_administrator_enrols_and_invites_another_who_must_too(
    page: Page, other: Page, installation: Deployment, bootstrapped: dict[str, str], kubernetes: Recorded
) -> None:
    console, heading = f"{installation.base_url}/console", page.get_by_role("heading", level=1)
    await VirtualAuthenticator.plug_in(page)
    await page.goto(f"{console}/invitation")
    await page.get_by_label("Code of the invitation").fill(bootstrapped["invitation"])
    await follow_invitation(page, bootstrapped["username"])
    await expect(heading).to_have_text("Protect your account")
    await page.get_by_role("link", name="Create a passkey").click()
    await page.get_by_role("button", name="Create a passkey").click()
    await expect(heading).to_have_text("Keep your recovery codes")
    await page.get_by_role("link", name="I have kept them: continue").click()
    await page.wait_for_url(console)
    await kubernetes.bootstrap(installation.management_settings)
    assert kubernetes.values(ADMINISTRATOR) == bootstrapped, "who has a factor needs no code"

    await page.goto(f"{console}/users/invite")
    await page.get_by_label("E-mail", exact=True).fill("grace@example.com")
    await page.get_by_role("radio", name="Auditor").check()
    await page.keyboard.press("Enter")
    await other.goto(await page.locator("#secret").inner_text())
    await follow_invitation(other, "grace@example.com")
    await expect(other.get_by_role("heading", level=1)).to_have_text("Schützen Sie Ihr Konto")
    await other.locator("a.button.quiet").click()
    app = AuthenticatorApp((await other.locator("code.key").inner_text()).replace(" ", ""))
    await other.locator("#current").fill(app.code())
    await other.locator("#current").press("Enter")
    await other.locator(".way-back a").click()
    await other.wait_for_url(console)
    await expect(other.get_by_role("link", name="Prüfprotokoll")).to_be_visible()


async def test_while_management_service_is_down_pages_say_so_in_german_and_lose_nothing(
    other: Page, installation: Deployment, bootstrapped: dict[str, str]
) -> None:
    name, account = f"ada_{secrets.token_hex(4)}", f"{installation.base_url}/account"
    heading, alert = other.get_by_role("heading", level=1), other.get_by_role("alert")
    with installation.management_client() as management:
        ada = management.users.create(username=name, password=PASSWORD, name="Ada").id
        code = management.users.create_enrolment_code(ada).code
    await other.goto(account)
    installation.management.kill()
    await sign_in(other, name)
    await expect(alert).to_have_text("Die Anmeldung ist gerade nicht möglich. Versuchen Sie es gleich noch einmal.")
    await expect(other.locator("#identifier")).to_have_value(name)
    await started(installation)
    await sign_in(other, name)
    await other.wait_for_url(account)

    await other.goto(f"{account}/factors/set-up/add-authenticator")
    app = AuthenticatorApp((await other.locator("code.key").inner_text()).replace(" ", ""))
    await other.locator("#current").fill(app.earlier())
    await other.locator("#enrolment-code").fill(code)
    await other.locator("#enrolment-code").press("Enter")
    await other.locator(".way-back a").click()
    await other.goto(f"{account}/edit")
    await other.get_by_label("Name", exact=True).fill("Ada Lovelace")
    installation.management.kill()
    await other.keyboard.press("Enter")
    await expect(heading).to_have_text("Das geht gerade nicht")
    await started(installation)
    await other.reload()
    await expect(heading).to_have_text("Ada Lovelace")

    await other.context.clear_cookies()
    await other.goto(account)
    await sign_in(other, name)
    await other.locator("#code").fill(app.code())
    installation.management.kill()
    await other.keyboard.press("Enter")
    await expect(heading).to_have_text("Einen Moment bitte")
    await started(installation)
    await other.reload()
    await other.wait_for_url(account)


async def started(installation: Deployment) -> None:
    installation.management.start()
    await asyncio.to_thread(installation.management.wait_until_ready)

"""``make screenshots``: pictures of every page of the console, the account page, the sign-in and the support desk.

Starts a system of its own, follows the links of the console and of the account page, the first of each kind of page,
and those of mails, and takes each page in both themes, on a phone and on a desktop. Replaces the pictures in
docs/images as well, unless it is limited to pages whose names match ``ONLY=``, or takes another language, ``IN=``.
Not a test.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Page

from all_in_one.demo.actor_token import sign_in_agent
from provision.credentials import Credentials, read_credentials
from stead import ManagementClient, OidcClientMetadata, exchange_subject_token
from tests.support.camera import Camera, browser_tab
from tests.support.processes import free_port
from tests.support.provider import CLIENT, SECRET, Provider
from tests.support.serving import serving
from tests.support.sign_in_pictures import Shown, SignInPictures
from tests.support.support_desk import RunningDesk
from tests.support.waiting import eventually

CONSOLE, ACCOUNT = "/console", "/account"
UNLINKED = {
    "search": "/console/search?q=a",
    "search-nothing": "/console/search?q=nothing-at-all",
    "users-none": "/console/users?search=nothing-at-all",
    "shortcuts": "/console/shortcuts",
    "not-found": "/console/users/nobody",
}
ID = re.compile(r"/(?!applications/|applications$)[0-9a-z]{12}(?:[0-9a-z]{9})?(?=/|$)")
PEOPLE = ("Ada Lovelace", "Alan Turing", "Annie Easley", "Edsger Dijkstra", "Grace Hopper", "Katherine Johnson")
PERMISSIONS = ("invite:member", "read:invoice", "pay:invoice", "delete:invoice", "export:report")
ROLES = {"owner": PERMISSIONS, "accountant": PERMISSIONS[1:3], "auditor": PERMISSIONS[1:2] + PERMISSIONS[4:]}
REASONS = ("The invoice of October cannot be opened.", "A payment was booked twice.", "The export stops at page 3.")
SCRIPT = """const getCustomJwtClaims = async ({ context, environmentVariables }) => {
  const { ticketId } = context.grant.subjectTokenContext ?? {};
  const { plan } = context.user.customData;
  return { plan, region: environmentVariables.REGION, ...(ticketId && { ticket: ticketId }) };
};
"""


def populate(management: ManagementClient, base_url: str, credentials: Credentials, shown: Shown) -> str:
    """Create what a small company would have; return the id of an impersonation that was ended."""
    application = credentials.traditional
    _, actor_token = sign_in_agent(credentials)
    people = [management.users.create(name=name, username=name.partition(" ")[0].lower() + "1").id for name in PEOPLE]
    permissions = {name: management.organization_permissions.create(name).id for name in PERMISSIONS}
    roles = [
        management.organization_roles.create(name, permission_ids=[permissions[each] for each in granted]).id
        for name, granted in ROLES.items()
    ]
    for name in ("Harbour Books", "Northwind Bakery", "Tidewater Printing"):
        organization = management.organizations.create(name).id
        management.organizations.add_users(organization, people)
        management.organization_invitations.create(
            organization, "radia@example.com", expires_at=int((time.time() + 86_400) * 1000), role_ids=roles[:1]
        )
        for person, role in zip(people, roles * 2, strict=True):
            management.organizations.assign_user_roles(organization, person, [role])
    management.applications.create(
        name="Order desk",
        type="SPA",
        oidc_client_metadata=OidcClientMetadata(redirect_uris=["https://desk.example.com/callback"]),
    )
    for script in (
        SCRIPT.replace("  const { plan } = context.user.customData;\n", "").replace("plan, ", ""),
        SCRIPT,
    ):
        management.custom_claims.save("access-token", script, environment_variables={"REGION": "eu"})
    ended = ""
    (administrator,) = management.users.list(exact={"username": credentials.administrator.username})
    for user_id, name in ((administrator.id, "administrator"), (credentials.demo.users[0].id, "agent")):
        management.users.update(user_id, primary_email=f"{name}@example.com")
    acted_as = (people[0], shown.user_id, people[2])
    for number, (user_id, reason) in enumerate(zip(acted_as, REASONS, strict=True)):
        asked = management.subject_tokens.create(user_id, {"reason": reason, "ticketId": f"T-{4711 + number}"})
        exchange_subject_token(
            base_url,
            client_id=application.client_id,
            client_secret=application.client_secret,
            subject_token=asked.token,
            actor_token=actor_token,
            resource=credentials.demo.resource,
        )
        ended = asked.impersonation_id
    management.impersonations.end(ended)
    eventually(lambda: len(list(management.impersonations.list())) == len(REASONS))
    return ended


def sign_in(page: Page, base_url: str, credentials: Credentials) -> None:
    page.goto(f"{base_url}{CONSOLE}")
    page.locator("#identifier").fill(credentials.administrator.username)
    page.locator("#password").fill(credentials.administrator.password)
    page.locator("#password").press("Enter")
    page.wait_for_url(f"{base_url}{CONSOLE}")


def pages(page: Page, base_url: str, home: str) -> dict[str, str]:
    """Return the address of the first page of each kind that links of a site lead to, by a name."""
    found, waiting = {"": home}, [home]
    while waiting:
        page.goto(base_url + waiting.pop(0))
        addresses = page.eval_on_selector_all("main a[href], nav a[href]", "each => each.map(link => link.href)")
        for address in addresses:
            path = urlsplit(address).path
            kind = re.sub(r"/\d+$", "/n", ID.sub("/id", path.removeprefix(home)))
            if path.startswith(home) and kind not in found and not kind.endswith(("/export", "/proof")):
                found[kind] = address.removeprefix(base_url)
                waiting.append(found[kind])
    return {kind.strip("/").replace("/", "-") or "home": address for kind, address in found.items()}


def take_provider(camera: Camera, provider: Provider, management: ManagementClient, shown: Shown) -> dict[str, str]:
    """Take the pictures of the sign-in with a provider's button; return the addresses of pages that have its people."""
    organization = next(iter(management.organizations.list(search="Northwind")))
    role = next(each for each in management.organization_roles.list() if each.name == "accountant")
    config = {"issuer": provider.issuer, "clientId": CLIENT, "clientSecret": SECRET}
    connector = management.connectors.create("Northwind's Okta", config, groups_claim="groups").id
    management.organizations.add_jit_group(organization.id, connector, "billing", [role.id])
    management.organizations.add_jit_roles(organization.id, [role.id])
    management.users.update(shown.user_id, allows_password=True)
    management.users.add_identity(shown.user_id, connector, "00u1b2c3d4")
    provider.person = {"sub": "00u5e6f7g8", "name": "Barbara Liskov", "groups": ["billing"]}
    page = camera.page
    page.goto(shown.sign_in)
    button = page.locator(f"button[value='{connector}']")
    eventually(lambda: bool(page.reload()) and button.is_visible())
    camera.take("sign-in-with-connector")
    button.click()
    page.locator("button[value=allow]").wait_for()
    page.context.clear_cookies()
    management.connectors.update(connector, domains=["northwind.example"])
    eventually(lambda: bool(page.goto(shown.sign_in)) and not page.locator("#password").is_visible())
    camera.take("sign-in-identifier")
    management.connectors.update(connector, domains=[])
    eventually(lambda: bool(page.goto(shown.sign_in)) and page.locator("#password").is_visible())
    (person,) = management.users.list(search="Liskov")
    here = f"{CONSOLE}/organizations/{organization.id}"
    return {
        "users-at-a-provider": f"{CONSOLE}/users/{person.id}",
        "organizations-joining": f"{here}/joining",
        "organizations-members-by-groups": f"{here}/users",
        "organizations-member-by-a-group": f"{here}/users/{person.id}",
    }


def take_site(camera: Camera, base_url: str, home: str, prefix: str = "", **more: str) -> dict[str, str]:
    """Take the pictures of a site's pages; return the addresses of all of them."""
    addresses = pages(camera.page, base_url, home) | more
    for name, address in addresses.items():
        if camera.takes(prefix + name):
            camera.page.goto(base_url + address)
            camera.take(prefix + name)
    return addresses


def take_states(camera: Camera, base_url: str) -> None:
    """Take the pictures of what appears only after a click."""
    page = camera.page
    page.goto(f"{base_url}{CONSOLE}")
    camera.look_as_on_a_phone()
    page.get_by_role("button", name="Menu").click()
    camera.take("menu", widths=(390,))
    page.goto(f"{base_url}{CONSOLE}/template")
    page.locator(".matrix input[type=checkbox]").first.click()
    page.locator("form:has(.matrix) button[type=submit]").first.click()
    camera.take("template-changes")


def take_desk(camera: Camera, url: str, credentials: Credentials, management: ManagementClient) -> None:
    """Take the pictures of the support desk, where an agent acts as a customer, and then must sign in again."""
    page, agent = camera.page, credentials.demo.users[0]
    page.goto(url)
    camera.take("desk-welcome")
    page.get_by_role("link", name="Sign in").click()
    camera.take("sign-in")
    page.locator("#identifier").fill(agent.username)
    page.locator("#password").fill(agent.password)
    page.locator("#password").press("Enter")
    page.get_by_role("heading", level=1, name="Customers").wait_for()
    camera.take("desk-customers")
    page.get_by_role("link", name="Act as Customer").click()
    page.get_by_label("Ticket").fill("T-1042")
    page.get_by_label("Reason").fill("Cannot see an order since the move")
    camera.take("desk-reason")
    page.get_by_role("button", name="Act as Customer").click()
    page.get_by_role("heading", level=1, name="Orders of Customer").wait_for()
    camera.take("desk-customer")
    camera.document("support-desk")
    page.get_by_role("button", name="Stop").click()
    management.impersonation_policy.update(actor_acr="mfa")
    page.get_by_role("link", name="Act as Customer").click()
    page.get_by_label("Ticket").fill("T-1043")
    page.get_by_label("Reason").fill("Cannot see an order since the move")
    page.get_by_role("button", name="Act as Customer").click()
    page.get_by_role("heading", level=1, name="Sign in again").wait_for()
    camera.take("desk-sign-in-again")


def main(directory: Path, documents: Path, *, only: str, language: str) -> None:
    """Take all pictures."""
    directory.mkdir(parents=True, exist_ok=True)
    port, home = free_port(), Path(tempfile.mkdtemp(prefix="stead-screenshots-"))
    command = [sys.executable, "-m", "all_in_one", "--port", str(port), "--directory", str(home)]
    with ExitStack() as entered:
        entered.enter_context(serving(command, port))
        page = entered.enter_context(browser_tab(language))
        eventually(lambda: read_credentials(home) is not None)
        credentials = read_credentials(home)
        assert credentials is not None
        base_url, access = credentials.base_url, credentials.management_api
        provider = entered.enter_context(Provider())
        management = entered.enter_context(
            ManagementClient(
                base_url, client_id=access.client_id, client_secret=access.client_secret, resource=access.resource
            )
        )
        camera = Camera(page, directory, documents, only=only)
        shown = SignInPictures(camera, management, base_url, home / "mail").take()
        ended = populate(management, base_url, credentials, shown)
        page.goto(f"{base_url}{ACCOUNT}")
        signed_in = page.context.cookies()
        page.context.clear_cookies()
        of_provider = take_provider(camera, provider, management, shown)
        page.context.add_cookies(signed_in)  # type: ignore[arg-type]  # what it returns, it takes
        take_site(camera, base_url, ACCOUNT, "account-")
        page.context.clear_cookies()
        sign_in(page, base_url, credentials)
        user = f"{CONSOLE}/users/{shown.user_id}"
        factors = {"users-with-factors": user, "users-factors-reset": f"{user}/factors/reset"}
        addresses = take_site(camera, base_url, CONSOLE, **UNLINKED, **factors, **of_provider)
        if not only and language == "en":
            for name, address in {
                "console-impersonation": f"{CONSOLE}/impersonations/{ended}",
                "console-template": f"{CONSOLE}/template",
                "console-member": addresses["organizations-id-users-id"],
            }.items():
                page.goto(base_url + address)
                camera.document(name)
            take_states(camera, base_url)
            page.context.clear_cookies()
            desk = RunningDesk(home)
            take_desk(camera, desk.url, credentials, management)
            desk.stop()
    sys.stdout.write(f"the pictures are in {directory}\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("documents", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--language", default="en")
    given = parser.parse_args()
    main(given.directory, given.documents, only=given.only, language=given.language)

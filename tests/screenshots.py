"""``make screenshots``: a picture of every page of the console, in both themes and two widths, of a system of its own.

Follows the links of the console, the first of each kind of page. Not a test.
"""

from __future__ import annotations

import re
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from playwright.sync_api import Page, sync_playwright

from all_in_one.demo.actor_token import sign_in_agent
from provision.credentials import Credentials, read_credentials
from stead import ManagementClient, OidcClientMetadata, exchange_subject_token
from tests.support.processes import free_port
from tests.support.serving import serving
from tests.support.waiting import eventually

CONSOLE = "/console"
CHROMIUM = "/usr/bin/chromium"
WIDTHS = (1280, 390)
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
ID = re.compile(r"/(?=[a-z]*\d)[0-9a-z]{12,21}(?=/|$)")
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


def populate(base_url: str, credentials: Credentials) -> None:
    """Create what a small company would have."""
    access, application = credentials.management_api, credentials.traditional
    _, actor_token = sign_in_agent(credentials)
    with ManagementClient(
        base_url, client_id=access.client_id, client_secret=access.client_secret, resource=access.resource
    ) as management:
        people = [
            management.users.create(name=name, username=name.partition(" ")[0].lower() + "1").id for name in PEOPLE
        ]
        permissions = {name: management.organization_permissions.create(name).id for name in PERMISSIONS}
        roles = [
            management.organization_roles.create(name, permission_ids=[permissions[each] for each in granted]).id
            for name, granted in ROLES.items()
        ]
        for name in ("Harbour Books", "Northwind Bakery", "Tidewater Printing"):
            organization = management.organizations.create(name).id
            management.organizations.add_users(organization, people)
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
        for number, (person, reason) in enumerate(zip(people, REASONS, strict=False)):
            asked = management.subject_tokens.create(person, {"reason": reason, "ticketId": f"T-{4711 + number}"})
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


def sign_in(page: Page, base_url: str, credentials: Credentials) -> None:
    page.goto(f"{base_url}{CONSOLE}")
    page.get_by_label("User name, e-mail or phone").fill(credentials.administrator.username)
    page.get_by_label("Password").fill(credentials.administrator.password)
    page.get_by_role("button", name="Sign in", exact=True).click()
    page.wait_for_url(f"{base_url}{CONSOLE}")


def pages(page: Page, base_url: str) -> dict[str, str]:
    """Return the address of the first page of each kind that links lead to, by a name."""
    found, waiting = {"": CONSOLE}, [CONSOLE]
    while waiting:
        page.goto(base_url + waiting.pop(0))
        addresses = page.eval_on_selector_all("main a[href], nav a[href]", "each => each.map(link => link.href)")
        for address in addresses:
            path = urlsplit(address).path
            kind = re.sub(r"/\d+$", "/n", ID.sub("/id", path.removeprefix(CONSOLE)))
            if path.startswith(CONSOLE) and kind not in found and not kind.endswith(("/export", "/proof")):
                found[kind] = address.removeprefix(base_url)
                waiting.append(found[kind])
    return {kind.strip("/").replace("/", "-") or "home": address for kind, address in found.items()}


def main(directory: Path) -> None:
    """Take all pictures."""
    directory.mkdir(parents=True, exist_ok=True)
    port, home = free_port(), Path(tempfile.mkdtemp(prefix="stead-screenshots-"))
    command = [sys.executable, "-m", "all_in_one", "--port", str(port), "--directory", str(home)]
    with serving(command, port) as base_url, sync_playwright() as playwright:
        eventually(lambda: read_credentials(home) is not None)
        credentials = read_credentials(home)
        assert credentials is not None
        populate(base_url, credentials)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(reduced_motion="reduce")
        sign_in(page, base_url, credentials)
        for name, path in pages(page, base_url).items():
            page.goto(base_url + path)
            for theme, width in product(THEMES, WIDTHS):
                page.emulate_media(color_scheme=theme)
                page.set_viewport_size({"width": width, "height": 800})
                page.screenshot(path=directory / f"{name}-{theme}-{width}.png", full_page=True)
        browser.close()
    sys.stdout.write(f"the pictures are in {directory}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

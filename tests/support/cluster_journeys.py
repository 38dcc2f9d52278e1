"""What people and programs do with a system in Kubernetes, through whichever edge answers at its address."""

import json
import secrets

import httpx2 as httpx
import jwt

from all_in_one.demo.browser import sign_in_as
from provision.credentials import DemoUser
from stead import IdentityClient, ManagementClient
from tests.support.administrator import CONSOLE, AtTheConsole, notices
from tests.support.cluster import kubectl, printed_by, secret, start_program, temporary_namespace
from tests.support.guides import code_of
from tests.support.impersonation import RESOURCE, Impersonation
from tests.support.organization_template import OrganizationTemplate
from tests.support.waiting import eventually

REDIRECT_URI = "https://app.example.com/callback"
PASSWORD = "unlike any documented example"


def impersonate(url: str, management: ManagementClient, impersonation: Impersonation, resource: str = RESOURCE) -> None:
    """Exchange a subject token, and see that it is spent: the walk-through."""
    subject_token = management.subject_tokens.create(impersonation.user_id).token
    form = {**impersonation.form(subject_token), "resource": resource}
    first, second = (httpx.post(f"{url}/oidc/token", data=form, auth=impersonation.auth) for _ in range(2))
    assert (first.status_code, first.json().get("scope")) == (200, "read:orders write:orders")
    assert (second.status_code, second.json()["error"]) == (400, "invalid_request")


def sign_in(url: str, management: ManagementClient) -> None:
    """Sign a new user in to a new application."""
    application = management.applications.create(
        name="Site", type="SPA", oidc_client_metadata={"redirectUris": [REDIRECT_URI]}
    )
    username = f"ada-{secrets.token_hex(4)}"
    user = management.users.create(username=username, password=PASSWORD, name="Ada Lovelace")
    person = DemoUser(id=user.id, username=username, password=PASSWORD, scopes=[])
    with IdentityClient(url, application.id) as client:
        claims = client.handle_callback(sign_in_as(person, client.sign_in_url(REDIRECT_URI), REDIRECT_URI))
        assert (claims["sub"], claims["iss"]) == (user.id, f"{url}/oidc")
        assert client.fetch_user_info()["name"] == "Ada Lovelace"


def _has_console(url: str) -> bool:
    """Whether the replica that a new connection reaches has the credentials of the console."""
    return httpx.get(f"{url}{CONSOLE}").status_code != 503


def enter_the_console(url: str, organization: str) -> None:
    """Create an organization in the console as the first administrator, whose invitation is accepted once."""
    # The kubelet notices a Secret that did not exist when it last looked once in a minute or two, for each replica.
    eventually(lambda: all(_has_console(url) for _ in range(20)), within_s=240)
    invited = secret("stead-administrator")
    administrator = AtTheConsole(url, invited["username"], PASSWORD)
    answer = administrator.sends(
        administrator.browser.get(f"{CONSOLE}/invitation"),
        invitation=invited["invitation"],
        password=PASSWORD,
        repeated=PASSWORD,
    )
    assert answer.status_code in {200, 422}, answer.text  # it may have been accepted before
    page = administrator.opens(f"{CONSOLE}/organizations/new")
    page = administrator.follows(administrator.sends(page, name=organization))
    assert notices(page) == [f"Created {organization}."]  # and every service has taken note


def hear_a_permission_and_use_it(url: str, management: ManagementClient, impersonation: Impersonation) -> None:
    """Have a subscriber in another namespace hear of a permission, and get an organization token that carries it."""
    template, permission = OrganizationTemplate(management), f"pay:{secrets.token_hex(4)}"
    organization = template.organization()
    role = template.role(permission_ids=[template.permission(permission)])
    with temporary_namespace("stead-subscriber", subscriber="true") as namespace:
        user, _, password = secret("subscriber")["nats-url"].removeprefix("nats://").partition("@")[0].partition(":")
        settings = {"NATS_URL": "nats://nats.stead:4222", "NATS_USER": user, "NATS_PASSWORD": password}
        start_program("watch", code_of("events.md")["watch.py"], namespace=namespace, settings=settings)
        template.member(organization, impersonation.user_id, role)
        heard = {"member": [organization, impersonation.user_id], "holds": [permission]}
        kubectl("wait", "--for=condition=Ready", "pod/watch", "--timeout=120s", namespace=namespace)
        eventually(lambda: heard in map(json.loads, printed_by("watch", namespace)))
    form = {
        **impersonation.form(management.subject_tokens.create(impersonation.user_id).token),
        "organization_id": organization,
        "scope": permission,
    }
    del form["resource"]
    answer = httpx.post(f"{url}/oidc/token", data=form, auth=impersonation.auth)
    assert answer.status_code == 200, answer.text
    claims = jwt.decode(answer.json()["access_token"], options={"verify_signature": False})
    assert (claims["scope"], claims["aud"]) == (permission, f"urn:service:organization:{organization}")

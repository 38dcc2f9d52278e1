"""Act four: an engineer signs in at a company's own provider, and has a role as long as that names a group."""

import time
from collections.abc import Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final, Protocol, TypeVar

import msgspec

from all_in_one.demo.browser import sign_in_at_provider
from all_in_one.demo.clients import management_client
from all_in_one.demo.company_provider import CLIENT_ID, CompanyProvider
from all_in_one.demo.screen import act, show, show_claims, step
from all_in_one.demo.waiting import retry, until_refused
from provision.credentials import Credentials
from provision.seed import redirect_uri
from stead import AccessTokenVerifier, IdentityClient, ManagementClient, NotValidFeed, SignInRequired, Unavailable

_CONNECTOR: Final = "Demo company"
_DOMAIN: Final = "company.example"
_ENGINEER: Final = f"maya@{_DOMAIN}"
_GROUP: Final = "on-call"
_PERMISSION: Final = "restart:services"
_ROLE: Final = "Demo on-call engineer"
_ORGANIZATION: Final = "Demo organization"


class _Named(Protocol):
    @property
    def name(self) -> str: ...


_Item = TypeVar("_Item", bound=_Named)


class _Made(msgspec.Struct, frozen=True):
    """Ids of the objects that the administrator works with."""

    connector: str
    role: str
    organization: str


def provider_sign_in(credentials: Credentials) -> None:
    """Sign the engineer in with the group, and without it.

    Raises:
        IdentityError: The stack refused a step, or did not answer.
    """
    person = {"sub": "e-1007", "name": "Maya Okafor", "email": _ENGINEER, "email_verified": True}
    application = credentials.traditional
    act("Act four: an engineer signs in at another provider, has a role by a group there, and loses it")
    with ExitStack() as entered:
        provider = entered.enter_context(CompanyProvider(person))
        management = entered.enter_context(management_client(credentials.base_url, credentials.management_api))
        feed = entered.enter_context(
            NotValidFeed.over_http(
                credentials.base_url, client_id=application.client_id, client_secret=application.client_secret
            )
        )
        step("1. An administrator connects the company's OpenID provider, and maps one of its groups to a role.")
        made = entered.enter_context(_connected(management, provider))
        show("provider", f"{provider.issuer}, for addresses at {_DOMAIN}")
        show("group", f"{_GROUP} -> {_ROLE}, which grants {_PERMISSION}")

        step("2. The engineer signs in there, and so becomes a user, and a member with the role.")
        provider.groups = [_GROUP]
        client = entered.enter_context(_client(credentials))
        claims = _sign_in(credentials, client)
        token = client.get_organization_token(made.organization)
        audience = f"urn:{credentials.urn_namespace}:organization:{made.organization}"
        api = AccessTokenVerifier(
            base_url=credentials.base_url, audience=audience, feed=feed, reject_stale_permissions=True
        )
        show("signed in", f"{claims['name']} ({claims['sub']})")
        show_claims(retry(lambda: api.verify(token), Unavailable), "aud", "sub", "scope")

        step("3. The company takes the engineer out of the group. After the next sign-in an API refuses the token.")
        provider.groups, provider.answers = [], []
        client = entered.enter_context(_client(credentials))
        _sign_in(credentials, client)
        reason = until_refused(api, token)
        taken_ms = (time.monotonic() - provider.answers[0]) * 1000
        show("refused", f"{reason}, {taken_ms:.0f} ms after the provider said who had signed in")
        token = client.get_organization_token(made.organization)
        show_claims(api.verify(token), "scope")

        step("4. The administrator deletes the connector. What came through it ends, that token included.")
        management.connectors.delete(made.connector)
        show("refused", until_refused(api, token))


@contextmanager
def _connected(management: ManagementClient, provider: CompanyProvider) -> Generator[_Made, None, None]:
    """Connect the provider while the block runs; the organization and the role remain, for the next run."""
    _disconnect(management)  # what a run left that was killed
    permissions, roles, organizations = (
        management.organization_permissions,
        management.organization_roles,
        management.organizations,
    )
    connector = management.connectors.create(
        _CONNECTOR,
        {"issuer": provider.issuer, "clientId": CLIENT_ID},
        domains=[_DOMAIN],
        groups_claim="groups",
    )
    try:
        permission = _named(_PERMISSION, permissions.list()) or permissions.create(_PERMISSION)
        role = _named(_ROLE, roles.list()) or roles.create(_ROLE, permission_ids=[permission.id])
        organization = _named(_ORGANIZATION, organizations.list()) or organizations.create(_ORGANIZATION)
        # Who joins by the connector, too, stays a member without the group.
        organizations.add_jit_connectors(organization.id, [connector.id])
        organizations.add_jit_group(organization.id, connector.id, _GROUP, [role.id])
        yield _Made(connector=connector.id, role=role.id, organization=organization.id)
    finally:
        _disconnect(management)


def _disconnect(management: ManagementClient) -> None:
    for connector in management.connectors.list():
        if connector.connector_name == _CONNECTOR:
            management.connectors.delete(connector.id)
    for user in management.users.list(exact={"primaryEmail": _ENGINEER}):
        management.users.delete(user.id)


def _named(name: str, items: Iterable[_Item]) -> _Item | None:
    return next((each for each in items if each.name == name), None)


def _client(credentials: Credentials) -> IdentityClient:
    """Return a session of the engineer at an application that requests the permission."""
    application = credentials.traditional
    return IdentityClient(
        credentials.base_url,
        application.client_id,
        application.client_secret,
        scopes=[f"urn:{credentials.urn_namespace}:scope:organizations", _PERMISSION],
    )


def _sign_in(credentials: Credentials, client: IdentityClient) -> Mapping[str, Any]:
    """Let the address of the engineer lead to the provider, and back; return the claims of the ID token.

    Tries again until the sign-in page has heard of the connector, and the groups are applied.
    """
    back = redirect_uri(credentials.base_url)

    def sign_in() -> Mapping[str, Any]:
        url = client.sign_in_url(back, login_hint=_ENGINEER)
        return client.handle_callback(sign_in_at_provider(url, back))

    return retry(sign_in, SignInRequired)

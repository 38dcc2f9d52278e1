"""``.local/credentials.json`` and ``.local/credentials.env``: what you need to try the running stack.

The seed writes both with mode 0600, and writes them again if they are missing.
"""

import shlex
from pathlib import Path

import msgspec

from provision.private_files import write_private


class ManagementApi(msgspec.Struct, frozen=True, kw_only=True):
    """A machine-to-machine application, and the scopes of the Management API that it has."""

    client_id: str
    client_secret: str
    resource: str
    scope: str

    def __repr__(self) -> str:
        """Hide the secret."""
        return "ManagementApi(…)"


class DemoUser(msgspec.Struct, frozen=True, kw_only=True):
    """A demo user, who holds these scopes of the demo's resource through an API role."""

    id: str
    username: str
    password: str
    scopes: list[str]

    def __repr__(self) -> str:
        """Hide the password."""
        return "DemoUser(…)"


class Demo(msgspec.Struct, frozen=True, kw_only=True):
    """The demo's resource and users: a support agent first, then a customer."""

    resource: str
    scopes: list[str]
    users: list[DemoUser]


class ConfidentialClient(msgspec.Struct, frozen=True, kw_only=True):
    """A Traditional application."""

    client_id: str
    client_secret: str

    def __repr__(self) -> str:
        """Hide the secret."""
        return "ConfidentialClient(…)"


class PublicClient(msgspec.Struct, frozen=True, kw_only=True):
    """The SPA."""

    client_id: str


class Administrator(msgspec.Struct, frozen=True, kw_only=True):
    """The user who may do everything in the console."""

    username: str
    password: str

    def __repr__(self) -> str:
        """Hide the password."""
        return "Administrator(…)"


class BusSubscriber(msgspec.Struct, frozen=True, kw_only=True):
    """The read-only user of the bus."""

    url: str
    user: str
    password: str

    def __repr__(self) -> str:
        """Hide the password."""
        return "BusSubscriber(…)"


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the seed created; the schema of ``credentials.json``.

    Attributes:
        management_api: For administration: it may do everything.
        backend: The integrator's backend, which may request subject tokens.
        traditional: The application that exchanges them.
        account: The account page's; None if an earlier version wrote the file.
    """

    base_url: str
    urn_namespace: str = "service"
    management_api: ManagementApi
    backend: ManagementApi
    demo: Demo
    traditional: ConfidentialClient
    spa: PublicClient
    administrator: Administrator
    console: ConfidentialClient
    account: ConfidentialClient | None = None
    nats: BusSubscriber

    def __repr__(self) -> str:
        """Hide the secrets."""
        return "Credentials(…)"


def read_credentials(directory: Path) -> Credentials | None:
    """Return the credentials of an earlier start; None if the file is missing or has another schema."""
    try:
        return msgspec.json.decode((directory / "credentials.json").read_bytes(), type=Credentials)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def write_credentials(directory: Path, credentials: Credentials) -> None:
    """Write both files, readable only by their owner."""
    write_private(
        directory / "credentials.json", msgspec.json.format(msgspec.json.encode(credentials), indent=2) + b"\n"
    )
    lines = (f"{name}={shlex.quote(value)}\n" for name, value in _variables(credentials).items())
    write_private(directory / "credentials.env", "".join(lines).encode())


def site_clients(**clients: ConfidentialClient | None) -> dict[str, str]:
    """Return the contents of the files that the console and the account page read these clients from, by name."""
    return {
        f"{site}_{name}": value
        for site, client in clients.items()
        if client is not None
        for name, value in msgspec.structs.asdict(client).items()
    }


def write_site_clients(directory: Path, **clients: ConfidentialClient | None) -> None:
    """Write these files."""
    directory.mkdir(mode=0o700, exist_ok=True)
    for name, value in site_clients(**clients).items():
        write_private(directory / name, value.encode())


def _variables(credentials: Credentials) -> dict[str, str]:
    agent, customer = credentials.demo.users
    return {
        "BASE_URL": credentials.base_url,
        "MANAGEMENT_API_CLIENT_ID": credentials.management_api.client_id,
        "MANAGEMENT_API_CLIENT_SECRET": credentials.management_api.client_secret,
        "MANAGEMENT_API_RESOURCE": credentials.management_api.resource,
        "MANAGEMENT_API_SCOPE": credentials.management_api.scope,
        "BACKEND_CLIENT_ID": credentials.backend.client_id,
        "BACKEND_CLIENT_SECRET": credentials.backend.client_secret,
        "BACKEND_SCOPE": credentials.backend.scope,
        "DEMO_RESOURCE": credentials.demo.resource,
        "DEMO_SCOPES": " ".join(credentials.demo.scopes),
        "DEMO_AGENT_ID": agent.id,
        "DEMO_AGENT_USERNAME": agent.username,
        "DEMO_AGENT_PASSWORD": agent.password,
        "DEMO_CUSTOMER_ID": customer.id,
        "DEMO_CUSTOMER_USERNAME": customer.username,
        "DEMO_CUSTOMER_PASSWORD": customer.password,
        "TRADITIONAL_CLIENT_ID": credentials.traditional.client_id,
        "TRADITIONAL_CLIENT_SECRET": credentials.traditional.client_secret,
        "SPA_CLIENT_ID": credentials.spa.client_id,
        "ADMINISTRATOR_USERNAME": credentials.administrator.username,
        "ADMINISTRATOR_PASSWORD": credentials.administrator.password,
        "NATS_URL": credentials.nats.url,
        "NATS_USER": credentials.nats.user,
        "NATS_PASSWORD": credentials.nats.password,
    }

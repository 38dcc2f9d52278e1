"""Requests to one replica of token-service or the other: what the edge would spread over them."""

from typing import NamedTuple

import httpx

from stead import ManagementClient, Unavailable
from tests.support.impersonation import RESOURCE, Impersonation
from tests.support.processes import Deployment

_TIMEOUT_S = 30


class Machine(NamedTuple):
    """A machine-to-machine application that holds read:orders."""

    client_id: str
    secret: str


def make_machine(management: ManagementClient, impersonation: Impersonation) -> Machine:
    """Make the application, with a role of its own."""
    application = management.applications.create(name="Batch", type="MachineToMachine")
    secret = management.applications.create_secret(application.id, "first")
    scope = next(s for s in management.resources.scopes(impersonation.resource_id) if s.name == "read:orders")
    role = management.roles.create(f"Reader {application.id}", "reads", "MachineToMachine", [scope.id])
    management.applications.assign_roles(application.id, [role.id])
    return Machine(application.id, secret.value or "")


def client_token(url: str, machine: Machine, **more: str) -> httpx.Response:
    """Ask a replica for a token for the machine."""
    form = {"grant_type": "client_credentials", "resource": RESOURCE, "scope": "read:orders", **more}
    return httpx.post(f"{url}/oidc/token", data=form, auth=machine, timeout=_TIMEOUT_S)


def exchange(url: str, impersonation: Impersonation, subject_token: str) -> httpx.Response:
    """Exchange a subject token at a replica."""
    form = impersonation.form(subject_token)
    return httpx.post(f"{url}/oidc/token", data=form, auth=impersonation.auth, timeout=_TIMEOUT_S)


def cycle_works(deployment: Deployment, management: ManagementClient, impersonation: Impersonation) -> bool:
    """Mint and exchange at every replica; each that works has seen everything up to the minting."""
    for process in deployment.tokens:
        try:
            subject_token = management.subject_tokens.create(impersonation.user_id).token
        except Unavailable:
            return False
        answer = exchange(process.url, impersonation, subject_token)
        if answer.status_code != 200:
            assert answer.status_code == 503, answer.text
            return False
        assert answer.json()["scope"] == "read:orders write:orders"
    return True

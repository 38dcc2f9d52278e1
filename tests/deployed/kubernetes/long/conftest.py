"""The overlay ``local``, installed from the images of an older commit, and steady requests from a pod."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import pytest

from stead import ManagementClient
from tests.support.cluster import (
    NAMESPACE,
    ROOT,
    Edge,
    apply_overlay,
    first_client,
    installed,
    kubectl,
    printed_by,
    secret,
    start_program,
    temporary_namespace,
)
from tests.support.impersonation import set_up
from tests.support.organization_template import OrganizationTemplate
from tests.support.waiting import eventually

_PROGRAM = ROOT / "tests/deployed/kubernetes/long/steady_load.py"
_NAMESPACE = "stead-load"


class Failure(msgspec.Struct, frozen=True):
    """One failed request of the load, or one answer that breaks a promise.

    A stream has one request in flight at a time.
    """

    at: float
    stream: str
    failed: str
    detail: str

    @property
    def was_in_flight(self) -> bool:
        """Whether the edge or the load lost the connection on which it waited for the answer."""
        return self.detail.startswith(("502 ", "RemoteProtocolError", "ReadError"))


class Load:
    """The pod that sends the requests."""

    def requests(self) -> int:
        """Return how many requests it has sent."""
        return max((json.loads(line).get("requests", 0) for line in printed_by("load", _NAMESPACE)), default=0)

    def failures(self, since: float) -> list[Failure]:
        lines = (line for line in printed_by("load", _NAMESPACE) if '"failed": "' in line)
        return [each for each in (msgspec.json.decode(line, type=Failure) for line in lines) if each.at >= since]

    @contextmanager
    def during(self, fault: str) -> Iterator[Callable[[], list[Failure]]]:
        """Report the requests from just before a fault until just after it; yield a call that returns the failures."""
        began, before = time.time(), self.requests()
        eventually(lambda: self.requests() > before + 20)
        yield lambda: self.failures(began)
        reached = self.requests()
        eventually(lambda: self.requests() > reached + 100)
        failures = self.failures(began)
        took, sent = time.time() - began, self.requests() - before
        print(f"\n{fault}: {sent} requests in {took:.0f} s, {len(failures)} failed")


@pytest.fixture(scope="package")
def edge_of_the_system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edge]:
    """The edge; the images are the previous ones."""
    with installed(tmp_path_factory.mktemp("secrets"), tag="previous") as edge:
        yield edge


@pytest.fixture(scope="package")
def base_url(edge_of_the_system: Edge) -> str:
    """The address of the edge."""
    return edge_of_the_system.url


@pytest.fixture(scope="package")
def management(base_url: str) -> Iterator[ManagementClient]:
    with first_client(base_url) as client:
        yield client


@pytest.fixture(scope="package")
def load(management: ManagementClient) -> Iterator[Load]:
    impersonation = set_up(management)
    template = OrganizationTemplate(management)
    organization, permission = template.organization(), "pay:invoices"
    role = template.role("application", permission_ids=[template.permission(permission)])
    member = management.applications.create(name="Member", type="MachineToMachine").id
    member_secret = management.applications.create_secret(member, "first").value
    template.member(organization, member, role, kind="application")
    first = secret("stead-first-client")
    form = impersonation.form("")
    setup = {
        "url": f"http://edge.{NAMESPACE}:3000",
        "management": {"resource": first["resource"], "auth": [first["client_id"], first["client_secret"]]},
        "user": impersonation.user_id,
        "client": [impersonation.client_id, impersonation.client_secret],
        "exchange": {name: value for name, value in form.items() if name != "subject_token"},
        "member": {
            "organization": organization,
            "permission": permission,
            "role": role,
            "auth": [member, member_secret],
        },
    }
    with temporary_namespace(_NAMESPACE):
        start_program("load", _PROGRAM.read_text(), namespace=_NAMESPACE, settings={"SETUP": json.dumps(setup)})
        kubectl("wait", "--for=condition=Ready", "pod/load", "--timeout=120s", namespace=_NAMESPACE)
        load = Load()
        eventually(lambda: load.requests() > 50)
        yield load


@pytest.fixture(scope="package")
def failures_of_the_upgrade(base_url: str, load: Load) -> list[Failure]:
    """Upgrade from the previous images, with its migrations, under load."""
    with load.during("upgrade from the previous images") as failures:
        apply_overlay("dev", base_url=base_url)
    return failures()


@pytest.fixture(scope="package")
def system(base_url: str, failures_of_the_upgrade: list[Failure]) -> str:
    """The address of the edge, after the upgrade."""
    return base_url

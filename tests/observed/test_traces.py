"""A request is one trace, through all services that it reaches over HTTP and NATS."""

from collections.abc import Iterator
from pathlib import Path

import httpx2 as httpx
import pytest

from identity_common.rights.roles import ADMINISTRATOR
from provision.credentials import ConfidentialClient, write_site_clients
from stead import CustomClientMetadata, ManagementClient, OidcClientMetadata
from tests.support.administrator import CONSOLE, AtTheConsole
from tests.support.at_a_browser import PASSWORD
from tests.support.processes import Deployment, EdgeTransport
from tests.support.trace_receiver import ReceivedSpan, TraceReceiver
from tests.support.waiting import eventually

pytestmark = [pytest.mark.observed, pytest.mark.heavy]

CALLER = "00f067aa0ba902b7"


class TracedCaller(EdgeTransport):
    """A caller that is traced itself: every request belongs to one trace (W3C Trace Context section 3.2)."""

    trace_id = ""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if self.trace_id and "/oidc/" not in request.url.path:
            request.headers["traceparent"] = f"00-{self.trace_id}-{CALLER}-01"
            request.headers["X-Request-Id"] = f"request-{self.trace_id}"
        return super().handle_request(request)


@pytest.fixture(scope="module")
def caller(deployment: Deployment) -> TracedCaller:
    return TracedCaller(
        {
            "token": [deployment.tokens[0].url],
            "management": [deployment.management.url],
            "template": [deployment.template.url],
            "console": [deployment.urls["console"][0]],
        }
    )


@pytest.fixture(scope="module")
def management(deployment: Deployment, caller: TracedCaller) -> Iterator[ManagementClient]:
    with deployment.management_client(caller) as client:
        list(client.users.list())  # the client's own token, before anything is traced
        yield client


@pytest.fixture
def administrator(
    deployment: Deployment, management: ManagementClient, caller: TracedCaller, console_credentials: Path
) -> AtTheConsole:
    """Return an administrator who has signed in to the console, with a browser that is traced."""
    caller.trace_id = ""
    console = management.applications.create(
        name="Console",
        type="Traditional",
        oidc_client_metadata=OidcClientMetadata(redirect_uris=[f"{deployment.base_url}{CONSOLE}/callback"]),
        custom_client_metadata=CustomClientMetadata(allow_management_api=True),
    )
    secret = management.applications.create_secret(console.id, name="console").value or ""
    write_site_clients(console_credentials, console=ConfidentialClient(client_id=console.id, client_secret=secret))
    user = management.users.create(username="administrator", password=PASSWORD)
    role = next(each for each in management.roles.list() if each.name == ADMINISTRATOR.name)
    management.users.assign_roles(user.id, [role.id])
    administrator = AtTheConsole(deployment.base_url, "administrator", PASSWORD, caller)
    assert administrator.opens().status_code == 200
    return administrator


def described(spans: list[ReceivedSpan]) -> set[tuple[str, str, str, str]]:
    """Return service, kind, name and the parent's name of each span."""
    names = {span.span_id: span.name for span in spans} | {CALLER: "the caller"}
    return {(span.service, span.kind, span.name, names[span.parent_id]) for span in spans}


def test_a_change_is_one_trace_from_its_request_to_what_the_other_services_know(
    management: ManagementClient, caller: TracedCaller, traces: TraceReceiver
) -> None:
    caller.trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
    management.users.create(name="Ada")
    eventually(lambda: len(traces.of_trace(caller.trace_id)) >= 5)
    spans = traces.of_trace(caller.trace_id)
    assert described(spans) == {
        ("management-service", "SERVER", "POST /api/users", "the caller"),
        ("management-service", "PRODUCER", "user.created", "POST /api/users"),
        ("token-service", "CONSUMER", "directory-in-redis-management", "user.created"),
        ("token-service", "CONSUMER", "not-valid-feed", "user.created"),
        ("template-service", "CONSUMER", "directory-projection", "user.created"),
    }
    request = next(span for span in spans if span.kind == "SERVER")
    assert request.attributes == {
        "http.request.method": "POST",
        "http.route": "/api/users",
        "http.response.status_code": 200,
        "stead.request_id": f"request-{caller.trace_id}",
    }


def test_a_request_between_services_belongs_to_the_trace_of_the_request_that_needs_it(
    management: ManagementClient, caller: TracedCaller, traces: TraceReceiver
) -> None:
    caller.trace_id = "0af7651916cd43dd8448eb211c80319c"
    management.custom_claims.failures("client-credentials")
    eventually(lambda: len(traces.of_trace(caller.trace_id)) >= 3)
    route = "GET /api/configs/jwt-customizer/{kind}/failures"
    assert described(traces.of_trace(caller.trace_id)) == {
        ("management-service", "SERVER", route, "the caller"),
        ("management-service", "CLIENT", "claims-function", route),
        ("token-service", "SERVER", "claims-function", "claims-function"),
    }


def test_a_page_of_the_console_is_one_trace_with_what_it_asks_of_the_services(
    administrator: AtTheConsole, caller: TracedCaller, traces: TraceReceiver
) -> None:
    page = administrator.opens(f"{CONSOLE}/organizations/new")
    caller.trace_id = "5b8efff798038103d269b633813fc60c"
    assert administrator.sends(page, name="Engines").status_code == 303
    eventually(lambda: len(traces.of_trace(caller.trace_id)) >= 10)
    spans = traces.of_trace(caller.trace_id)
    form = "POST /console/organizations/new"
    assert described(spans) == {
        ("console", "SERVER", form, "the caller"),
        ("console", "CLIENT", "POST template-service", form),
        ("template-service", "SERVER", "POST /api/organizations", "POST template-service"),
        ("template-service", "PRODUCER", "organization.created", "POST /api/organizations"),
        # Until every service has taken note.
        ("console", "CLIENT", "GET token-service", form),
        ("token-service", "SERVER", "GET /api/configs/oidc/private-keys", "GET token-service"),
        ("console", "CLIENT", "GET template-service", form),
        ("template-service", "SERVER", "GET /api/organizations", "GET template-service"),
        ("token-service", "CONSUMER", "directory-in-redis-template", "organization.created"),
        ("token-service", "CONSUMER", "not-valid-feed", "organization.created"),
    }
    request_ids = {span.attributes["stead.request_id"] for span in spans if span.kind == "SERVER"}
    assert request_ids == {f"request-{caller.trace_id}"}


def test_probes_and_scrapes_are_not_traced(deployment: Deployment, traces: TraceReceiver) -> None:
    for process in deployment.processes:
        httpx.get(f"{process.url}/health/ready")
        httpx.get(f"{process.url}/metrics")
    assert not {span.name for span in traces.spans} & {"GET /health/ready", "GET /metrics"}

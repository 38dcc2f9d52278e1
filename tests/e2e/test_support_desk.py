"""The example support desk over HTTP: who may act as whom, and how its pages and forms are protected."""

from __future__ import annotations

import json
import re
import runpy
import secrets
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2 as httpx
import pytest

from all_in_one.demo.browser import sign_in_as
from provision import ServerAddresses
from provision.credentials import DemoUser
from provision.seed import redirect_uri
from stead import IdentityClient, OAuthError
from tests.support.processes import free_port
from tests.support.running_stack import RunningStack
from tests.support.support_desk import BACKEND, CUSTOMERS, ENGINEERS, PROGRAM, RunningDesk, command, role, user
from tests.support.waiting import eventually

WHY = {"reason": "cannot see an order", "ticketId": "T-1"}


@pytest.fixture(scope="module")
def desk(stack: RunningStack, run_directory: Path) -> Iterator[RunningDesk]:
    desk = RunningDesk(run_directory)
    yield desk
    assert desk.stop() == 0
    assert "Traceback" not in desk.log.read_text()


@pytest.fixture(scope="module")
def agents_token(desk: RunningDesk, stack: RunningStack) -> str:
    """The support agent's own access token for the backend."""
    return bearer(stack, stack.credentials.demo.users[0])


class Visitor:
    """A browser at the desk."""

    def __init__(self, desk: RunningDesk) -> None:
        self.desk = desk
        self.browser = httpx.Client(base_url=desk.url, timeout=30)

    def sign_in(self, who: DemoUser) -> httpx.Response:
        """Sign in; return the page after it."""
        sent = self.browser.get("/sign-in")
        back = sign_in_as(who, sent.headers["Location"], f"{self.desk.url}/callback")
        return self.follow(self.browser.get(back))

    def follow(self, answer: httpx.Response) -> httpx.Response:
        assert answer.status_code == 303, answer.text
        return self.browser.get(answer.headers["Location"])

    def send(self, page: httpx.Response, action: str, **fields: str) -> httpx.Response:
        """Submit the form of a page with this action."""
        assert f'action="{action}"' in page.text
        token = re.search(r'name="csrf_token" value="([^"]+)"', page.text)
        assert token is not None
        return self.browser.post(action, data={"csrf_token": token[1], **fields})

    def act_as(self, customer_id: str, **fields: str) -> httpx.Response:
        page = self.browser.get(f"/customers/{customer_id}")
        return self.send(page, f"/customers/{customer_id}/impersonation", **fields)


@pytest.fixture
def agent(desk: RunningDesk, stack: RunningStack) -> Visitor:
    """The support agent of the demo, signed in."""
    visitor = Visitor(desk)
    assert "<h1>Customers</h1>" in visitor.sign_in(stack.credentials.demo.users[0]).text
    return visitor


def bearer(stack: RunningStack, who: DemoUser) -> str:
    """Return an access token for the backend from a sign-in to an application."""
    back = redirect_uri(stack.base_url)
    with IdentityClient(
        stack.base_url,
        stack.credentials.spa.client_id,
        scopes=["read:customers", "impersonate:customers"],
        resources=[BACKEND],
    ) as client:
        client.handle_callback(sign_in_as(who, client.sign_in_url(back), back))
        return client.get_access_token(BACKEND)


def request_impersonation(desk: RunningDesk, token: str, **body: object) -> httpx.Response:
    return httpx.post(
        f"{desk.url}/api/request-impersonation", json=body, headers={"Authorization": f"Bearer {token}"}, timeout=30
    )


def values(page: httpx.Response) -> dict[str, str]:
    """Return the token's claims as the page shows them, by name."""
    found = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", page.text, re.DOTALL)
    plain = [[" ".join(unescape(re.sub(r"<[^>]+>", "", part)).split()) for part in pair] for pair in found]
    return {name.partition(" ")[0]: value for name, value in plain}


@pytest.mark.heavy
def test_an_agent_acts_as_a_customer_and_stops(agent: Visitor, stack: RunningStack) -> None:
    me, customer = stack.credentials.demo.users
    own = values(agent.browser.get("/"))
    assert (own["sub"], own["act"]) == (me.id, "none: this token is your own")

    page = agent.follow(agent.act_as(customer.id, reason="cannot see an order", ticket="T-1042"))
    assert "You act as <strong><bdi>Customer</bdi></strong>" in page.text
    assert "<bdi>T-1042</bdi>: <bdi>cannot see an order</bdi>" in page.text
    held = values(page)
    assert (held["sub"], json.loads(held["act"])) == (customer.id, {"sub": me.id})
    assert held["aud"] == stack.credentials.demo.resource
    assert held["scope"] == "read:orders write:orders"
    assert held["the"].endswith(f"{me.id} for {customer.id}")

    cancelled = agent.follow(agent.send(page, "/customer/orders/1002/cancellation"))
    assert f"cancelled by <code>{me.id}</code>" in cancelled.text
    assert agent.follow(agent.browser.get("/")).url.path == "/customer"

    assert "<h1>Customers</h1>" in agent.follow(agent.send(cancelled, "/stop")).text
    assert agent.browser.get("/customer").headers["Location"] == "/"


@pytest.fixture
def policy(stack: RunningStack) -> Iterator[Callable[..., None]]:
    """Changes what the policy of impersonations demands of actors; at the end, nothing."""

    def change(**demands: Any) -> None:
        stack.management.impersonation_policy.update(**demands)
        later = stack.subject_token(stack.credentials.demo.users[1].id)
        stack.exchange(later, resource=stack.credentials.demo.resource)  # waits until token-service knows the policy

    yield change
    change(actor_max_age_s=None, actor_acr=None)


def test_an_agent_who_must_sign_in_again_goes_on_with_the_same_reason(
    agent: Visitor, stack: RunningStack, policy: Callable[..., None]
) -> None:
    me, customer = stack.credentials.demo.users
    policy(actor_max_age_s=1)
    refused: list[httpx.Response] = []

    def is_refused() -> bool:
        refused[:] = [agent.act_as(customer.id, reason="an order is missing", ticket="T-7")]
        return refused[0].status_code == 403

    eventually(is_refused)
    assert "<h1>Sign in again</h1>" in refused[0].text
    assert "<bdi>Customer</bdi> you must have signed in within the last 1 min." in refused[0].text

    policy(actor_max_age_s=3600)
    sent = agent.browser.get("/sign-in").headers["Location"]
    assert dict(parse_qsl(urlsplit(sent).query))["max_age"] == "1"
    page = agent.follow(agent.browser.get(sign_in_as(me, sent, f"{agent.desk.url}/callback")))
    assert "<bdi>T-7</bdi>: <bdi>an order is missing</bdi>" in page.text
    assert values(page)["sub"] == customer.id


def test_another_user_does_not_go_on_with_what_an_agent_has_begun(
    agent: Visitor, stack: RunningStack, policy: Callable[..., None]
) -> None:
    customer = stack.credentials.demo.users[1]
    colleague = user(stack, f"colleague_{secrets.token_hex(4)}", "Colleague", role(stack, ENGINEERS).id)
    policy(actor_acr="phr")
    refused = agent.act_as(customer.id, reason="why", ticket="T-1")
    assert "you must have signed in with a passkey" in refused.text
    assert "<h1>Sign in again</h1>" in agent.browser.get("/customer").text

    policy(actor_acr=None)
    sent = agent.browser.get("/sign-in").headers["Location"]
    assert dict(parse_qsl(urlsplit(sent).query))["acr_values"] == "phr"
    back = sign_in_as(colleague, sent.replace("&acr_values=phr", ""), f"{agent.desk.url}/callback")
    agent.browser.get(back)
    assert agent.browser.get("/customer").headers["Location"] == "/"


def test_an_agent_signs_in_again_when_the_application_demands_more(desk: RunningDesk, stack: RunningStack) -> None:
    me, customer = stack.credentials.demo.users
    application = next(each for each in stack.management.applications.list() if each.name == "Support desk")
    visitor = Visitor(desk)
    sent = visitor.browser.get("/sign-in").headers["Location"]
    visitor.browser.get(sign_in_as(me, sent, f"{desk.url}/callback"))
    stack.management.applications.update(application.id, custom_client_metadata={"minimumAcr": "mfa"})
    try:
        stack.exchange(stack.subject_token(customer.id), resource=stack.credentials.demo.resource)  # it is known
        assert visitor.browser.get("/").headers["Location"] == "/sign-in"
    finally:
        stack.management.applications.update(application.id, custom_client_metadata={"minimumAcr": None})
        stack.exchange(stack.subject_token(customer.id), resource=stack.credentials.demo.resource)
    assert "<h1>Customers</h1>" in visitor.browser.get("/").text


def test_what_an_administrator_ends_is_refused_by_the_orders_api(agent: Visitor, stack: RunningStack) -> None:
    customer = stack.credentials.demo.users[1]
    assert agent.follow(agent.act_as(customer.id, reason="why", ticket="T-1")).status_code == 200
    stack.management.impersonations.end_all(user_id=customer.id)
    eventually(lambda: agent.browser.get("/customer").status_code == 403)
    assert agent.browser.get("/customer").headers["Location"] == "/"


@pytest.mark.heavy
def test_what_an_agent_ends_is_refused_everywhere_and_no_other_agent_can_end_it(
    desk: RunningDesk, stack: RunningStack, agents_token: str
) -> None:
    customer = stack.credentials.demo.users[1]
    begun = request_impersonation(desk, agents_token, userId=customer.id, **WHY).json()
    issued = stack.exchange(begun["subjectToken"], resource=stack.credentials.demo.resource, scope="read:orders")
    orders = f"{desk.url}/orders"
    held = {"Authorization": f"Bearer {issued.access_token}"}
    assert httpx.get(orders, headers=held, timeout=30).status_code == 200

    end, own = f"{desk.url}/api/end-impersonation", {"Authorization": f"Bearer {agents_token}"}
    other = stack.management.subject_tokens.create(customer.id).impersonation_id
    for body, status in (({}, 400), ({"impersonationId": 7}, 400), ({"impersonationId": other}, 403)):
        assert httpx.post(end, json=body, headers=own, timeout=30).status_code == status, body
    assert httpx.get(orders, headers=held, timeout=30).status_code == 200
    for _ in range(2):
        ended = httpx.post(end, json={"impersonationId": begun["impersonationId"]}, headers=own, timeout=30)
        assert ended.status_code == 204
    eventually(lambda: httpx.get(orders, headers=held, timeout=30).status_code == 401)


def test_the_backend_issues_a_subject_token_for_one_use(
    desk: RunningDesk, stack: RunningStack, agents_token: str
) -> None:
    customer = stack.credentials.demo.users[1]
    answer = request_impersonation(desk, agents_token, userId=customer.id, **WHY)
    assert (answer.status_code, answer.json().keys()) == (200, {"subjectToken", "expiresIn", "impersonationId"})
    assert answer.headers["Cache-Control"] == "no-store"
    subject_token = answer.json()["subjectToken"]
    stack.recorder.keep(subject_token, "subject token")
    stack.exchange(subject_token, resource=stack.credentials.demo.resource)
    with pytest.raises(OAuthError) as refused:
        stack.exchange(subject_token, resource=stack.credentials.demo.resource)
    assert (refused.value.status, refused.value.error) == (400, "invalid_request")


def test_the_backend_refuses_callers_that_may_not_act_as_customers(desk: RunningDesk, stack: RunningStack) -> None:
    me, customer = stack.credentials.demo.users
    refused = request_impersonation(desk, bearer(stack, customer), userId=customer.id, **WHY)
    assert (refused.status_code, refused.json()["error"]) == (403, "insufficient_scope")

    exchanged = stack.exchange(stack.subject_token(me.id), resource=BACKEND, scope="impersonate:customers")
    refused = request_impersonation(desk, exchanged.access_token, userId=customer.id, **WHY)
    assert (refused.status_code, refused.json()) == (
        403,
        {
            "error": "access_denied",
            "error_description": "An agent who already acts as a customer cannot act as another one.",
        },
    )
    orders = stack.exchange(stack.subject_token(me.id), resource=stack.credentials.demo.resource, scope="read:orders")
    assert request_impersonation(desk, orders.access_token, userId=customer.id, **WHY).status_code == 401
    assert httpx.post(f"{desk.url}/api/request-impersonation", json=WHY, timeout=30).status_code == 401


def test_only_customers_can_be_impersonated(desk: RunningDesk, stack: RunningStack, agents_token: str) -> None:
    me = stack.credentials.demo.users[0]
    name = f"gone_{secrets.token_hex(4)}"
    suspended = user(stack, name, "Suspended", role(stack, CUSTOMERS).id)
    stack.management.users.suspend(suspended.id)
    for user_id, why in (
        (me.id, "You can act as customers only."),
        ("../users", "You can act as customers only."),
        (suspended.id, "This customer is suspended, and cannot be impersonated."),
    ):
        refused = request_impersonation(desk, agents_token, userId=user_id, **WHY)
        assert (refused.status_code, refused.json()) == (403, {"error": "access_denied", "error_description": why})


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"userId": "u", "ticketId": "T-1"},
        {"userId": "u", "reason": "", "ticketId": "T-1"},
        {"userId": "u", "reason": " \n", "ticketId": "T-1"},
        {"userId": "u", "reason": "why", "ticketId": " "},
        {"userId": "u", "reason": 7, "ticketId": "T-1"},
        {"userId": "u", "reason": "y" * 501, "ticketId": "T-1"},
        {"userId": "u", "reason": "why", "ticketId": "T-1", "more": True},
    ],
)
def test_without_a_reason_and_a_ticket_there_is_no_subject_token(
    desk: RunningDesk, agents_token: str, body: dict[str, object]
) -> None:
    refused = request_impersonation(desk, agents_token, **body)
    assert (refused.status_code, refused.json()["error"]) == (400, "invalid_request")


def test_the_form_is_shown_again_with_its_errors(agent: Visitor, stack: RunningStack) -> None:
    customer = stack.credentials.demo.users[1]
    page = agent.act_as(customer.id, reason="  ", ticket='T-"7"')
    assert page.status_code == 400
    assert "A user, a reason and a ticket are required." in page.text
    assert 'value="T-&#34;7&#34;"' in page.text
    assert agent.browser.get("/customer").headers["Location"] == "/"


@pytest.mark.heavy
def test_a_user_with_read_access_cannot_act_as_customers(desk: RunningDesk, stack: RunningStack) -> None:
    resource = next(each for each in stack.management.resources.list() if each.indicator == BACKEND)
    read = next(each for each in stack.management.resources.scopes(resource.id) if each.name == "read:customers")
    name = f"trainee_{secrets.token_hex(4)}"
    looking = stack.management.roles.create(name, "may look", "User", [read.id])
    trainee = Visitor(desk)
    assert "<h1>Customers</h1>" in trainee.sign_in(user(stack, name, "Trainee", looking.id)).text
    refused = trainee.act_as(stack.credentials.demo.users[1].id, reason="why", ticket="T-1")
    assert refused.status_code == 403
    assert "Your account cannot act as customers." in refused.text


def test_a_user_without_rights_can_sign_out(desk: RunningDesk, stack: RunningStack) -> None:
    visitor = Visitor(desk)
    page = visitor.sign_in(stack.credentials.demo.users[1])
    assert page.status_code == 403
    assert "Your account cannot see customers." in page.text
    gone = visitor.send(page, "/sign-out")
    assert gone.headers["Location"].startswith(f"{stack.issuer}/session/end?")
    assert 'href="/sign-in"' in visitor.browser.get("/").text


def test_html_in_a_name_or_a_reason_is_escaped(agent: Visitor, stack: RunningStack) -> None:
    name = "<script>alert(1)</script>"
    customer = user(stack, f"html_{secrets.token_hex(4)}", name, role(stack, CUSTOMERS).id)
    pages = [agent.browser.get("/"), agent.browser.get(f"/customers/{customer.id}")]
    pages.append(agent.follow(agent.act_as(customer.id, reason="</p><img src=x>", ticket="<b>")))
    for page in pages:
        assert page.status_code == 200
        assert unescape(page.text).count(name) >= 1
        assert page.text.count("<script") == 1  # our own
    assert "<bdi>&lt;b&gt;</bdi>: <bdi>&lt;/p&gt;&lt;img src=x&gt;</bdi>" in pages[-1].text


def test_a_form_is_accepted_only_from_a_page_of_its_session(
    agent: Visitor, desk: RunningDesk, stack: RunningStack
) -> None:
    customer = stack.credentials.demo.users[1]
    other = Visitor(desk)
    foreign = other.sign_in(stack.credentials.demo.users[0]).text
    csrf_token = re.search(r'name="csrf_token" value="([^"]+)"', foreign)
    assert csrf_token is not None
    address = f"/customers/{customer.id}/impersonation"
    for sent in ({}, {"csrf_token": ""}, {"csrf_token": csrf_token[1]}):
        answer = agent.browser.post(address, data={"reason": "why", "ticket": "T-1", **sent})
        assert answer.status_code == 403
    assert agent.browser.post(address, json={"reason": "why", "ticket": "T-1"}).status_code == 403
    assert agent.browser.get("/customer").headers["Location"] == "/"


def test_the_session_gets_another_id_at_sign_in(desk: RunningDesk, stack: RunningStack) -> None:
    visitor = Visitor(desk)
    sent = visitor.browser.get("/sign-in")
    cookie = sent.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    before = visitor.browser.cookies["support-desk"]
    back = sign_in_as(stack.credentials.demo.users[0], sent.headers["Location"], f"{desk.url}/callback")
    visitor.browser.get(back)
    assert visitor.browser.cookies["support-desk"] != before
    fixed = httpx.get(f"{desk.url}/", cookies={"support-desk": before}, timeout=30)
    assert 'href="/sign-in"' in fixed.text
    again = visitor.browser.get(back)
    assert (again.status_code, again.headers["Location"]) == (303, "/")


def test_every_page_is_protected(desk: RunningDesk, stack: RunningStack) -> None:
    visitor = Visitor(desk)
    for path, status in (("/", 200), ("/nowhere", 404), ("/customer", 303), ("/style.css", 200), ("/stop", 405)):
        answer = visitor.browser.get(path)
        assert answer.status_code == status
        assert answer.headers["Content-Security-Policy"] == (
            "default-src 'none'; style-src 'self'; script-src 'self'; base-uri 'none'; frame-ancestors 'none'; "
            f"form-action 'self' {stack.base_url}"
        )
        assert answer.headers["Cache-Control"] == "no-store"
        assert re.findall(r"<script(?![^>]*src=)", answer.text) == []


@pytest.mark.heavy
def test_a_second_desk_starts_and_stops_on_a_signal(
    desk: RunningDesk, stack: RunningStack, run_directory: Path
) -> None:
    addresses = {desk.url}
    desk = RunningDesk(run_directory)
    addresses.add(desk.url)
    assert stack.recorder.found([desk.log.read_text()]) == []
    assert desk.stop(signal.SIGINT) == 0  # the other desks are stopped by SIGTERM
    assert "Traceback" not in desk.log.read_text()
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", desk.port))
    applications = [each for each in stack.management.applications.list() if each.name == "Support desk"]
    assert len(applications) == 1
    assert {f"{address}/callback" for address in addresses} <= set(applications[0].oidc_client_metadata.redirect_uris)
    assert [each.name for each in stack.management.roles.list()].count(ENGINEERS) == 1


@pytest.mark.heavy
def test_startup_errors_are_reported_in_one_line(
    desk: RunningDesk,
    stack: RunningStack,
    run_directory: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    in_use = command(run_directory, desk.port)
    ended = subprocess.run(in_use, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == (
        f"error: port {desk.port} is in use; choose another: make example DESK_PORT={desk.port + 1}\n"
    )

    run = runpy.run_path(str(PROGRAM))["run"]  # a process for each of the others would take a second of CPU time

    def refusal(directory: Path, port: int) -> str:
        assert run(port, directory / "credentials.json") == 1
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.count("\n") == 1
        return printed.err

    free = free_port()
    assert refusal(tmp_path, free) == (
        f"error: there is no {tmp_path}/credentials.json; start the stack first, in another terminal: make run\n"
    )
    written = (run_directory / "credentials.json").read_text()
    (tmp_path / "credentials.json").write_text(written.replace(stack.base_url, "http://127.0.0.1:9"))
    assert refusal(tmp_path, free).startswith("error: http://127.0.0.1:9: ")
    (tmp_path / "unreadable" / "credentials.json").mkdir(parents=True)
    assert refusal(tmp_path / "unreadable", free) == (
        f"error: {tmp_path}/unreadable/credentials.json: Is a directory\n"
    )


@pytest.mark.heavy
def test_the_desk_answers_503_while_the_stack_is_down(servers: ServerAddresses, tmp_path: Path) -> None:
    stack = RunningStack(servers, tmp_path, tenant_id=f"desk-{secrets.token_hex(4)}")
    stack.start()
    desk = RunningDesk(tmp_path)
    try:
        agent = Visitor(desk)
        page = agent.sign_in(stack.credentials.demo.users[0])
        form = agent.browser.get(f"/customers/{stack.credentials.demo.users[1].id}")
        stack.stop()
        away = [
            agent.browser.get("/"),
            agent.send(form, f"{form.url.path}/impersonation", reason="why", ticket="T-1"),
        ]
        assert [answer.status_code for answer in away] == [503, 503]
        assert all("<h1>Just a moment</h1>" in answer.text for answer in away)
        assert agent.send(page, "/sign-out").status_code == 303
        assert 'href="/sign-in"' in agent.browser.get("/").text
    finally:
        assert desk.stop() == 0
    assert "Traceback" not in desk.log.read_text()

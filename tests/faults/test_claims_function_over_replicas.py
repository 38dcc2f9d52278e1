"""The custom-claims function at several replicas: which version is in force, and what a call sees of other requests."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2 as httpx
import jwt
import pytest

from stead import ManagementClient
from tests.support.impersonation import RESOURCE, Impersonation, Machine, make_machine
from tests.support.lengths import length
from tests.support.processes import Deployment

pytestmark = pytest.mark.slow

ROUNDS = length(short=3, long=200)
TOKENS_PER_REPLICA = 3
EXCHANGES = length(short=96, long=10_000)
AT_ONCE = length(short=16, long=32)
PEOPLE = 3 * AT_ONCE  # requests at the same time are for distinct users
KIND = "client-credentials"
KEEPING = """
var kept = globalThis.kept || []; globalThis.kept = kept;
const getCustomJwtClaims = async ({ token, context, api }) => {
  kept.push(context); Object.prototype.leaked = context;
  const { id, name } = context.user;
  return { seen: { jti: token.jti, id, name, number: context.grant.subjectTokenContext.number }, calls: kept.length };
};
"""


@pytest.fixture(scope="module")
def machine(management: ManagementClient, impersonation: Impersonation) -> Machine:
    return make_machine(management, impersonation)


@pytest.fixture
def functions(management: ManagementClient) -> Iterator[Any]:
    """The functions, without one for machines afterwards."""
    yield management.custom_claims
    management.custom_claims.delete(KIND)


def claim(http: httpx.Client, url: str, machine: Machine, revision: str | None) -> object:
    """Return the custom claim of a new token of a replica; ask again after 503, when no worker was free."""
    while True:
        answer = http.post(
            f"{url}/oidc/token",
            data={"grant_type": "client_credentials", "resource": RESOURCE, "scope": "read:orders"},
            headers={"Identity-Revision": revision} if revision else {},
            auth=machine,
        )
        if answer.status_code != 503:
            assert answer.status_code == 200, answer.text
            claims = jwt.decode(answer.json()["access_token"], options={"verify_signature": False})
            return claims.get("version")


def test_a_version_activated_again_is_in_force_at_every_replica_with_its_revision(
    deployment: Deployment, management: ManagementClient, machine: Machine, functions: Any
) -> None:
    urls = [process.url for process in deployment.tokens]
    with httpx.Client(timeout=30) as http, ThreadPoolExecutor(len(urls) * TOKENS_PER_REPLICA) as threads:

        def at_all_replicas() -> set[object]:
            """Return the claims of tokens that are requested at once, with the newest revision."""
            revision = str(management.last_revision)
            return set(threads.map(lambda url: claim(http, url, machine, revision), urls * TOKENS_PER_REPLICA))

        for number in range(ROUNDS):
            names = [f"{number}, {name}" for name in ("first", "second")]
            first, _ = (
                functions.save(KIND, f"const getCustomJwtClaims = () => ({{ version: '{name}' }});") for name in names
            )
            assert at_all_replicas() == {names[1]}
            functions.activate(KIND, first.version)
            assert at_all_replicas() == {names[0]}
            # What a replica has seen, it does not forget: the same without the revision.
            assert {claim(http, url, machine, None) for url in urls} == {names[0]}


@pytest.fixture
def keeping(management: ManagementClient) -> Iterator[None]:
    """A function for users that keeps what it has seen wherever a script can."""
    management.custom_claims.save("access-token", KEEPING)
    yield
    management.custom_claims.delete("access-token")


@pytest.mark.usefixtures("keeping")
def test_no_call_sees_the_request_of_another(
    deployment: Deployment, management: ManagementClient, impersonation: Impersonation
) -> None:
    """Concurrent exchanges with distinct contexts, each token compared with its own request."""

    def created(number: int) -> str:
        with writing:
            return management.users.create(name=f"Person {number}").id

    def claims_of(number: int) -> dict[str, Any]:
        user_id = people[number % PEOPLE]
        while True:
            with writing:
                subject_token = management.subject_tokens.create(user_id, {"number": number}).token
            claims = exchanged(subject_token, url=urls[number % len(urls)])
            assert claims["sub"] == user_id
            if "seen" in claims:
                return claims
            # The call took too long, on a busy machine.

    def exchanged(subject_token: str, *, url: str) -> dict[str, Any]:
        while True:
            form = impersonation.form(subject_token)
            answer = http.post(f"{url}/oidc/token", data=form, auth=impersonation.auth)
            if answer.status_code != 503:  # else no worker was free, and nothing is spent
                assert answer.status_code == 200, answer.text
                return jwt.decode(answer.json()["access_token"], options={"verify_signature": False})

    writing = threading.Semaphore(4)  # management-service refuses writes that it cannot keep up with
    urls = [process.url for process in deployment.tokens]
    with httpx.Client(timeout=30) as http, ThreadPoolExecutor(AT_ONCE) as threads:
        people = list(threads.map(created, range(PEOPLE)))
        found = list(threads.map(claims_of, range(EXCHANGES)))
    assert [(each["sub"], each["seen"], each["calls"]) for each in found] == [
        (
            people[number % PEOPLE],
            {
                "jti": each["jti"],
                "id": people[number % PEOPLE],
                "name": f"Person {number % PEOPLE}",
                "number": number,
            },
            1,
        )
        for number, each in enumerate(found)
    ]
    assert len({each["jti"] for each in found}) == EXCHANGES

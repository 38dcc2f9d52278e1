"""Every replica of token-service uses the version of the custom-claims function that a revision stands for."""

from __future__ import annotations

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
KIND = "client-credentials"


@pytest.fixture(scope="module")
def machine(management: ManagementClient, impersonation: Impersonation) -> Machine:
    return make_machine(management, impersonation)


@pytest.fixture
def functions(management: ManagementClient) -> Iterator[Any]:
    """The functions, without one for machines afterwards."""
    yield management.custom_claims
    management.custom_claims.delete(KIND)


def claim(http: httpx.Client, url: str, machine: Machine, revision: str | None) -> object:
    """Return the custom claim of a new token of a replica."""
    answer = http.post(
        f"{url}/oidc/token",
        data={"grant_type": "client_credentials", "resource": RESOURCE, "scope": "read:orders"},
        headers={"Identity-Revision": revision} if revision else {},
        auth=machine,
    )
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

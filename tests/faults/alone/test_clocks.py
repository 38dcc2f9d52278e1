"""The clock of one service is two minutes wrong: what clients get for tokens, sessions, second factors and times."""

import asyncio
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import jwt
import pytest

from identity_common.clock import Clock, now_ms
from identity_common.sealing import SealingKeys
from identity_common.wire.factors import REPLY_TIMEOUT_S, ArmedFactors, FactorRequests, ReadFactors
from provision import ServerAddresses
from stead import AccessTokenVerifier, ManagementClient
from tests.support.at_a_browser import PASSWORD, password_sent
from tests.support.authorizing import REDIRECT_URI
from tests.support.bus_clients import connected
from tests.support.impersonation import RESOURCE, Application, Impersonation, cycle_works, exchange
from tests.support.lengths import length
from tests.support.processes import Deployment, ServiceProcess
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(length(short=1, long=0) == 1, reason="restarts services nine times: TEST_LENGTH=long"),
]

WRONG_BY_S: Final = 120
TOLERATED_S: Final = 60
"""Of a busy machine, between an act and the look at its time."""


def wrong_clock(offset_s: int) -> tuple[str, ...]:
    """Return the command that starts a program with a clock that is wrong; skip the test without libfaketime."""
    libraries = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    if not libraries:
        pytest.skip("needs Debian's faketime")
    return ("env", f"LD_PRELOAD={libraries[0]}", f"FAKETIME={offset_s:+}s", "FAKETIME_DONT_FAKE_MONOTONIC=1")


@contextmanager
def wrong_by(offset_s: int, process: ServiceProcess) -> Iterator[None]:
    """Restart a process with a wrong clock, and with the right one when the body ends."""
    right, process.launcher = process.launcher, wrong_clock(offset_s)
    restart(process)
    try:
        yield
    finally:
        process.launcher = right
        restart(process)


def restart(process: ServiceProcess) -> None:
    process.stop()
    process.start()
    process.wait_until_ready()


def is_about(moment_s: float, offset_s: float) -> bool:
    return abs(moment_s - time.time() - offset_s) < TOLERATED_S


class System(NamedTuple):
    """The services; the clock of the second replica of token-service, or of management-service, is wrong."""

    deployment: Deployment
    management: ManagementClient
    impersonation: Impersonation
    application: Application
    spa_id: str

    @property
    def right(self) -> ServiceProcess:
        return self.deployment.tokens[0]

    @property
    def wrong(self) -> ServiceProcess:
        return self.deployment.tokens[1]

    def new_user(self) -> str:
        user_id = self.management.users.create(name="Customer").id
        self.management.users.assign_roles(user_id, [self.impersonation.role_id])
        return user_id

    def exchanged(self, process: ServiceProcess, user_id: str) -> str:
        """Return an access token from the exchange of a new subject token."""
        subject_token = self.management.subject_tokens.create(user_id).token
        answer = exchange(process.url, self.impersonation, subject_token)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["access_token"])

    def is_active(self, token: str) -> set[bool | None]:
        return {self.application.is_active(token, process) for process in (self.right, self.wrong)}

    def works(self) -> bool:
        return cycle_works(self.deployment, self.management, self.impersonation)

    def require_tokens(self, *, offset_s: int) -> None:
        """Tokens of the wrong replica work everywhere; only the times in them are wrong."""
        jwks_url = f"{self.right.url}/oidc/jwks"
        verifier = AccessTokenVerifier(issuer=self.deployment.issuer, jwks_url=jwks_url, audience=RESOURCE)
        token = self.exchanged(self.wrong, self.new_user())
        claims: dict[str, Any] = jwt.decode(token, options={"verify_signature": False})
        assert is_about(claims["iat"], offset_s)
        assert claims["exp"] - claims["iat"] == 3600
        verifier.verify(token)
        assert self.is_active(token) == {True}

    def require_sessions(self) -> None:
        """A code and refresh tokens of either replica are good at the other."""
        for first, second in ((self.right, self.wrong), (self.wrong, self.right)):
            tokens = self.application.tokens(first)
            refreshed = self.application.refresh(tokens["refresh_token"], second)
            assert refreshed.status_code == 200, refreshed.text
            assert self.application.refresh(refreshed.json()["refresh_token"], first).status_code == 200

    def require_ended(self, process: ServiceProcess, *, reappears: bool) -> None:
        """A suspension ends tokens at once; one from just before it may be valid again when the suspension ends."""
        user_id = self.new_user()
        token = self.exchanged(process, user_id)
        self.management.users.suspend(user_id)
        assert self.is_active(token) == {False}
        self.management.users.suspend(user_id, suspended=False)
        eventually(self.works)
        assert self.is_active(token) == {reappears}
        assert self.is_active(self.exchanged(process, user_id)) == {True}

    def audited_at(self) -> float:
        """Return the time of a new entry in the audit trail."""
        user_id = self.new_user()
        eventually(lambda: bool(self.management.logs.list(target_id=user_id).page().items))
        return self.management.logs.list(target_id=user_id).page().items[0].occurred_at / 1000

    def signs_in(self, process: ServiceProcess) -> bool:
        """Whether a password is checked."""
        username = f"person_{secrets.token_hex(4)}"
        self.management.users.create(username=username, password=PASSWORD)
        eventually(self.works)
        answer = password_sent(process.url, self.spa_id, username)
        return answer.status_code == 303

    def answers_about_factors(self, *, asked_at_s: float = 0) -> bool:
        """Whether management-service answers a replica of token-service whose clock is that wrong.

        Its requests are sealed, and at most 30 s old; so are those about links and about scripts.
        """
        return asyncio.run(self._answers_about_factors(lambda: now_ms() + int(asked_at_s * 1000)))

    async def _answers_about_factors(self, clock: Clock) -> bool:
        keys = SealingKeys((self.deployment.management.environment["ENVIRONMENT_VARIABLE_KEYS"],))
        requests = FactorRequests(keys, tenant_id="default", clock=clock)
        sealed = requests.seal_question(ReadFactors(user_id=self.impersonation.user_id))
        async with connected(self.deployment.addresses, "token") as client:
            try:
                reply = await client.request(requests.subject, sealed, timeout=REPLY_TIMEOUT_S)
            except TimeoutError:
                return False
        return isinstance(requests.open_answer(reply.data, sealed_question=sealed), ArmedFactors)


@pytest.fixture(scope="module")
def system(
    deployment: Deployment,
    management: ManagementClient,
    impersonation: Impersonation,
    own_addresses: ServerAddresses,
) -> System:
    deployment.tokens[2].stop()
    del deployment.tokens[2]
    application = Application(deployment, impersonation, own_addresses)
    spa = management.applications.create(name="Page", type="SPA", oidc_client_metadata={"redirectUris": [REDIRECT_URI]})
    return System(deployment, management, impersonation, application, spa.id)


@pytest.mark.parametrize("offset_s", [WRONG_BY_S, -WRONG_BY_S])
def test_the_clock_of_a_replica_of_token_service_is_wrong(system: System, offset_s: int) -> None:
    with wrong_by(offset_s, system.wrong):
        eventually(system.works)
        system.require_tokens(offset_s=offset_s)
        system.require_sessions()
        system.require_ended(system.right, reappears=False)
        system.require_ended(system.wrong, reappears=offset_s > 0)
        assert is_about(system.audited_at(), 0)
        assert (system.signs_in(system.right), system.signs_in(system.wrong)) == (True, True)
        assert system.answers_about_factors()
        assert not system.answers_about_factors(asked_at_s=offset_s)


@pytest.mark.parametrize("offset_s", [WRONG_BY_S, -WRONG_BY_S])
def test_the_clock_of_management_service_is_wrong(system: System, offset_s: int) -> None:
    with wrong_by(offset_s, system.deployment.management):
        eventually(system.works)
        system.require_tokens(offset_s=0)
        system.require_ended(system.right, reappears=offset_s < 0)
        assert is_about(system.audited_at(), offset_s)
        assert system.signs_in(system.right)
        assert not system.answers_about_factors()

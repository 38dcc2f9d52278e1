"""Clients of every kind at once, and what may not be lost: acknowledged writes, takes, suspensions, revocations."""

import asyncio
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import Final, NamedTuple, Self

import httpx2 as httpx

from provision import ServerAddresses
from stead import AccessTokenVerifier, Unavailable
from tests.support.agreement import require_agreement
from tests.support.impersonation import RESOURCE, Impersonation, cycle_works, make_machine, set_up
from tests.support.processes import Deployment, ServiceProcess
from tests.support.random_writes import UserWriter, make_roles, writing
from tests.support.waiting import eventually

_PAUSE_S: Final = 0.1
_SEED: Final = 20261128
_TIMEOUT_S: Final = 30
_EXPECTED: Final = {200, 201, 204, 400, 503}
_ID: Final = re.compile(r"/(users|applications)/\w+")


class Answer(NamedTuple):
    """The outcome of one request.

    Attributes:
        at: When it arrived, in seconds of the monotonic clock.
        request: Its method and path.
        status: The status; 0 without an answer.
        is_complete: Whether a 503 says when to retry.
    """

    at: float
    request: str
    status: int
    is_complete: bool


class Watched(httpx.BaseTransport):
    """Notes every answer."""

    def __init__(self, inner: httpx.BaseTransport, answers: list[Answer]) -> None:
        self._inner = inner
        self._answers = answers

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        status, retry_after = 0, ""
        try:
            answer = self._inner.handle_request(request)
            status, retry_after = answer.status_code, answer.headers.get("Retry-After", "")
            return answer
        finally:
            is_complete = status != 503 or (retry_after.isdigit() and int(retry_after) >= 1)
            name = _ID.sub(r"/\1/ID", f"{request.method} {request.url.path}")
            self._answers.append(Answer(time.monotonic(), name, status, is_complete))

    def close(self) -> None:
        self._inner.close()


class MixedLoad:
    """The clients; they run while the body of ``running`` does.

    Args:
        deployment: Its services.
        addresses: Returns where the stores are now.
        impersonation: What is impersonated; by default a new one, of which there can be one only.

    Attributes:
        management: A client of the Management API, whose answers do not count.
        answers: Every answer that the clients got.
    """

    def __init__(
        self,
        deployment: Deployment,
        addresses: Callable[[], ServerAddresses],
        impersonation: Impersonation | None = None,
    ) -> None:
        self._deployment = deployment
        self._addresses = addresses
        self.answers: list[Answer] = []
        self._over = threading.Event()
        self._spent: list[str] = []
        self._may_be_spent: list[str] = []
        self._of_suspended: list[str] = []
        self._revoked: list[str] = []
        self.management = deployment.management_client()
        self._bearer = {"Authorization": f"Bearer {deployment.management_access_token()}"}
        self._impersonation = impersonation or set_up(self.management)
        self._machine = make_machine(self.management, self._impersonation)
        self._http = httpx.Client(transport=Watched(httpx.HTTPTransport(), self.answers), timeout=_TIMEOUT_S)
        self._watched = [deployment.management_client(Watched(deployment.edge(), self.answers)) for _ in range(4)]
        role_ids = make_roles(self.management, self._impersonation)
        self._writers = [UserWriter(_SEED + n, client, role_ids) for n, client in enumerate(self._watched[2:])]
        jwks_url = f"{deployment.tokens[0].url}/oidc/jwks"
        self._verifier = AccessTokenVerifier(issuer=deployment.issuer, jwks_url=jwks_url, audience=RESOURCE)
        eventually(self.works)
        self._verified = self._client_credentials(deployment.tokens[0]).json()["access_token"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()
        for client in (self.management, *self._watched):
            client.close()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Keep the clients busy during the body, which begins when they have something that must be kept.

        The first error of one is raised at the end.
        """
        self._over.clear()
        self.answers.clear()
        clients = (self._exchange, self._suspend, self._revoke, self._read, self._verify)
        with ThreadPoolExecutor(len(clients)) as pool, writing(self._writers, pause_s=_PAUSE_S):
            busy = [pool.submit(self._repeat, client) for client in clients]
            try:
                eventually(self.has_acknowledged)
                yield
            finally:
                self._over.set()
        for each in busy:
            each.result()

    def _repeat(self, client: Callable[[], object]) -> None:
        while not self._over.wait(_PAUSE_S):
            with suppress(Unavailable, httpx.TransportError):  # noted as an answer
                client()

    def _exchange(self) -> None:
        """Mint a token and exchange it at two replicas."""
        token = self._watched[0].subject_tokens.create(self._impersonation.user_id).token
        self._may_be_spent.append(token)
        if self._exchanges(token):
            self._spent.append(token)

    def _exchanges(self, token: str) -> bool:
        statuses = [self._exchanged(process, token).status_code for process in self._deployment.tokens[:2]]
        assert statuses.count(200) <= 1, "a token was spent twice"
        return 200 in statuses

    def _exchanged(self, process: ServiceProcess, token: str) -> httpx.Response:
        return self._post(process, "/oidc/token", self._impersonation.auth, **self._impersonation.form(token))

    def _suspend(self) -> None:
        """Mint for a user who is then suspended."""
        management = self._watched[1]
        user_id = management.users.create(name="Suspended soon").id
        management.users.assign_roles(user_id, [self._impersonation.role_id])
        token = management.subject_tokens.create(user_id).token
        management.users.suspend(user_id)
        self._of_suspended.append(token)

    def _revoke(self) -> None:
        issued = self._client_credentials(self._deployment.tokens[-1])
        if issued.status_code == 200:
            token = issued.json()["access_token"]
            revoked = self._post(self._deployment.tokens[0], "/oidc/token/revocation", self._auth, token=token)
            if revoked.status_code == 200:
                self._revoked.append(token)

    def _client_credentials(self, process: ServiceProcess) -> httpx.Response:
        form = {"grant_type": "client_credentials", "resource": RESOURCE, "scope": "read:orders"}
        return self._post(process, "/oidc/token", self._auth, **form)

    @property
    def _auth(self) -> httpx.BasicAuth:
        return httpx.BasicAuth(*self._machine)

    def _read(self) -> httpx.Response:
        url = f"{self._deployment.management.url}/api/roles"
        return self._http.get(url, params={"page_size": 1}, headers=self._bearer)

    def _verify(self) -> None:
        assert self._verifier.verify(self._verified).scopes == {"read:orders"}

    def _write(self) -> httpx.Response:
        url = f"{self._deployment.management.url}/api/users"
        return self._http.post(url, json={"name": "Written once"}, headers=self._bearer)

    def _mint(self) -> httpx.Response:
        url = f"{self._deployment.management.url}/api/subject-tokens"
        return self._http.post(url, json={"userId": self._impersonation.user_id}, headers=self._bearer)

    def _introspect(self, token: str) -> httpx.Response:
        return self._post(self._deployment.tokens[0], "/oidc/token/introspection", self._auth, token=token)

    def _post(self, process: ServiceProcess, path: str, auth: httpx.BasicAuth, **form: str) -> httpx.Response:
        return self._http.post(f"{process.url}{path}", data=form, auth=auth)

    def works(self) -> bool:
        """Whether every replica has seen all changes, and exchanges."""
        return cycle_works(self._deployment, self.management, self._impersonation)

    def has_acknowledged(self) -> bool:
        """Whether there is something of each kind that must hold."""
        return bool(self._of_suspended and self._revoked and self._spent)

    def subject_token(self) -> str:
        """Return a token that ``statuses`` may spend later, when none can be minted."""
        return self.management.subject_tokens.create(self._impersonation.user_id).token

    def statuses(self, subject_token: str) -> dict[str, int]:
        """Send one request of each kind, and return their statuses."""
        process = self._deployment.tokens[0]
        return {
            "read": self._read().status_code,
            "write": self._write().status_code,
            "mint": self._mint().status_code,
            "exchange": self._exchanged(process, subject_token).status_code,
            "client credentials": self._client_credentials(process).status_code,
            "introspection": self._introspect(self._verified).status_code,
        }

    def require_kept(self) -> None:
        """Require that each request was answered as it should be, and that everything that was acknowledged holds."""
        assert {each.status for each in self.answers} <= _EXPECTED, Counter(self.answers)
        assert [each for each in self.answers if not each.is_complete] == []
        assert self.has_acknowledged()
        for process in self._deployment.tokens:
            for token in (*self._of_suspended, *self._spent):
                assert _answered(lambda: self._exchanged(process, token)).status_code == 400  # noqa: B023
        for token in self._may_be_spent:
            self._exchanges(token)
        for token in self._revoked:
            assert _answered(lambda: self._introspect(token)).json() == {"active": False}  # noqa: B023
        asyncio.run(require_agreement(self._addresses(), self.management, self._writers))

    def refused_s(self, since: float) -> float:
        """Return for how many seconds after a moment clients still got 503; print for which requests, and when."""
        later = [each for each in self.answers if each.at >= since]
        print(f"{'request':44} {'answers':>8} {'503':>5} {'from s':>7} {'to s':>7} {'longest gap s':>14}")  # noqa: T201
        for request in sorted({each.request for each in later}):
            answers = [each for each in later if each.request == request]
            refused = [each.at - since for each in answers if each.status == 503]
            granted = [since, *(each.at for each in answers if each.status not in {0, 503}), answers[-1].at]
            gap_s = max(after - before for before, after in pairwise(granted))
            span = f"{refused[0]:7.1f} {refused[-1]:7.1f}" if refused else f"{'':15}"
            print(f"{request:44} {len(answers):8} {len(refused):5} {span} {gap_s:14.1f}")  # noqa: T201
        return max((each.at - since for each in later if each.status == 503), default=0.0)


def _answered(request: Callable[[], httpx.Response]) -> httpx.Response:
    """Repeat a request until the answer is not 503, which is correct on a busy machine."""
    answers: list[httpx.Response] = []

    def is_answered() -> bool:
        answers.append(request())
        return answers[-1].status_code != 503

    eventually(is_answered)
    return answers[-1]

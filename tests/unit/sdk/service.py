"""A stand-in for the remote service: a token endpoint, and the answers that a test prepares for the Management API."""

from __future__ import annotations

import json
from typing import Any

from stead import AsyncManagementClient, ManagementClient
from tests.unit.sdk.http_server import Answer, HttpServer, Received
from tests.unit.sdk.issuer import Clock

CLIENT_ID = "management0000000001"
CLIENT_SECRET = "secret-of-the-client"
PASSWORD = "password-of-the-user"
SUBJECT_TOKEN = "sub_subject-token"
ACTOR_TOKEN = "actor-token"


class Service(HttpServer):
    """Issues ``access-token-1``, ``access-token-2``, …; answers everything else as prepared, by default 200 {}."""

    def __init__(self) -> None:
        super().__init__(self.respond)
        self.tokens_issued = 0
        self.token_lifetime_s = 3600
        self.token_answer: Answer | None = None
        self.refused_tokens: set[str] = set()
        self.answers: dict[tuple[str, str], Answer] = {}
        self.headers: dict[str, str] = {}

    def respond(self, request: Received) -> Answer:
        if request.path == "/oidc/token":
            return self.issue()
        if request.headers.get("authorization", "").removeprefix("Bearer ") in self.refused_tokens:
            return Answer(401, json.dumps({"code": "auth.unauthorized", "message": "no"}).encode(), self.headers)
        answer = self.answers.get((request.method, request.path), Answer(200, b"{}"))
        return Answer(answer.status, answer.body, {**self.headers, **answer.headers})

    def issue(self) -> Answer:
        if self.token_answer is not None:
            return self.token_answer
        self.tokens_issued += 1
        body = {
            "access_token": f"access-token-{self.tokens_issued}",
            "token_type": "Bearer",
            "expires_in": self.token_lifetime_s,
            "scope": "all",
        }
        return Answer(200, json.dumps(body).encode(), self.headers)

    def will_answer(
        self, method: str, path: str, body: Any = None, *, status: int = 200, headers: dict[str, str] | None = None
    ) -> None:
        document = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        self.answers[method, path] = Answer(status, document, headers or {})

    def client(self, clock: Clock, **settings: Any) -> ManagementClient:
        return ManagementClient(self.url, client_id=CLIENT_ID, client_secret=CLIENT_SECRET, clock=clock, **settings)

    def async_client(self, clock: Clock, **settings: Any) -> AsyncManagementClient:
        return AsyncManagementClient(
            self.url, client_id=CLIENT_ID, client_secret=CLIENT_SECRET, clock=clock, **settings
        )

    @property
    def calls(self) -> list[Received]:
        """The requests to the Management API."""
        return [request for request in self.received if request.path != "/oidc/token"]

    def will_list(self, path: str, items: list[Any]) -> None:
        """Answer a list that fits on one page."""
        self.will_answer("GET", path, items, headers={"Total-Number": str(len(items))})

    @property
    def token_requests(self) -> list[Received]:
        return [request for request in self.received if request.path == "/oidc/token"]

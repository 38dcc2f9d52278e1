"""The program of a pod: steady requests through the edge. It prints a line for each failure, and totals every second.

Each round is a change and what must follow from it: a user is renamed and read back, an application gains or loses an
organization role and its next token says so, and a subject token is exchanged twice, of which the second is refused.
Nothing is retried. Each kind of round is a stream of its own, with one request in flight at a time.
"""

import json
import os
import threading
import time
from collections import Counter
from typing import Any

import httpx2 as httpx

SETUP: dict[str, Any] = json.loads(os.environ["SETUP"])
PAUSE_S = 0.05
TOTALS: Counter[str] = Counter()


PRINTING = threading.Lock()


def say(**line: Any) -> None:
    """Print a line; two threads do not mix theirs."""
    with PRINTING:
        print(json.dumps({"at": time.time(), **line}), flush=True)


class UnexpectedStatusError(Exception):
    """The answer has another status than the one that must follow: which request, and the answer."""


def failed(what: str, detail: str) -> None:
    TOTALS["failures"] += 1
    say(stream=threading.current_thread().name, failed=what, detail=detail[:300])


class Round:
    """One thread's connection, and the number of its changes that were acknowledged."""

    def __init__(self) -> None:
        self.http = httpx.Client(base_url=SETUP["url"], timeout=30)
        self.number = 0
        self.is_holder = True
        self.token = ""
        self.token_until = 0.0

    def api(self) -> dict[str, str]:
        if time.time() > self.token_until:
            management = SETUP["management"]
            form = {"grant_type": "client_credentials", "resource": management["resource"], "scope": "all"}
            self.token = self._post("first token", "/oidc/token", form, management["auth"])["access_token"]
            self.token_until = time.time() + 60
        return {"Authorization": f"Bearer {self.token}"}

    def _counted(self, what: str, answer: httpx.Response, status: int) -> httpx.Response:
        TOTALS["requests"] += 1
        if answer.status_code != status:
            raise UnexpectedStatusError(what, f"{answer.status_code} {answer.text}")
        return answer

    def _post(
        self,
        what: str,
        path: str,
        form: dict[str, str],
        auth: list[str],
        status: int = 200,
        *,
        seen: httpx.Response | None = None,
    ) -> dict[str, Any]:
        headers = {"Identity-Revision": seen.headers["Identity-Revision"]} if seen else {}
        answer = self._counted(what, self.http.post(path, data=form, auth=(auth[0], auth[1]), headers=headers), status)
        return dict(answer.json())

    def rename(self) -> None:
        path = f"/api/users/{SETUP['user']}"
        name = f"Customer {self.number + 1}"
        self._counted("rename", self.http.patch(path, json={"name": name}, headers=self.api()), 200)
        self.number += 1
        read = self._counted("read", self.http.get(path, headers=self.api()), 200).json()
        if read.get("name") != name:
            failed("lost change", json.dumps(read))

    def change_of_permissions(self) -> None:
        member = SETUP["member"]
        path = f"/api/organizations/{member['organization']}/applications/{member['auth'][0]}/roles"
        roles = [] if self.is_holder else [member["role"]]
        answer = self.http.put(path, json={"organizationRoleIds": roles}, headers=self.api())
        self._counted("roles", answer, 204)
        self.is_holder = not self.is_holder
        form = {
            "grant_type": "client_credentials",
            "organization_id": member["organization"],
            "scope": member["permission"],
        }
        scope = self._post("organization token", "/oidc/token", form, member["auth"], seen=answer).get("scope", "")
        if (scope == member["permission"]) != self.is_holder:
            failed("lost change", f"holds the role: {self.is_holder}; scope: {scope!r}")

    def exchange(self) -> None:
        body = {"userId": SETUP["user"]}
        made = self._counted("subject token", self.http.post("/api/subject-tokens", json=body, headers=self.api()), 201)
        form = {**SETUP["exchange"], "subject_token": made.json()["subjectToken"]}
        self._post("exchange", "/oidc/token", form, SETUP["client"])
        self._post("second exchange", "/oidc/token", form, SETUP["client"], 400)


def run(step: str) -> None:
    at = Round()
    while True:
        try:
            getattr(at, step)()
        except UnexpectedStatusError as error:
            failed(*error.args)
        except httpx.TransportError as error:
            failed(step, repr(error))
        TOTALS[step] = TOTALS[step] + 1
        time.sleep(PAUSE_S)


for each in ("rename", "change_of_permissions", "exchange"):
    threading.Thread(target=run, name=each, args=(each,), daemon=True).start()
while True:
    time.sleep(1)
    say(**TOTALS)

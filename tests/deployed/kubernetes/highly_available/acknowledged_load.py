"""The program of a pod: steady requests, and a line for each thing that was acknowledged or failed.

``{"created": id}`` for a user that exists from then on, ``{"spent": token}`` for a subject token that was exchanged,
and ``{"failed": what, "status": …, "retry_after": …}`` for any other answer, or none. A token whose exchange has no
answer, or 503, is exchanged again; if both succeed, it was ``{"spent_twice": token}``.
"""

import json
import os
import threading
import time
from itertools import count
from typing import Any

import httpx2 as httpx

SETUP: dict[str, Any] = json.loads(os.environ["SETUP"])
PAUSE_S = 0.2
PRINTING = threading.Lock()


def say(**line: Any) -> None:
    """Print a line; two threads do not mix theirs."""
    with PRINTING:
        print(json.dumps({"at": time.time(), **line}), flush=True)


class Stream:
    """One thread's connection, with one request in flight at a time."""

    def __init__(self) -> None:
        self.http = httpx.Client(base_url=SETUP["url"], timeout=30)
        self.token = ""
        self.token_until = 0.0
        self.number = count()

    def ask(self, what: str, path: str, **request: Any) -> httpx.Response | None:
        """Return the answer; None, and a line, if there is none or it is an error of the server."""
        try:
            answer = self.http.post(path, **request)
        except httpx.TransportError as error:
            say(failed=what, status=0, retry_after=None, detail=repr(error))
            return None
        if answer.status_code >= 500:
            retry_after = answer.headers.get("Retry-After")
            say(failed=what, status=answer.status_code, retry_after=retry_after, detail=answer.text[:200])
            return None
        return answer

    def api(self) -> dict[str, str] | None:
        if time.time() > self.token_until:
            management = SETUP["management"]
            form = {"grant_type": "client_credentials", "resource": management["resource"], "scope": "all"}
            answer = self.ask("api token", "/oidc/token", data=form, auth=tuple(management["auth"]))
            if answer is None:
                return None
            self.token, self.token_until = answer.json()["access_token"], time.time() + 600
        return {"Authorization": f"Bearer {self.token}"}

    def create(self) -> None:
        headers = self.api()
        body = {"username": f"load-{os.urandom(4).hex()}-{next(self.number)}"}
        answer = self.ask("create", "/api/users", json=body, headers=headers) if headers else None
        if answer is not None:
            say(created=answer.raise_for_status().json()["id"])

    def exchange(self) -> None:
        headers = self.api()
        minted = (
            self.ask("mint", "/api/subject-tokens", json={"userId": SETUP["user"]}, headers=headers)
            if headers
            else None
        )
        if minted is None:
            return
        token = minted.raise_for_status().json()["subjectToken"]
        form = {**SETUP["exchange"], "subject_token": token}
        spent = 0
        for _ in range(20):
            answer = self.ask("exchange", "/oidc/token", data=form, auth=tuple(SETUP["client"]))
            if answer is None:
                time.sleep(1)
                continue
            spent += answer.status_code == 200
            if answer.status_code != 200 or spent > 1:
                break
        if spent:
            say(**{"spent" if spent == 1 else "spent_twice": token})


def run(step: str) -> None:
    stream = Stream()
    while True:
        getattr(stream, step)()
        time.sleep(PAUSE_S)


threads = [threading.Thread(target=run, args=(step,)) for step in ("create", "exchange")]
for each in threads:
    each.start()
for each in threads:
    each.join()

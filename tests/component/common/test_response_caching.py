"""Responses of the Management API stay in no shared cache, and a cached one is revalidated before use."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx2 as httpx
import pytest

from management_service.app import SWAGGER
from provision import ServerAddresses
from tests.support.fuzzed_system import FuzzedSystem
from tests.support.waiting import eventually

WHOLE: dict[str, Any] = json.loads(SWAGGER.read_bytes())
READ = [path for path, operations in WHOLE["paths"].items() if path.startswith("/api/") and "get" in operations]
WRITTEN = [
    (path, method, operation.get("requestBody", {}).get("required", False))
    for path, operations in WHOLE["paths"].items()
    for method, operation in operations.items()
    if path.startswith("/api/") and method != "get"
]
TAGGED, UNTAGGED = "private, no-cache", "no-store"


@pytest.fixture(scope="module")
def system(servers: ServerAddresses, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FuzzedSystem]:
    system = FuzzedSystem(servers, tmp_path_factory.mktemp("caching"))
    try:
        system.start()
        yield system
    finally:
        system.stop()


def caching(answer: httpx.Response) -> tuple[int, str | None]:
    return answer.status_code, answer.headers.get("Cache-Control")


@pytest.mark.parametrize("path", READ)
def test_every_read_is_private_and_revalidated_and_a_refusal_is_not_stored(system: FuzzedSystem, path: str) -> None:
    existing = path.format(**system.existing(path, set(re.findall(r"{(\w+)}", path))))
    if path == "/api/logs/consistency":
        existing += "?from=1&to=1"
    if path == "/api/search":
        existing += "?q=a"
    bearer, _ = system.authorization(path, None, 0)
    with httpx.Client(base_url=system.base_url, headers=bearer, timeout=20) as client:
        if path.endswith("/proof"):
            eventually(lambda: client.get(existing).status_code == 200)  # when the head that covers the entry is signed
        answer = client.get(existing)
        if "ETag" not in answer.headers:
            status = {"/api/status": 204, "/api/logs/export": 200, "/api/logs/leaves": 200}
            assert caching(answer) == (status[path], UNTAGGED)
            return
        assert caching(answer) == (200, TAGGED)
        assert caching(client.head(existing)) == (200, TAGGED)

        def revalidated() -> bool:
            """Tell whether two reads in a row agree; what arrives over the bus may change it between them."""
            known = {"If-None-Match": client.get(existing).headers["ETag"]}
            return caching(client.get(existing, headers=known)) == (304, TAGGED)

        eventually(revalidated)
        if "{" in path:
            status, cache_control = caching(client.get(re.sub(r"{\w+}", "unknown", path)))
            assert (status in {404, 422}, cache_control) == (True, UNTAGGED)
    if path not in {"/api/swagger.json", "/api/logs/jwks"}:
        assert caching(httpx.get(f"{system.base_url}{existing}")) == (401, UNTAGGED)


@pytest.mark.parametrize("path", READ)
def test_a_read_is_answered_as_by_the_framework(system: FuzzedSystem, path: str) -> None:
    """The framework judges every unusual ``Host``, and so answers the request itself."""
    existing = path.format(**system.existing(path, set(re.findall(r"{(\w+)}", path))))
    bearer, _ = system.authorization(path, None, 0)
    with httpx.Client(base_url=system.base_url, timeout=20) as client:

        def answer(address: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
            found = client.get(address, headers=headers)
            varying = {"date", "x-request-id"}
            return (
                found.status_code,
                {name: value for name, value in found.headers.items() if name not in varying},
                found.content,
            )

        def agree(address: str, **headers: str) -> bool:
            """Tell whether both answers agree; what arrives over the bus may change them in between."""
            return answer(address, **headers) == answer(address, **headers, Host="an_unusual_host")

        unknown = re.sub(r"{\w+}", "unknown", path)
        for address in (existing, f"{existing}?page_size=2&page=1", f"{existing}?unknown=1", unknown, f"{existing}%00"):
            eventually(lambda address=address: agree(address, **bearer))
            eventually(lambda address=address: agree(address, **bearer, **{"If-None-Match": "*"}))
        assert agree(existing)
        assert agree(existing, Authorization="Bearer wrong")


def same_by_the_framework(client: httpx.Client, method: str, path: str, **request: Any) -> httpx.Response:
    """Send a request here, and then to the framework, which judges every unusual ``Host``; return its answer."""
    headers = request.pop("headers", {})
    direct, whole = (
        client.request(method, path, headers={**headers, **host}, **request)
        for host in ({}, {"Host": "an_unusual_host"})
    )
    varying = {"date", "x-request-id", "content-length", "identity-revision"}
    shown = [
        (found.status_code, sorted(found.headers.keys()), {**found.headers, **dict.fromkeys(varying)})
        for found in (direct, whole)
    ]
    assert shown[0] == shown[1], f"{method} {path}"
    assert (direct.json() if direct.is_error else None) == (whole.json() if whole.is_error else None)
    return whole


@pytest.mark.heavy
def test_a_write_is_refused_as_by_the_framework(system: FuzzedSystem) -> None:
    is_json = {"Content-Type": "application/json"}
    with httpx.Client(base_url=system.base_url, timeout=20) as client:
        for path, method, needs_body in WRITTEN:
            unknown = re.sub(r"{\w+}", "unknown", path)
            bearer, _ = system.authorization(unknown, None, 0)
            same_by_the_framework(client, method, unknown, json={})
            same_by_the_framework(client, method, f"{unknown}?unknown=1", headers=bearer, json={})
            if needs_body:
                for content in (b"", b"{", b'{"unknown": 1}'):
                    same_by_the_framework(client, method, unknown, headers=bearer | is_json, content=content)
                same_by_the_framework(client, method, unknown, headers=bearer, content=b"text")


def test_a_write_is_answered_as_by_the_framework(system: FuzzedSystem) -> None:
    bearer, _ = system.authorization("/api/users", None, 0)
    with httpx.Client(base_url=system.base_url, headers=bearer, timeout=20) as client:
        user = same_by_the_framework(client, "POST", "/api/users", json={"name": "Alice"}).json()
        path = f"/api/users/{user['id']}"
        assert same_by_the_framework(client, "PATCH", path, json={"name": "Bob"}).json()["name"] == "Bob"
        assert same_by_the_framework(client, "PATCH", f"{path}/custom-data", json={"customData": {"a": 1}}).json()
        same_by_the_framework(client, "PATCH", path, headers={"If-Match": '"another"'}, json={"name": "Bob"})
        sent = {"name": "n", "type": "MachineToMachine"}
        application = same_by_the_framework(client, "POST", "/api/applications", json=sent).json()
        secrets = f"/api/applications/{application['id']}/secrets"
        names = ({"name": "first"}, {"name": "second"})
        assert [client.post(secrets, json=name).status_code for name in names] == [201, 201]
        assert [
            client.delete(f"{secrets}/{name['name']}", headers=host).content
            for name, host in zip(names, ({}, {"Host": "an_unusual_host"}), strict=True)
        ] == [b"", b""]


@pytest.mark.parametrize("path", ["/api/subject-tokens", "/api/applications/{application_id}/secrets"])
def test_a_secret_is_not_stored(system: FuzzedSystem, path: str) -> None:
    found = system.existing("/api/applications/{application_id}", {"application_id", "user_id"})
    bearer, _ = system.authorization(path, None, 0)
    body = {"userId": found["user_id"]} if "subject" in path else {"name": "another"}
    answer = httpx.post(f"{system.base_url}{path.format(**found)}", headers=bearer, json=body)
    assert caching(answer) == (201, UNTAGGED)

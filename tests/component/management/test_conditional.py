"""``ETag`` on every GET, and 304 for ``If-None-Match``; the same for HEAD."""

import httpx2 as httpx
import pytest

from tests.support.connectors import stored_connector
from tests.support.management_api import Management, refusal, unique

FUNCTION = "/api/configs/jwt-customizer/{kind}"
ELSEWHERE = {"/api/status", FUNCTION, f"{FUNCTION}/versions/{{version_number}}", f"{FUNCTION}/failures"}
ELSEWHERE |= {f"{FUNCTION}/recording"}
ELSEWHERE |= {"/api/logs", "/api/logs/{log_id}", "/api/logs/export"}  # which grow all the time
ELSEWHERE |= {"/api/logs/{log_id}/proof", "/api/logs/consistency", "/api/logs/leaves", "/api/logs/head"}
ELSEWHERE |= {"/api/logs/figures", "/api/logs/jwks"}  # the first key is made with the first head
ELSEWHERE |= {"/api/users/{user_id}/effective-permissions"}  # which needs template-service
ELSEWHERE |= {"/api/search"}  # which needs a parameter
ELSEWHERE |= {"/api/impersonations", "/api/impersonations/{impersonation_id}", "/oidc/me/impersonations"}
ELSEWHERE |= {
    "/api/my-account",
    "/api/my-account/factors",
    "/api/my-account/impersonations",
    "/api/my-account/identities",
}  # another token


async def paths(management: Management) -> list[str]:
    """Return a URL for every GET operation of the document, except those that need token-service."""
    user, application = await management.created("users", name=unique("u")), await management.machine()
    resource = await management.created("resources", name="n", indicator=f"https://{unique('r')}.example.com")
    role = await management.created("roles", name=unique("r"), description="", type="User")
    ids = {
        "user_id": user["id"],
        "connector_id": await stored_connector(management.database, management.tenant_id),
        "application_id": application,
        "resource_id": resource["id"],
        "role_id": role["id"],
        "kind": "access-token",
    }
    document = (await management.client.get("/schema")).json()
    gets = [path for path, operations in document["paths"].items() if "get" in operations]
    return [path.format(**ids) for path in gets if path not in ELSEWHERE]


@pytest.mark.heavy
async def test_every_get_has_an_entity_tag_and_answers_304_without_a_body_if_it_matches(
    management: Management,
) -> None:
    asked = await paths(management)
    assert len(asked) >= 15
    for path in asked:
        answer = await management.client.get(path)
        etag = answer.headers["ETag"]
        for condition in (etag, f"W/{etag}", f'"x", {etag}', "*"):
            again = await management.client.get(path, headers={"If-None-Match": condition})
            assert (again.status_code, again.content) == (304, b""), path
            assert again.headers["ETag"] == etag
            assert "Content-Type" not in again.headers
            assert len(again.headers["X-Request-Id"]) == 32
        other = await management.client.get(path, headers={"If-None-Match": '"x"'})
        assert (other.status_code, other.content, other.headers["ETag"]) == (200, answer.content, etag)


async def test_head_answers_like_get_without_the_body(management: Management) -> None:
    """RFC 9110 sections 9.3.2 and 13.1.2: the same status and headers, also for a match and without a token."""
    asked = [*await paths(management), "/api/users/none", "/api/nothing", "/api/users?page=0", "/health/ready"]
    async with management.client_with(None) as anonymous:
        for client in (management.client, anonymous):
            for path in asked:
                for condition in ('"x"', "*"):
                    head, get = [
                        await client.request(method, path, headers={"If-None-Match": condition})
                        for method in ("HEAD", "GET")
                    ]
                    assert (head.status_code, head.content) == (get.status_code, b""), path
                    own = {"x-request-id": get.headers["X-Request-Id"]}
                    assert dict(head.headers) | own == dict(get.headers), path


async def test_an_entity_tag_changes_with_the_answer(management: Management) -> None:
    user = await management.created("users", name=unique("u"))
    path = f"/api/users/{user['id']}"
    before = (await management.client.get(path)).headers["ETag"]
    await management.client.patch(path, json={"name": "other"})
    after = await management.client.get(path, headers={"If-None-Match": before})
    assert (after.status_code, after.json()["name"]) == (200, "other")


async def test_a_page_that_gained_a_successor_does_not_match_its_old_entity_tag(management: Management) -> None:
    marker = unique("page")
    await management.created("users", name=f"{marker} a")
    params = {"q": marker, "page_size": 1}
    first = await management.client.get("/api/users", params=params)
    await management.created("users", name=f"{marker} b")
    again = await management.client.get("/api/users", params=params, headers={"If-None-Match": first.headers["ETag"]})
    assert (again.status_code, again.json(), again.headers["Total-Number"]) == (200, first.json(), "2")


@pytest.mark.parametrize("path", ["/api/users/none", "/api/nothing", "/api/users?page=0"])
async def test_a_refusal_has_no_entity_tag_and_is_never_a_304(management_api: httpx.AsyncClient, path: str) -> None:
    answer = await management_api.get(path, headers={"If-None-Match": "*"})
    assert refusal(answer)[0] in {400, 404}
    assert "ETag" not in answer.headers


async def test_a_conditional_request_without_a_token_is_refused(management: Management) -> None:
    async with management.client_with(None) as anonymous:
        assert (await anonymous.get("/api/users", headers={"If-None-Match": "*"})).status_code == 401

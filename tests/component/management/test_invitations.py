"""Invitations: what makes one valid, that each is accepted once, and what is stored and told of it."""

import time

import pytest

from tests.support.management_api import Management, at_once, issues, refusal, revision_of, unique

PASSWORD = "unlike any documented example"
ACCEPT = "/api/invitations/accept"
NOT_VALID = (422, "invitation.not_valid")


class Invited:
    """A user without a password, and a browser without an access token."""

    def __init__(self, management: Management, user_id: str) -> None:
        self.management = management
        self.path = f"/api/users/{user_id}"
        self.user_id = user_id

    async def invitation(self, **body: int) -> str:
        answer = await self.management.client.post(f"{self.path}/invitation", json=body)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["invitation"])

    async def accepts(self, invitation: object, password: object = PASSWORD) -> tuple[int, str | None]:
        async with self.management.client_with(None) as anonymous:
            answer = await anonymous.post(ACCEPT, json={"invitation": invitation, "password": password})
        return answer.status_code, answer.json()["code"] if answer.content else None

    async def has_password(self) -> bool:
        return bool((await self.management.client.get(self.path)).json()["hasPassword"])


@pytest.fixture
async def invited(management: Management) -> Invited:
    return Invited(management, (await management.created("users", username=unique("u").replace("-", "_")))["id"])


async def test_it_is_accepted_once_without_a_token_and_sets_the_password(invited: Invited) -> None:
    before = time.time() * 1000
    answer = await invited.management.client.post(f"{invited.path}/invitation", json={"minutes": 60})
    invitation, expires_at = answer.json()["invitation"], answer.json()["expiresAt"]
    assert before + 3_600_000 <= expires_at <= time.time() * 1000 + 3_600_000
    assert not await invited.has_password()

    async with invited.management.client_with(None) as anonymous:
        accepted = await anonymous.post(ACCEPT, json={"invitation": invitation, "password": PASSWORD})
    assert (accepted.status_code, accepted.content) == (204, b"")
    assert revision_of(accepted) == await invited.management.revision()
    assert await invited.has_password()
    assert await invited.accepts(invitation, "another good password") == NOT_VALID


@pytest.mark.servers
async def test_of_many_at_once_one_is_accepted(invited: Invited) -> None:
    invitation = await invited.invitation()
    async with invited.management.client_with(None) as anonymous:
        answers = await at_once(
            *(anonymous.post(ACCEPT, json={"invitation": invitation, "password": f"{PASSWORD} {n}"}) for n in range(8))
        )
    assert sorted(answer.status_code for answer in answers) == [204, *[422] * 7]


async def test_a_bad_password_loses_nothing(invited: Invited) -> None:
    invitation = await invited.invitation()
    for password in ("short", "", "x" * 257, None, 12345678, ["a good password"]):
        assert (await invited.accepts(invitation, password))[0] == 400, password
    assert await invited.accepts(invitation) == (204, None)


@pytest.mark.parametrize("value", ["none of ours", "é", "x" * 128])
async def test_what_is_no_invitation_is_refused(invited: Invited, value: str) -> None:
    await invited.invitation()
    assert await invited.accepts(value) == NOT_VALID
    assert not await invited.has_password()


async def test_a_new_one_replaces_the_earlier_one(invited: Invited) -> None:
    earlier = await invited.invitation()
    later = await invited.invitation()
    assert await invited.accepts(earlier) == NOT_VALID
    assert await invited.accepts(later) == (204, None)


async def test_what_ends_it(invited: Invited) -> None:
    client = invited.management.client
    for method, path, body in (
        ("PATCH", "/password", {"password": "set by an administrator"}),
        ("PATCH", "/is-suspended", {"isSuspended": True}),
        ("PATCH", "/is-suspended", {"isSuspended": False}),
        ("DELETE", "/invitation", None),
        ("DELETE", "", None),
    ):
        invitation = await invited.invitation()
        arguments = {} if body is None else {"json": body}
        answer = await client.request(method, f"{invited.path}{path}", **arguments)
        assert answer.is_success, answer.text
        assert await invited.accepts(invitation) == NOT_VALID, path


async def test_an_expired_one_is_refused_and_a_change_of_the_name_ends_none(invited: Invited) -> None:
    invitation = await invited.invitation(minutes=1)
    await invited.management.client.patch(invited.path, json={"name": "Renamed"})
    expire = "UPDATE invitations SET expires_at = expires_at - $1 WHERE user_id = $2"
    await invited.management.database.execute(expire, 60_000, invited.user_id)
    assert await invited.accepts(invitation) == NOT_VALID
    await invited.management.database.execute(expire, -60_000, invited.user_id)
    assert await invited.accepts(invitation) == (204, None)


async def test_bad_requests_are_refused(management: Management, invited: Invited) -> None:
    for body in ({"minutes": 0}, {"minutes": 43_201}, {"minutes": "60"}, {"minutes": None}, {"hours": 1}):
        assert issues(await management.client.post(f"{invited.path}/invitation", json=body)), body
    for method in ("POST", "DELETE"):
        answer = await management.client.request(
            method, "/api/users/nobody/invitation", **({"json": {}} if method == "POST" else {})
        )
        assert refusal(answer) == (404, "entity.not_exists_with_id")
    async with management.client_with(None) as anonymous:
        assert (await anonymous.post(f"{ACCEPT}?invitation=x", json={})).status_code == 400
        assert refusal(await anonymous.post(f"{invited.path}/invitation", json={}))[0] == 401
    async with management.client_with(management.token(scope="read")) as reader:
        assert refusal(await reader.post(f"{invited.path}/invitation", json={}))[0] == 403


async def test_the_database_holds_a_hash_only(invited: Invited) -> None:
    invitation = await invited.invitation()
    rows = await invited.management.database.fetch("SELECT * FROM invitations WHERE user_id = $1", invited.user_id)
    assert len(rows) == 1
    assert invitation not in str(rows)


async def test_open_ones_are_listed_with_who_created_them_until_they_end(invited: Invited) -> None:
    client, before = invited.management.client, int(time.time() * 1000)

    async def listed(**params: str) -> list[dict[str, object]]:
        answer = await client.get("/api/invitations", params={"userId": invited.user_id, **params})
        assert (answer.status_code, answer.headers["Total-Number"]) == (200, str(len(answer.json()))), answer.text
        found: list[dict[str, object]] = answer.json()
        return found

    assert await listed() == []
    answer = await client.post(f"{invited.path}/invitation", json={})
    (found,) = await listed()
    assert before <= found.pop("createdAt") <= int(time.time() * 1000)  # type: ignore[operator]
    expected = {
        "userId": invited.user_id,
        "status": "Pending",
        "expiresAt": answer.json()["expiresAt"],
        "inviterId": None,
        "applicationId": invited.management.credentials.client_id,
    }
    assert found == expected
    assert await listed(status="Expired") == []
    username = (await client.get(invited.path)).json()["username"]
    assert len(await listed(q=username.upper())) == 1
    assert await listed(q=f"{username}x") == []

    author = (await invited.management.created("users"))["id"]
    async with invited.management.client_with(invited.management.token(subject=author)) as another:
        assert (await another.post(f"{invited.path}/invitation", json={"minutes": 5})).is_success
    (found,) = await listed(status="Pending")
    assert (found["inviterId"], found["applicationId"]) == (author, expected["applicationId"])
    expire = "UPDATE invitations SET expires_at = $1 WHERE user_id = $2"
    await invited.management.database.execute(expire, before, invited.user_id)
    assert [each["status"] for each in await listed()] == ["Expired"]
    assert await listed(status="Pending") == []

    for method, path, body in (
        ("PATCH", "/password", {"password": "set by an administrator"}),
        ("PATCH", "/is-suspended", {"isSuspended": True}),
        ("DELETE", "/invitation", None),
    ):
        await invited.invitation()
        assert len(await listed()) == 1
        assert (await client.request(method, f"{invited.path}{path}", **({"json": body} if body else {}))).is_success
        assert await listed() == [], path
    invitation = await invited.invitation()
    assert await invited.accepts(invitation) == (204, None)
    assert await listed() == []


async def test_they_are_listed_page_by_page_in_the_order_in_which_they_expire(management: Management) -> None:
    marker, ids = unique("u").replace("-", "_"), []
    for minutes in (30, 10, 20):
        user_id = (await management.created("users", username=f"{marker}_{minutes}"))["id"]
        await management.client.post(f"/api/users/{user_id}/invitation", json={"minutes": minutes})
        ids.append(user_id)
    pages = [
        await management.client.get("/api/invitations", params={"q": marker, "page": page, "page_size": 2})
        for page in (1, 2)
    ]
    assert [[each["userId"] for each in page.json()] for page in pages] == [[ids[1], ids[2]], [ids[0]]]
    assert {page.headers["Total-Number"] for page in pages} == {"3"}
    for query in ("status=pending", "status=", "page_size=101", "userId=", "q=%00"):
        assert refusal(await management.client.get(f"/api/invitations?{query}"))[0] == 400, query
    async with management.client_with(management.token(scope="organizations")) as another:
        assert refusal(await another.get("/api/invitations"))[0] == 403

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

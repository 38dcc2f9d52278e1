"""What a member may do, read over HTTP: the union over its roles, for whom it is, and what a poll costs."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import jwt
import pytest
import pytest_asyncio

from identity_common.oauth import GRANT_TOKEN_EXCHANGE
from identity_common.wire.revocations import revocation_key
from tests.support.effective_permissions import ReadingMember, at_rest, fetches, organization_audience
from tests.support.management_api import AUDIENCE, issues, refusal, revision_of, unique
from tests.support.organizations import APPLICATIONS, KINDS, USERS, Kind, Organization, member_of_kind
from tests.support.template_api import Template, revision

of_both_kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.path)
FORBIDDEN = (403, "auth.forbidden")
UNAUTHORIZED = (401, "auth.unauthorized")


@pytest_asyncio.fixture
async def member(template: Template) -> ReadingMember:
    """A user with one permission."""
    return await ReadingMember.new(template)


@of_both_kinds
async def test_a_member_may_do_what_any_of_its_roles_grants(template: Template, kind: Kind) -> None:
    member = await ReadingMember.new(template, kind)
    names = sorted(unique("p") for _ in range(3))
    permissions = [await template.permission(name) for name in reversed(names)]
    await template.client.patch(
        f"/api/organization-scopes/{permissions[0]['id']}", json={"description": "May do the last thing."}
    )
    resource = await template.resource("read:orders")
    second = await template.role(
        type=kind.role_type,
        organizationScopeIds=[permission["id"] for permission in [*permissions, member.permission]],
        resourceScopeIds=[resource["scopes"][0]["id"]],
    )
    empty = await template.role(type=kind.role_type)
    await member.organization.assign([member.id], [second["id"], empty["id"]])
    permissions[0]["description"] = "May do the last thing."
    answer = await member.read()
    assert answer.status_code == 200
    assert answer.json() == sorted([*permissions, member.permission], key=lambda permission: permission["name"])
    assert answer.json()[0].keys() == {"tenantId", "id", "name", "description"}
    assert (await template.client.get(member.path)).json() == answer.json()


@of_both_kinds
async def test_a_member_without_roles_may_do_nothing(template: Template, kind: Kind) -> None:
    member = await ReadingMember.new(template, kind)
    await template.client.put(f"{member.organization.path}/{member.id}/roles", json={})
    answer = await member.read()
    assert (answer.status_code, answer.json()) == (200, [])
    assert (await member.read(If_None_Match=answer.headers["ETag"])).status_code == 304


@of_both_kinds
async def test_an_organization_token_opens_its_own_member_of_its_own_organization_alone(
    template: Template, kind: Kind
) -> None:
    """L4, L5."""
    member = await ReadingMember.new(template, kind)
    colleague = await ReadingMember.new(template, kind, member.organization)
    elsewhere = await Organization.new(template, kind, member.id)
    assert (await member.read()).status_code == 200
    assert refusal(await member.read(path=colleague.path)) == FORBIDDEN
    assert refusal(await member.read(path=f"{elsewhere.path}/{member.id}/scopes")) == FORBIDDEN
    assert refusal(await member.read(path=f"/api/organizations/nowhere/{kind.path}/{member.id}/scopes")) == FORBIDDEN
    assert refusal(await member.read(path=f"{member.organization.path}/nobody/scopes")) == FORBIDDEN
    other = APPLICATIONS if kind is USERS else USERS
    twin = f"/api/organizations/{member.organization.id}/{other.path}/{member.id}/scopes"
    assert refusal(await member.read(path=twin)) == (422, "organization.require_membership")


@pytest.mark.parametrize(
    "claims",
    [
        {"audience": "https://api.example.com", "organization_id": "{organization}"},
        {"audience": "https://api.example.com"},
        {"audience": "{issuer}/me", "scope": "openid"},
        {"audience": AUDIENCE, "scope": "subject-tokens"},
        {"audience": AUDIENCE, "scope": "all", "act": {"sub": "somebody"}},
        {"audience": "urn:logto:organization:{organization}"},
        {"audience": "urn:service:organization:"},
        {"audience": "urn:service:organization:{organization}/"},
        {"audience": "{organization}"},
        {"subject": "somebody"},
    ],
    ids=str,
)
async def test_another_good_token_of_ours_is_forbidden(member: ReadingMember, claims: dict[str, Any]) -> None:
    """A token for a resource is no organization token, though it says ``organization_id``."""
    issuer = member.template.management.issuer.issuer
    filled = {
        name: value.format(organization=member.organization.id, issuer=issuer) if isinstance(value, str) else value
        for name, value in claims.items()
    }
    answer = await member.read(member.token(**filled))
    assert refusal(answer) == FORBIDDEN
    assert answer.headers["WWW-Authenticate"] == 'Bearer error="insufficient_scope"'


def token_of_actors(member: ReadingMember, *actors: str) -> str:
    """Return an organization token that was got by an exchange, in which these act, the current one first."""
    act: dict[str, Any] = {}
    for actor in reversed(actors):
        act = {"sub": actor, "act": act} if act else {"sub": actor}
    return member.token(act=act, gty=GRANT_TOKEN_EXCHANGE)


async def test_whoever_acts_as_the_member_reads_what_the_member_may_do(
    member: ReadingMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An organization token that was got by an exchange says what its subject may do: reading it is no more."""
    actors = [(await member.template.management.created("users"))["id"] for _ in range(2)]
    answer = await member.read(token_of_actors(member, *actors))
    assert (answer.status_code, answer.json()) == (200, (await member.read()).json())
    token = token_of_actors(member, *actors)
    await at_rest(member.template)
    for _ in range(2):
        with fetches(monkeypatch) as sent:
            unchanged = await member.read(token, If_None_Match=answer.headers["ETag"])
        assert unchanged.status_code == 304
    assert len(sent) == 1, "whoever acts is looked at in the same statement"


@pytest.mark.parametrize("position", [0, 1], ids=["who acts now", "who acted before"])
@pytest.mark.parametrize(
    "end",
    [
        lambda client, user: client.patch(f"/api/users/{user}/is-suspended", json={"isSuspended": True}),
        lambda client, user: client.patch(f"/api/users/{user}/password", json={"password": "correct horse"}),
        lambda client, user: client.delete(f"/api/users/{user}"),
    ],
    ids=["suspended", "another password", "deleted"],
)
async def test_nobody_who_is_suspended_or_gone_acts_as_the_member(
    member: ReadingMember, end: Callable[[httpx.AsyncClient, str], Awaitable[httpx.Response]], position: int
) -> None:
    """L1: everybody in the chain; on every way to an answer."""
    actors = [(await member.template.management.created("users"))["id"] for _ in range(2)]
    token = token_of_actors(member, *actors)
    first = await member.read(token)
    assert first.status_code == 200
    assert (await end(member.template.management.client, actors[position])).is_success
    await member.template.caught_up()
    etag = first.headers["ETag"]
    for headers in ({}, {"If_None_Match": etag}, {"If_None_Match": etag, "Prefer": "wait=1"}):
        assert refusal(await member.read(token, **headers)) == UNAUTHORIZED
    assert (await member.read()).status_code == 200


@pytest.mark.parametrize(
    "act", [{"sub": "nobody"}, {"sub": 1}, {}, {"sub": "nobody", "act": "nobody"}, {"client_id": "somebody"}]
)
async def test_nobody_who_is_unknown_acts_as_the_member(member: ReadingMember, act: dict[str, Any]) -> None:
    assert refusal(await member.read(member.token(act=act, gty=GRANT_TOKEN_EXCHANGE))) == UNAUTHORIZED


async def test_a_token_that_is_not_good_opens_nothing(member: ReadingMember) -> None:
    """L3: by its signature, type, time, issuer and audience."""
    issuer = member.template.management.issuer
    now = int(time.time())
    audience = organization_audience(member.organization.id)
    claims = {
        "iss": issuer.issuer,
        "sub": member.id,
        "aud": audience,
        "client_id": member.template.management.credentials.client_id,
        "iat": now,
        "exp": now + 600,
        "jti": unique("token"),
    }
    assert (await member.read(issuer.sign(claims))).status_code == 200
    bad = [
        issuer.sign({**claims, "exp": now - 120}),
        issuer.sign({**claims, "nbf": now + 600}),
        issuer.sign({**claims, "iss": "https://elsewhere.example.com/oidc"}),
        issuer.sign({**claims, "aud": [audience]}),
        issuer.sign({**claims, "aud": None}),
        issuer.sign({**claims, "aud": ""}),
        issuer.sign({name: value for name, value in claims.items() if name != "aud"}),
        issuer.sign(claims, typ="JWT"),
        issuer.sign(claims, kid="unknown"),
        issuer.sign(claims)[:-6] + "AAAAAA",
        "sub_abc",
        "a.b.c",
    ]
    for token in bad:
        answer = await member.read(token)
        assert refusal(answer) == UNAUTHORIZED, token
        assert answer.headers["WWW-Authenticate"] == 'Bearer error="invalid_token"'
    async with member.template.client_with(None) as nobody:
        assert refusal(await nobody.get(member.path)) == (401, "auth.authorization_header_missing")
        basic = await nobody.get(member.path, headers={"Authorization": "Basic YTpi"})
        assert refusal(basic) == (401, "auth.authorization_token_type_not_supported")


async def test_whoever_is_suspended_or_gone_or_has_ended_the_token_reads_nothing(template: Template) -> None:
    """L1: the liveness check of every path."""
    management = template.management
    suspended, ended, deleted = [await ReadingMember.new(template) for _ in range(3)]
    application = await member_of_kind(template, APPLICATIONS)
    through = suspended.token(client_id=application)
    assert (await suspended.read(through)).status_code == 200
    await management.client.delete(f"/api/applications/{application}")
    await template.caught_up()
    assert refusal(await suspended.read(through)) == UNAUTHORIZED

    tokens = [each.token(issued_at=time.time() - 5) for each in (suspended, ended, deleted)]
    await management.client.patch(f"/api/users/{suspended.id}/is-suspended", json={"isSuspended": True})
    await management.client.patch(f"/api/users/{ended.id}/password", json={"password": "correct horse"})
    await management.client.delete(f"/api/users/{deleted.id}")
    await template.caught_up()
    for member, token in zip((suspended, ended, deleted), tokens, strict=True):
        assert refusal(await member.read(token)) == UNAUTHORIZED
    assert refusal(await suspended.read(suspended.token(issued_at=time.time() + 5))) == UNAUTHORIZED
    assert (await ended.read(ended.token(issued_at=time.time() + 5))).status_code == 200
    machine = await ReadingMember.new(template, APPLICATIONS)
    token = machine.token()
    await management.client.delete(f"/api/applications/{machine.id}")
    await template.caught_up()
    assert refusal(await machine.read(token)) == UNAUTHORIZED


@of_both_kinds
async def test_a_revoked_token_reads_nothing_and_is_told_of_nothing(template: Template, kind: Kind) -> None:
    """L1, L7: on every way to an answer, the shorter one of an unchanged poll included."""
    member = await ReadingMember.new(template, kind)
    token = member.token(jti=unique("revoked"))
    first = await member.read(token)
    assert first.status_code == 200
    etag, revoked = first.headers["ETag"], jwt.decode(token, options={"verify_signature": False})["jti"]
    assert (await member.read(token, If_None_Match=etag)).status_code == 304
    key = revocation_key(template.tenant_id, revoked)
    await template.management.redis.set(key, "1", px=60_000)
    for headers in ({}, {"If_None_Match": etag}, {"If_None_Match": etag, "Prefer": "wait=1"}):
        assert refusal(await member.read(token, **headers)) == UNAUTHORIZED
    await template.management.redis.delete(key)
    waiting = asyncio.create_task(member.read(token, If_None_Match=etag, Prefer="wait=1"))
    await asyncio.sleep(0.3)
    await template.management.redis.set(key, "1", px=60_000)
    assert refusal(await waiting) == UNAUTHORIZED
    assert (await member.read()).status_code == 200


@of_both_kinds
async def test_who_is_no_member_and_what_is_no_organization(template: Template, kind: Kind) -> None:
    member, client = await ReadingMember.new(template, kind), template.client
    token, not_a_member = member.token(), (422, "organization.require_membership")
    for stranger in ("nobody", await member_of_kind(template, kind)):
        assert refusal(await client.get(f"{member.organization.path}/{stranger}/scopes")) == not_a_member
    missing = f"/api/organizations/nowhere/{kind.path}/{member.id}/scopes"
    assert refusal(await client.get(missing)) == (404, "entity.not_exists_with_id")
    await member.organization.remove(member.id)
    assert refusal(await member.read(token)) == not_a_member
    await member.organization.delete()
    assert refusal(await member.read(token)) == (404, "entity.not_exists_with_id")
    assert refusal(await client.get(f"{member.organization.path}/%00/scopes")) == (400, "guard.invalid_input")


async def test_the_entity_tag_changes_with_every_change_of_what_the_member_may_do_and_with_no_other(
    template: Template, member: ReadingMember
) -> None:
    client, role = template.client, f"/api/organization-roles/{member.role}"
    permission = f"/api/organization-scopes/{member.permission['id']}"
    second, other = await template.permission(), await template.permission()
    second_role = await template.role(organizationScopeIds=[second["id"]])
    roles = f"{member.organization.path}/{member.id}/roles"
    scopes = {"organizationScopeIds": [other["id"]]}
    changes = (
        ("POST", roles, {"organizationRoleIds": [second_role["id"]]}),
        ("PATCH", permission, {"name": unique("renamed")}),
        ("PATCH", permission, {"description": "Something else"}),
        ("POST", f"{role}/scopes", scopes),
        ("DELETE", f"{role}/scopes/{other['id']}", None),
        ("PUT", f"{role}/scopes", scopes),
        ("DELETE", f"/api/organization-scopes/{other['id']}", None),
        ("DELETE", f"{roles}/{member.role}", None),
        ("DELETE", f"/api/organization-roles/{second_role['id']}", None),
    )
    etag = (await member.read()).headers["ETag"]
    assert etag.startswith('W/"')
    seen = {etag}
    for method, path, body in changes:
        assert (await member.read(If_None_Match=etag)).status_code == 304
        assert (await client.request(method, path, json=body)).is_success
        answer = await member.read(If_None_Match=etag)
        assert answer.status_code == 200, path
        etag = answer.headers["ETag"]
        seen.add(etag)
    assert answer.json() == []
    assert len(seen) == len(changes) + 1

    stranger = await ReadingMember.new(template, USERS, member.organization)
    await stranger.grant(second["id"])
    await client.patch(f"/api/organizations/{member.organization.id}", json={"name": "Renamed"})
    answer = await member.read(If_None_Match=etag)
    assert (answer.status_code, answer.content, answer.headers["ETag"]) == (304, b"", etag)


@pytest.mark.parametrize(
    ("condition", "status"),
    [("{etag}", 304), ('"x", {etag}', 304), ("{strong}", 304), ("*", 304), ('"x"', 200), ("x", 200), ("", 200)],
)
async def test_a_condition_names_what_the_caller_has(member: ReadingMember, condition: str, status: int) -> None:
    etag = (await member.read()).headers["ETag"]
    filled = condition.format(etag=etag, strong=etag.removeprefix("W/"))
    answer = await member.read(If_None_Match=filled)
    assert (answer.status_code, answer.headers["ETag"], answer.headers["Vary"]) == (status, etag, "Prefer")
    assert "Preference-Applied" not in answer.headers


async def test_an_unchanged_poll_asks_where_the_database_stands_and_no_more(
    template: Template, member: ReadingMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def asked_by_a_poll(polling: ReadingMember = member) -> list[str]:
        with fetches(monkeypatch) as sent:
            assert (await polling.read(polling.token(), If_None_Match="*")).status_code == 304
        return sent

    colleague = await ReadingMember.new(template)
    tokens = {each: each.token() for each in (member, colleague)}
    for each, token in tokens.items():
        monkeypatch.setattr(each, "token", lambda token=token: token)
    await at_rest(template)
    for each in tokens:
        await asked_by_a_poll(each)

    assert await asked_by_a_poll() == ["version"]
    with fetches(monkeypatch) as sent:
        assert (await member.read()).status_code == 200
    assert sent == ["version", "list"]
    with fetches(monkeypatch) as sent:
        answers = await asyncio.gather(*(member.read(If_None_Match="*") for _ in range(50)))
    assert {answer.status_code for answer in answers} == {304}
    assert set(sent) == {"version"}
    assert len(sent) < 25, "polls of one turn of the event loop are one statement"

    await template.permission()  # something has moved
    await at_rest(template)
    assert await asked_by_a_poll() == ["version", "state"]
    assert await asked_by_a_poll() == ["version"]
    assert await asked_by_a_poll(colleague) == ["state"], "it is known by now that something has moved"


@of_both_kinds
async def test_an_unchanged_poll_is_answered_the_same_with_and_without_a_preference(
    template: Template, kind: Kind
) -> None:
    """A preference for no wait changes nothing."""
    member = await ReadingMember.new(template, kind)
    etag = (await member.read()).headers["ETag"]
    answers = [await member.read(If_None_Match=etag), await member.read(If_None_Match=etag, Prefer="wait=0")]
    varying = {"x-request-id": "any", "identity-revision": "any"}  # whoever is told of the member counts up meanwhile
    assert all(answer.headers.keys() >= varying.keys() for answer in answers)
    plain, preferring = ({**answer.headers, **varying} for answer in answers)
    assert [answer.status_code for answer in answers] == [304, 304]
    assert plain == preferring
    counted = await template.client.get("/metrics")
    name = "user_id" if kind is USERS else "application_id"
    route = f"/api/organizations/{{organization_id}}/{kind.path}/{{{name}}}/scopes"
    series = [line for line in counted.text.splitlines() if f'route="{route}"' in line.replace(":str", "")]
    assert [line for line in series if line.startswith("stead_http_requests_total") and 'status="304"' in line] != []
    assert len({line.partition('route="')[2].partition('"')[0] for line in series}) == 1


async def test_whatever_was_answered_to_a_write_is_read_at_once_and_with_its_revision(
    template: Template, member: ReadingMember
) -> None:
    for _ in range(20):
        permission = await template.permission()
        granted = await member.grant(permission["id"])
        assert permission in (await member.read(Identity_Revision=granted.headers["Identity-Revision"])).json()
        path = f"/api/organization-roles/{member.role}/scopes/{permission['id']}"
        revoked = await template.client.delete(path)
        assert permission not in (await member.read(Identity_Revision=revoked.headers["Identity-Revision"])).json()


async def test_every_answer_says_which_revision_it_includes(template: Template, member: ReadingMember) -> None:
    """So that a token which is asked for next carries no less."""
    granted = await member.grant((await template.permission())["id"])
    shown = await member.read()
    unchanged = await member.read(If_None_Match=shown.headers["ETag"])
    assert (shown.status_code, unchanged.status_code) == (200, 304)
    assert revision(granted) <= revision(shown) <= revision(unchanged) <= await template.revision()


async def test_a_revision_of_the_other_service_is_waited_for(template: Template) -> None:
    """What follows from a deletion there is seen by whoever names its revision."""
    management = template.management
    for _ in range(10):
        member = await ReadingMember.new(template)
        gone = await management.client.delete(f"/api/users/{member.id}")
        answer = await template.client.get(
            member.path, headers={"Identity-Revision": f"management:{revision_of(gone)}, template:1"}
        )
        assert refusal(answer) == (422, "organization.require_membership")


@pytest.mark.parametrize("source", ["management", "template"])
async def test_a_revision_that_does_not_come_is_waited_for_two_seconds(member: ReadingMember, source: str) -> None:
    started = time.monotonic()
    answer = await member.read(Identity_Revision=f"{source}:99999999999")
    assert refusal(answer) == (503, "temporarily_unavailable")
    assert answer.headers["Retry-After"] == "1"
    assert time.monotonic() - started >= 2
    assert refusal(await member.read(member.token(subject="x"), Identity_Revision=f"{source}:9999999")) == FORBIDDEN


@pytest.mark.parametrize("value", ["", "template", "template:", "template:x", "other:1", "template:1;", "template:-1"])
async def test_a_revision_that_is_none_is_refused(member: ReadingMember, value: str) -> None:
    assert issues(await member.read(Identity_Revision=value)) == {"Identity-Revision"}


async def test_a_revision_of_both_services_is_one_header(template: Template, member: ReadingMember) -> None:
    both = f"management:{await template.management.revision()}, template:{await template.revision()}"
    assert (await member.read(Identity_Revision=both)).status_code == 200
    assert revision(await template.client.post(member.organization.path, json={"userIds": []})) >= 0


async def test_every_page_in_a_browser_may_read_what_a_user_may_do(template: Template, member: ReadingMember) -> None:
    page = {"Origin": "https://anywhere.example"}
    asked = {**page, "Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "authorization"}
    async with template.client_with(None) as browser:
        preflight = await browser.options(member.path, headers=asked)
        assert (preflight.status_code, preflight.content) == (204, b"")
        assert preflight.headers["Access-Control-Allow-Methods"] == "GET"
        allowed = "Authorization, Content-Type, If-None-Match, Prefer, Identity-Revision"
        assert preflight.headers["Access-Control-Allow-Headers"] == allowed
        answers = [preflight, await browser.get(member.path, headers=page)]
        twin = await browser.get(f"/api/organizations/x/applications/{member.id}/scopes", headers=page)
        other = await browser.get(f"/api/organizations/{member.organization.id}/users", headers=page)
        plain = await browser.options(member.path)
    answers += [await member.read(Origin=page["Origin"]), await member.read(member.token(subject="x"), **page)]
    for answer, status in zip(answers, (204, 401, 200, 403), strict=True):
        assert answer.status_code == status
        assert answer.headers["Access-Control-Allow-Origin"] == "*"
        exposed = "ETag, Identity-Revision, Retry-After, WWW-Authenticate"
        assert answer.headers["Access-Control-Expose-Headers"] == exposed
        assert "Access-Control-Allow-Credentials" not in answer.headers
    for answer in (twin, other):
        assert "Access-Control-Allow-Origin" not in answer.headers
    assert set(plain.headers["Allow"].split(", ")) >= {"GET", "OPTIONS"}


async def test_a_database_that_does_not_answer_is_said_so(template: Template, member: ReadingMember) -> None:
    async with template.database.transaction():
        await template.database.execute("LOCK TABLE members IN ACCESS EXCLUSIVE MODE")
        answer = await member.read()
    assert refusal(answer) == (503, "temporarily_unavailable")
    assert (await member.read()).status_code == 200

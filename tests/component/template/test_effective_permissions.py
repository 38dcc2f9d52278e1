"""Effective permissions over HTTP: the union over a member's roles, who may read them, and what a poll costs."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2 as httpx
import jwt
import pytest
import pytest_asyncio

from identity_common.oauth import GRANT_TOKEN_EXCHANGE
from identity_common.wire.revocations import revocation_key
from tests.support.effective_permissions import ReadingMember, at_rest, fetches, organization_audience
from tests.support.management_api import AUDIENCE, issues, refusal, revision_of, unique
from tests.support.organizations import APPLICATIONS, KINDS, USERS, Kind, Organization, member_of_kind
from tests.support.retrying import SOON
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
async def test_an_organization_token_reads_only_its_own_member_in_its_own_organization(
    template: Template, kind: Kind
) -> None:
    """Token classes exclude each other, and ids are checked against their organization (CVE-2026-2366)."""
    member = await ReadingMember.new(template, kind)
    colleague = await ReadingMember.new(template, kind, member.organization)
    elsewhere = await Organization.new(template, kind, member.id)
    assert (await member.read()).status_code == 200
    assert refusal(await member.read(path=colleague.path)) == FORBIDDEN
    assert refusal(await member.read(path=f"{elsewhere.path}/{member.id}/scopes")) == FORBIDDEN
    assert refusal(await member.read(path=f"/api/organizations/nowhere/{kind.path}/{member.id}/scopes")) == FORBIDDEN
    assert refusal(await member.read(path=f"{member.organization.path}/unknown/scopes")) == FORBIDDEN
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
        {"audience": AUDIENCE, "scope": "all", "act": {"sub": "support"}},
        {"audience": "urn:logto:organization:{organization}"},
        {"audience": "urn:service:organization:"},
        {"audience": "urn:service:organization:{organization}/"},
        {"audience": "{organization}"},
        {"subject": "other"},
    ],
    ids=str,
)
async def test_a_valid_token_of_another_class_is_forbidden(member: ReadingMember, claims: dict[str, Any]) -> None:
    """A token for a resource is not an organization token, even with ``organization_id``."""
    issuer = member.template.management.issuer.issuer
    filled = {
        name: value.format(organization=member.organization.id, issuer=issuer) if isinstance(value, str) else value
        for name, value in claims.items()
    }
    answer = await member.read(member.token(**filled))
    assert refusal(answer) == FORBIDDEN
    assert answer.headers["WWW-Authenticate"] == 'Bearer error="insufficient_scope"'


@pytest_asyncio.fixture
async def exchanging(template: Template) -> str:
    """The id of an application that may exchange tokens."""
    settings = {"allowTokenExchange": True}
    created = await template.management.created(
        "applications", name=unique("desk"), type="Traditional", customClientMetadata=settings
    )
    await template.caught_up()
    return str(created["id"])


def token_of_actors(member: ReadingMember, client_id: str, *actors: str, **claims: Any) -> str:
    """Return an organization token from an exchange with these actors, the current one first."""
    act: dict[str, Any] = {}
    for actor in reversed(actors):
        act = {"sub": actor, "act": act} if act else {"sub": actor}
    return member.token(act=act, gty=GRANT_TOKEN_EXCHANGE, client_id=client_id, **claims)


async def test_an_actor_reads_the_permissions_of_the_member(
    member: ReadingMember, exchanging: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An organization token from an exchange already carries these permissions, so reading them discloses no more."""
    actors = [(await member.template.management.created("users"))["id"] for _ in range(2)]
    answer = await member.read(token_of_actors(member, exchanging, *actors))
    assert (answer.status_code, answer.json()) == (200, (await member.read()).json())
    token = token_of_actors(member, exchanging, *actors)
    await at_rest(member.template)
    for _ in range(2):
        with fetches(monkeypatch) as sent:
            unchanged = await member.read(token, If_None_Match=answer.headers["ETag"])
        assert unchanged.status_code == 304
    assert len(sent) == 1, "the actors are checked in the same statement"


@pytest.mark.parametrize("position", [0, 1], ids=["current actor", "previous actor"])
@pytest.mark.parametrize(
    "end",
    [
        lambda client, user: client.patch(f"/api/users/{user}/is-suspended", json={"isSuspended": True}),
        lambda client, user: client.patch(f"/api/users/{user}/password", json={"password": "correct horse"}),
        lambda client, user: client.delete(f"/api/users/{user}"),
    ],
    ids=["suspended", "password changed", "deleted"],
)
async def test_a_suspended_or_deleted_actor_is_refused(
    member: ReadingMember,
    exchanging: str,
    end: Callable[[httpx.AsyncClient, str], Awaitable[httpx.Response]],
    position: int,
) -> None:
    """Every actor in the chain is checked, on every path to an answer."""
    actors = [(await member.template.management.created("users"))["id"] for _ in range(2)]
    token = token_of_actors(member, exchanging, *actors)
    first = await member.read(token)
    assert first.status_code == 200
    assert (await end(member.template.management.client, actors[position])).is_success
    await member.template.caught_up()
    etag = first.headers["ETag"]
    for headers in ({}, {"If_None_Match": etag}, {"If_None_Match": etag, "Prefer": "wait=1"}):
        assert refusal(await member.read(token, **headers)) == UNAUTHORIZED
    assert (await member.read()).status_code == 200


@pytest.mark.parametrize(
    "act", [{"sub": "unknown"}, {"sub": 1}, {}, {"sub": "unknown", "act": "unknown"}, {"client_id": "other"}]
)
async def test_an_unknown_actor_is_refused(member: ReadingMember, exchanging: str, act: dict[str, Any]) -> None:
    token = member.token(act=act, gty=GRANT_TOKEN_EXCHANGE, client_id=exchanging)
    assert refusal(await member.read(token)) == UNAUTHORIZED


async def test_a_token_from_an_exchange_ends_for_good_when_exchange_is_switched_off(
    member: ReadingMember, exchanging: str
) -> None:
    await member.joined_a_minute_ago()
    actor = (await member.template.management.created("users"))["id"]
    token = token_of_actors(member, exchanging, actor, iat=int(time.time()) - 60)
    assert (await member.read(token)).status_code == 200
    for allowed in (False, True):
        settings = {"customClientMetadata": {"allowTokenExchange": allowed}}
        answer = await member.template.management.client.patch(f"/api/applications/{exchanging}", json=settings)
        assert answer.is_success
        await member.template.caught_up()
        assert refusal(await member.read(token)) == UNAUTHORIZED
    assert (await member.read(token_of_actors(member, exchanging, actor))).status_code == 200


@of_both_kinds
async def test_a_member_that_is_back_reads_with_new_tokens_only(template: Template, kind: Kind) -> None:
    member = await ReadingMember.new(template, kind)
    await member.joined_a_minute_ago()
    earlier = int(time.time()) - 60
    token = member.token(iat=earlier)
    assert (await member.read(token)).status_code == 200
    await member.organization.remove(member.id)
    assert refusal(await member.read(token)) == (422, "organization.require_membership")
    await member.organization.add(member.id)
    assert refusal(await member.read(token)) == UNAUTHORIZED

    client_id = template.management.credentials.client_id
    management_token = member.token(
        audience=AUDIENCE, scope="read", client_id=client_id, subject=client_id, iat=earlier
    )
    for accepted in (member.token(), management_token):
        assert (await member.read(accepted)).status_code == 200


async def test_an_invalid_token_is_refused(member: ReadingMember) -> None:
    """Signature, type, times, issuer and audience are all checked (CVE-2026-55669, CVE-2026-55689: audience)."""
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
    async with member.template.client_with(None) as anonymous:
        assert refusal(await anonymous.get(member.path)) == (401, "auth.authorization_header_missing")
        basic = await anonymous.get(member.path, headers={"Authorization": "Basic YTpi"})
        assert refusal(basic) == (401, "auth.authorization_token_type_not_supported")


@pytest.mark.heavy
async def test_a_token_of_a_suspended_or_deleted_subject_or_client_is_refused(template: Template) -> None:
    """Subject and client are checked for liveness on every read."""
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


@pytest.mark.heavy
@of_both_kinds
async def test_a_revoked_token_is_refused_even_if_it_is_waiting(template: Template, kind: Kind) -> None:
    """On every path to an answer, including the shortcut for an unchanged poll."""
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
async def test_a_non_member_and_an_unknown_organization_are_refused(template: Template, kind: Kind) -> None:
    member, client = await ReadingMember.new(template, kind), template.client
    token, not_a_member = member.token(), (422, "organization.require_membership")
    for stranger in ("unknown", await member_of_kind(template, kind)):
        assert refusal(await client.get(f"{member.organization.path}/{stranger}/scopes")) == not_a_member
    missing = f"/api/organizations/nowhere/{kind.path}/{member.id}/scopes"
    assert refusal(await client.get(missing)) == (404, "entity.not_exists_with_id")
    await member.organization.remove(member.id)
    assert refusal(await member.read(token)) == not_a_member
    await member.organization.delete()
    assert refusal(await member.read(token)) == (404, "entity.not_exists_with_id")
    assert refusal(await client.get(f"{member.organization.path}/%00/scopes")) == (400, "guard.invalid_input")


async def test_the_entity_tag_changes_exactly_when_the_permissions_of_the_member_change(
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
async def test_if_none_match_is_compared_with_the_current_entity_tag(
    member: ReadingMember, condition: str, status: int
) -> None:
    etag = (await member.read()).headers["ETag"]
    filled = condition.format(etag=etag, strong=etag.removeprefix("W/"))
    answer = await member.read(If_None_Match=filled)
    assert (answer.status_code, answer.headers["ETag"], answer.headers["Vary"]) == (status, etag, "Prefer")
    assert "Preference-Applied" not in answer.headers


@pytest.mark.heavy
async def test_an_unchanged_poll_reads_only_the_version_of_the_database(
    template: Template, member: ReadingMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def statements_of_a_poll(polling: ReadingMember = member) -> list[str]:
        with fetches(monkeypatch) as sent:
            assert (await polling.read(polling.token(), If_None_Match="*")).status_code == 304
        return sent

    colleague = await ReadingMember.new(template)
    tokens = {each: each.token() for each in (member, colleague)}
    for each, token in tokens.items():
        monkeypatch.setattr(each, "token", lambda token=token: token)
    await at_rest(template)
    for each in tokens:
        await statements_of_a_poll(each)

    assert await statements_of_a_poll() == ["version"]
    with fetches(monkeypatch) as sent:
        assert (await member.read()).status_code == 200
    assert sent == ["version", "list"]
    with fetches(monkeypatch) as sent:
        answers = await asyncio.gather(*(member.read(If_None_Match="*") for _ in range(50)))
    assert {answer.status_code for answer in answers} == {304}
    assert set(sent) == {"version"}
    assert len(sent) < 25, "polls within one tick of the event loop share a statement"

    await template.permission()  # the version of the database moves
    await at_rest(template)
    assert await statements_of_a_poll() == ["version", "state"]
    assert await statements_of_a_poll() == ["version"]
    assert await statements_of_a_poll(colleague) == ["state"], "the previous poll has already read the new version"


@of_both_kinds
async def test_an_unchanged_poll_is_answered_the_same_with_and_without_a_preference(
    template: Template, kind: Kind
) -> None:
    """``Prefer: wait=0`` changes nothing."""
    member = await ReadingMember.new(template, kind)
    etag = (await member.read()).headers["ETag"]
    answers = [await member.read(If_None_Match=etag), await member.read(If_None_Match=etag, Prefer="wait=0")]
    varying = {"x-request-id": "any", "identity-revision": "any"}  # publishing the member's events raises the revision
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


@pytest.mark.heavy
async def test_a_write_is_visible_at_once_to_a_read_with_its_revision(
    template: Template, member: ReadingMember
) -> None:
    for _ in range(20):
        permission = await template.permission()
        granted = await member.grant(permission["id"])
        assert permission in (await member.read(Identity_Revision=granted.headers["Identity-Revision"])).json()
        path = f"/api/organization-roles/{member.role}/scopes/{permission['id']}"
        revoked = await template.client.delete(path)
        assert permission not in (await member.read(Identity_Revision=revoked.headers["Identity-Revision"])).json()


async def test_every_response_names_the_revision_it_includes(template: Template, member: ReadingMember) -> None:
    """The client can then request a token that includes at least that revision."""
    granted = await member.grant((await template.permission())["id"])
    shown = await member.read()
    unchanged = await member.read(If_None_Match=shown.headers["ETag"])
    assert (shown.status_code, unchanged.status_code) == (200, 304)
    assert revision(granted) <= revision(shown) <= revision(unchanged) <= await template.revision()


@pytest.mark.heavy
async def test_a_read_waits_for_a_revision_of_management_service(template: Template) -> None:
    """The effect of a deletion there is visible to a request that names its revision."""
    management = template.management
    for _ in range(10):
        member = await ReadingMember.new(template)
        gone = await management.client.delete(f"/api/users/{member.id}")
        answer = await template.client.get(
            member.path, headers={"Identity-Revision": f"management:{revision_of(gone)}, template:1"}
        )
        assert refusal(answer) == (422, "organization.require_membership")


@pytest.mark.heavy
@pytest.mark.parametrize("source", ["management", "template"])
async def test_a_read_waits_two_seconds_for_a_revision_that_does_not_come(member: ReadingMember, source: str) -> None:
    started = time.monotonic()
    answer = await member.read(Identity_Revision=f"{source}:99999999999")
    assert refusal(answer) == (503, "temporarily_unavailable")
    assert answer.headers["Retry-After"] in SOON
    assert time.monotonic() - started >= 2
    assert refusal(await member.read(member.token(subject="x"), Identity_Revision=f"{source}:9999999")) == FORBIDDEN


@pytest.mark.parametrize("value", ["", "template", "template:", "template:x", "other:1", "template:1;", "template:-1"])
async def test_an_invalid_revision_is_refused(member: ReadingMember, value: str) -> None:
    assert issues(await member.read(Identity_Revision=value)) == {"Identity-Revision"}


async def test_one_header_names_revisions_of_both_services(template: Template, member: ReadingMember) -> None:
    both = f"management:{await template.management.revision()}, template:{await template.revision()}"
    assert (await member.read(Identity_Revision=both)).status_code == 200
    assert revision(await template.client.put(f"{member.organization.path}/{member.id}/roles", json={})) >= 0


async def test_pages_of_any_origin_may_read_the_permissions_of_a_user(
    template: Template, member: ReadingMember
) -> None:
    page = {"Origin": "https://anywhere.example"}
    asked = {**page, "Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "authorization"}
    async with template.client_with(None) as browser:
        preflight = await browser.options(member.path, headers=asked)
        assert (preflight.status_code, preflight.content) == (204, b"")
        assert preflight.headers["Access-Control-Allow-Methods"] == "GET"
        allowed = (
            "Authorization, Content-Type, If-Match, If-None-Match, Prefer, Identity-Revision, X-Requested-With,"
            " traceparent, tracestate"
        )
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


@pytest.mark.heavy
async def test_an_unresponsive_database_gives_503(template: Template, member: ReadingMember) -> None:
    async with template.database.transaction():
        await template.database.execute("LOCK TABLE members IN ACCESS EXCLUSIVE MODE")
        answer = await member.read()
    assert refusal(answer) == (503, "temporarily_unavailable")
    assert (await member.read()).status_code == 200

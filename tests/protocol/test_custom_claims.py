"""The custom-claims function (the contract's section of that name) on every grant that issues an access token."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from sqlalchemy import text

from identity_common.authentication import UsedFactor
from identity_common.clock import now_ms
from identity_common.identifiers import new_id, new_secret
from identity_common.oauth import GRANT_TOKEN_EXCHANGE
from identity_common.wire.claims_function import Failure, Failures, ReadFailures, TokenKind
from stead import AccessTokenVerifier, Conflict
from tests.support.authorizing import Stores, in_stores
from tests.support.captured_logs import lines_of
from tests.support.claims_function import ClaimsFunction
from tests.support.lengths import length
from tests.support.retrying import SOON
from tests.support.signing_in import EVERYTHING, SignIn
from tests.support.waiting import eventually
from tests.support.world import World, error_body

ECHO = "const getCustomJwtClaims = async ({ token, context }) => ({ seen: { token, context } });"
LOOP = "const getCustomJwtClaims = async () => { while (true) {} };"
FAILING = "const getCustomJwtClaims = async () => {\n  throw new Error('no plan');\n};"
LOOPS = length(short=32, long=64)
TICKET = {"ticketId": "T-1042", "reason": "call"}
DENIED = error_body("access_denied", "not on sundays")
BLOCKED = error_body("access_denied", "the custom-claims function failed")


class Grant:
    """One grant that issues an access token.

    Attributes:
        kind: Of the function that it calls.
        request: Sends a valid request.
        audience: Of its tokens.
        argument: The changing part of the argument ``token``.
        grant: The argument ``context.grant``.
        organization: Whether the token is for an organization.
    """

    def __init__(
        self,
        request: Callable[[], httpx.Response],
        audience: str,
        *,
        kind: TokenKind = "access-token",
        argument: dict[str, str],
        grant: dict[str, Any],
        organization: bool = False,
    ) -> None:
        self.kind = kind
        self.request = request
        self.audience = audience
        self.argument = argument
        self.grant = grant
        self.organization = organization


@pytest.fixture(scope="module")
def functions(world: World) -> ClaimsFunction:
    return ClaimsFunction(world)


@pytest.fixture
def function(functions: ClaimsFunction) -> Iterator[ClaimsFunction]:
    yield functions
    functions.remove()


@pytest.fixture(scope="module")
def person(world: World) -> dict[str, Any]:
    """A user with every attribute, as the context shows it."""
    user = world.management.users.create(
        username=f"u{new_id()[:10]}",
        primary_email=f"{new_id()}@example.com",
        primary_phone="+4915112345678",
        name="Ada Ärmel",
        avatar="https://cdn.example.com/a.png",
        custom_data={"plan": "gold", "seats": [1, 2]},
        profile={"locale": "de"},
        password="unlike any documented example",
    )
    world.management.users.assign_roles(user.id, [world.keeper_role])
    clerk = world.clerk_roles["user"]
    world.template.member(world.organization, user.id, clerk)
    role = world.management.roles.get(world.keeper_role)
    fresh = world.management.users.get(user.id)
    organization = {"id": world.organization, "name": organization_name(world)}
    return {
        "id": user.id,
        "username": user.username,
        "primaryEmail": user.primary_email,
        "primaryPhone": user.primary_phone,
        "name": "Ada Ärmel",
        "avatar": "https://cdn.example.com/a.png",
        "customData": {"plan": "gold", "seats": [1, 2]},
        "profile": {"locale": "de"},
        "isEmailVerified": False,
        "hasPassword": True,
        "isSuspended": False,
        "createdAt": fresh.created_at,
        "updatedAt": fresh.updated_at,
        "roles": [{"id": role.id, "name": role.name, "description": "for tests", "scopes": scopes_of(world, role.id)}],
        "organizations": [organization],
        "organizationRoles": [
            {"organizationId": world.organization, "roleId": clerk, "roleName": organization_role_name(world, clerk)}
        ],
    }


def scopes_of(world: World, role_id: str) -> list[dict[str, Any]]:
    """Return the scopes of a role as the context shows them."""
    (api,) = (each for each in world.management.resources.list() if each.indicator == world.resource)
    return [
        {
            "id": scope.id,
            "name": scope.name,
            "description": scope.description,
            "resourceId": api.id,
            "resource": {"id": api.id, "name": api.name, "indicator": api.indicator},
        }
        for scope in world.management.roles.scopes(role_id)
    ]


def organization_name(world: World) -> str:
    return str(world.management.organizations.get(world.organization).name)


def organization_role_name(world: World, role_id: str) -> str:
    return str(world.management.organization_roles.get(role_id).name)


def refreshing(sign_in: SignIn, **changes: str) -> Callable[[], httpx.Response]:
    """Return a request that presents the newest refresh token of a sign-in, whose code is redeemed now."""
    newest = sign_in.tokens()["refresh_token"]

    def request() -> httpx.Response:
        nonlocal newest
        answer = sign_in.refresh(newest, **changes)
        newest = answer.json().get("refresh_token", newest)
        return answer

    return request


def grants_of(world: World, user_id: str) -> dict[str, Callable[[], Grant]]:
    """Return the setup of each grant, for the Traditional application and for the machine."""
    exchanged = {"type": GRANT_TOKEN_EXCHANGE, "subjectTokenContext": TICKET}
    mine, resource = f"{world.stack.issuer}/me", {"scope": "read:things", "resource": world.resource}
    organization, permission = world.organization_audience(), world.permission("read:invoices")
    openids = " ".join(sorted(set(EVERYTHING.split()) - {"offline_access"}))
    in_organization = {"scope": "write:things", "resource": world.resource}

    def exchange(**changes: Any) -> httpx.Response:
        token = world.management.subject_tokens.create(user_id, context=TICKET).token
        return world.exchange(token, **changes)

    def sign_in(scope: str = EVERYTHING) -> SignIn:
        factors = (UsedFactor("password", now_ms() - 5_000), UsedFactor("authenticator", now_ms()))
        return SignIn(world, user_id=user_id, scope=scope, organization_permissions=permission, factors=factors)

    def code(audience: str, argument: dict[str, str], **changes: str) -> Grant:
        grant = {"type": "authorization_code"}
        return Grant(lambda: sign_in().redeem(**changes), audience, argument=argument, grant=grant)

    def refresh(audience: str, argument: dict[str, str], consented: str = EVERYTHING, **changes: str) -> Grant:
        return Grant(
            refreshing(sign_in(consented), **changes),
            audience,
            argument=argument,
            grant={"type": "refresh_token"},
            organization="organization_id" in changes,
        )

    return {
        "exchange": lambda: Grant(exchange, world.resource, argument=resource, grant=exchanged),
        "exchange for an organization": lambda: Grant(
            lambda: exchange(resource=None, organization_id=world.organization, scope=permission),
            organization,
            argument={"scope": permission},
            grant=exchanged,
            organization=True,
        ),
        "exchange for a resource within an organization": lambda: Grant(
            lambda: exchange(organization_id=world.organization, scope="write:things"),
            world.resource,
            argument=in_organization,
            grant=exchanged,
            organization=True,
        ),
        "exchange for a userinfo token": lambda: Grant(
            lambda: exchange(resource=None, scope="openid"), mine, argument={"scope": "openid"}, grant=exchanged
        ),
        "code": lambda: code(mine, {"scope": openids}),
        "code for a resource": lambda: code(
            world.resource, {"scope": "read:things write:things", "resource": world.resource}, resource=world.resource
        ),
        "refresh": lambda: refresh(world.resource, resource, resource=world.resource, scope="read:things"),
        "refresh for an organization": lambda: refresh(
            organization,
            {"scope": permission},
            f"{EVERYTHING} urn:service:scope:organizations",
            organization_id=world.organization,
        ),
        "refresh for a userinfo token": lambda: refresh(mine, {"scope": openids}),
        "client credentials": lambda: Grant(
            world.client_credentials,
            world.resource,
            kind="client-credentials",
            argument=resource,
            grant={"type": "client_credentials"},
        ),
        "client credentials for an organization": lambda: Grant(
            lambda: world.client_credentials(resource=None, organization_id=world.organization, scope=permission),
            organization,
            kind="client-credentials",
            argument={"scope": permission},
            grant={"type": "client_credentials"},
            organization=True,
        ),
    }


GRANTS = (
    "exchange",
    "exchange for an organization",
    "exchange for a resource within an organization",
    "exchange for a userinfo token",
    "code",
    "code for a resource",
    "refresh",
    "refresh for an organization",
    "refresh for a userinfo token",
    "client credentials",
    "client credentials for an organization",
)


@pytest.fixture(params=GRANTS)
def grant(world: World, person: dict[str, Any], request: pytest.FixtureRequest) -> Grant:
    return grants_of(world, person["id"])[request.param]()


def claims_of(world: World, grant: Grant) -> dict[str, Any]:
    answer = grant.request()
    assert answer.status_code == 200, answer.text
    return world.claims(answer.json()["access_token"], grant.audience)


def test_the_function_sees_the_token_and_its_context(
    world: World, function: ClaimsFunction, grant: Grant, person: dict[str, Any]
) -> None:
    function.set(ECHO, kind=grant.kind)

    claims = claims_of(world, grant)

    of_user = grant.kind == "access-token"
    client = world.management.applications.get(world.traditional.id if of_user else world.machine.id)
    application = {
        "id": client.id,
        "name": client.name,
        "type": client.type,
        "isThirdParty": False,
        "customData": {},
    }
    if not of_user:
        role = world.management.roles.get(world.machine_role)
        application["roles"] = [{"id": role.id, "name": role.name}]
    expected = {
        "token": {
            "jti": claims["jti"],
            "aud": grant.audience,
            "clientId": client.id,
            "kind": "AccessToken" if of_user else "ClientCredentials",
            **({"accountId": person["id"]} if of_user else {}),
            **grant.argument,
        },
        "context": {
            "grant": grant.grant,
            "application": application,
            **({"user": person} if of_user else {}),
            **({"interaction": interaction(person["id"], claims)} if is_from_a_sign_in(grant) else {}),
            **(
                {"organization": {"id": world.organization, "name": organization_name(world)}}
                if grant.organization
                else {}
            ),
        },
    }
    assert claims["seen"] == expected


def is_from_a_sign_in(grant: Grant) -> bool:
    return grant.grant["type"] in {"authorization_code", "refresh_token"}


def interaction(user_id: str, claims: dict[str, Any]) -> dict[str, Any]:
    """Return the sign-in as the context shows it."""
    records = [{"type": type_, "verified": True} for type_ in ("Password", "Totp")]
    said = {"authTime": claims["auth_time"], "amr": ["mfa", "otp", "pwd"], "acr": "urn:service:acr:mfa"}
    return {"interactionEvent": "SignIn", "userId": user_id, "verificationRecords": records, **said}


def test_the_function_sees_the_actor_of_an_exchange(world: World, function: ClaimsFunction) -> None:
    function.set(
        "const getCustomJwtClaims = async ({ context: { actor, actorAuthentication, interaction } }) =>"
        " ({ seen: [actor, actorAuthentication, interaction ?? null] });"
    )
    answer = world.with_actor(world.userinfo_token())
    claims = world.claims(answer.json()["access_token"], world.resource)
    said = claims["actor_authentication"]
    assert claims["act"] == {"sub": world.agent}
    assert claims["seen"] == [
        claims["act"],
        {"authTime": said["auth_time"], "amr": ["pwd"], "acr": "urn:service:acr:password"},
        None,
    ]


def test_the_function_can_deny_access(function: ClaimsFunction, grant: Grant) -> None:
    function.set(
        "const getCustomJwtClaims = async ({ api }) => api.denyAccess('not on sundays');",
        kind=grant.kind,
    )

    answer = grant.request()

    assert (answer.status_code, answer.json()) == (400, DENIED)


def test_a_failing_function_adds_nothing_or_blocks(world: World, function: ClaimsFunction, grant: Grant) -> None:
    plain = set(claims_of(world, grant))
    function.set(FAILING, kind=grant.kind)
    assert set(claims_of(world, grant)) == plain

    function.set(FAILING, kind=grant.kind, block_issuance_on_error=True)
    blocked = grant.request()
    assert (blocked.status_code, blocked.json()) == (400, BLOCKED)


@pytest.mark.heavy
def test_a_failure_is_one_log_line_one_count_and_one_entry(world: World, function: ClaimsFunction, logs: Path) -> None:
    counted = failures_counted(world)
    before, logged = now_ms(), len(lines_of(logs))
    version = function.set(FAILING)

    assert world.exchange(world.subject_token()).status_code == 200

    lines = [line for line in lines_of(logs)[logged:] if line["event"] == "claims-function.failed"]
    (line,) = lines
    expected = {"kind": "access-token", "version": version, "reason": "exception", "client_id": world.traditional.id}
    assert {name: line[name] for name in expected} == expected
    assert failures_counted(world) == counted + 1
    eventually(lambda: any(each.version == version for each in last_failures(function)))
    (failure,) = (each for each in last_failures(function) if each.version == version)
    assert failure == Failure(
        at=failure.at, version=version, reason="exception", line=failure.line, column=failure.column
    )
    assert before <= failure.at <= now_ms()
    assert "no plan" not in json.dumps(lines)


def failures_counted(world: World) -> int:
    name = 'stead_claims_function_failures_total{kind="access-token",reason="exception",service="token"}'
    page = world.stack.http.get("/metrics").text
    found = re.search(rf"^{re.escape(name)} (\d+)", page, re.MULTILINE)
    return int(found[1]) if found else 0


LONG = "const getCustomJwtClaims = async () => ({ long: 'x'.repeat(12_200) });"  # the result may be longer


def test_claims_that_make_a_token_too_long_are_a_failure(world: World, function: ClaimsFunction, grant: Grant) -> None:
    """Verifiers refuse a token of more than 16,384 characters."""
    plain = set(claims_of(world, grant))
    version = function.set(LONG, kind=grant.kind)

    assert set(claims_of(world, grant)) == plain
    eventually(lambda: last_failures(function, grant.kind)[0].version == version)
    assert last_failures(function, grant.kind)[0].reason == "result"

    function.set(LONG, kind=grant.kind, block_issuance_on_error=True)
    blocked = grant.request()
    assert (blocked.status_code, blocked.json()) == (400, BLOCKED)


@pytest.mark.parametrize("length", range(10_000, 13_000, 250))
def test_a_token_with_claims_of_any_length_is_accepted(world: World, function: ClaimsFunction, length: int) -> None:
    function.set(f"const getCustomJwtClaims = async () => ({{ long: 'x'.repeat({length}) }});")

    access_token = world.exchange(world.subject_token()).json()["access_token"]

    verifier = AccessTokenVerifier(issuer=world.stack.issuer, audience=world.resource)
    claims = verifier.verify(access_token).claims
    assert claims.get("long") in {None, "x" * length}
    assert ("long" in claims) is (length < 10_750)


def test_a_test_and_a_dry_run_refuse_claims_that_make_a_token_too_long(world: World, function: ClaimsFunction) -> None:
    custom_claims = world.management.custom_claims
    with pytest.raises(Conflict, match="16384 characters") as refused:
        custom_claims.test("access-token", LONG, token={}, context={})
    assert refused.value.data["reason"] == "result"
    custom_claims.record("access-token", minutes=5)
    world.exchange(world.subject_token())
    eventually(lambda: custom_claims.recording("access-token").input_count > 0)
    assert {run.problem.reason for run in custom_claims.dry_run("access-token", LONG).runs if run.problem} == {"result"}
    custom_claims.record("access-token", minutes=0)


def last_failures(function: ClaimsFunction, kind: TokenKind = "access-token") -> list[Failure]:
    answer = function.asked(ReadFailures(kind=kind))
    assert isinstance(answer, Failures)
    return answer.failures


def test_reserved_members_never_reach_the_token(world: World, function: ClaimsFunction) -> None:
    plain = world.claims(world.exchange(world.subject_token()).json()["access_token"], world.resource)
    function.set(
        """const getCustomJwtClaims = async () => ({
             sub: 'admin', scope: 'all', aud: 'x', exp: 9e9, act: { sub: 'x' }, organization_id: 'x', pv: {},
             active: true, plan: 'gold', nested: { sub: 'kept' } });"""
    )

    claims = world.claims(world.exchange(world.subject_token()).json()["access_token"], world.resource)

    unlike = {"jti", "iat", "exp", "pv"}
    assert claims["pv"]["management"] >= plain["pv"]["management"]
    assert {name: value for name, value in claims.items() if name not in unlike} == {
        **{name: value for name, value in plain.items() if name not in unlike},
        "plan": "gold",
        "nested": {"sub": "kept"},
    }
    assert claims["exp"] - claims["iat"] == world.resource_ttl_s


RESERVED_AS_READ = r"""const getCustomJwtClaims = async () => ({
  Act: { sub: 'x' }, ORGANIZATION_ID: 'x', '\u017fub': 'x', '\uff53ub': 'x', 'scope\u0000': 'x', ' exp ': 1,
  ['__proto__']: { isAdmin: true }, constructor: 1, prototype: 2, plan: { name: 'gold', ['__proto__']: 3 } });"""


def test_reserved_members_in_another_spelling_never_reach_the_token(
    world: World, function: ClaimsFunction, grant: Grant
) -> None:
    plain = set(claims_of(world, grant))
    function.set(RESERVED_AS_READ, kind=grant.kind)

    claims = claims_of(world, grant)

    assert set(claims) == plain | {"plan"}
    assert claims["plan"] == {"name": "gold"}


def test_a_test_shows_what_a_token_gets_and_names_what_is_dropped(world: World) -> None:
    tested = world.management.custom_claims.test("access-token", RESERVED_AS_READ, token={}, context={})

    assert tested.claims == {"plan": {"name": "gold"}}
    assert tested.dropped == [
        "__proto__", "act", "constructor", "exp", "organization_id", "prototype", "scope", "sub",
    ]  # fmt: skip


def test_environment_variables_reach_the_function_and_only_it(world: World, function: ClaimsFunction) -> None:
    secret = new_secret()
    world.stack.recorder.keep(secret, "environment variable")
    function.set(
        "const getCustomJwtClaims = async ({ environmentVariables: { KEY } }) => ({ length: KEY.length });",
        environment_variables={"KEY": secret},
    )
    answer = world.exchange(world.subject_token())

    assert world.claims(answer.json()["access_token"], world.resource)["length"] == len(secret)
    assert world.exchanged_userinfo_token()


def test_no_script_reads_the_variables_of_another_one(world: World, function: ClaimsFunction) -> None:
    """They are write-only: only the script that they were saved with has them."""
    secret = new_secret()
    world.stack.recorder.keep(secret, "environment variable")
    custom_claims = world.management.custom_claims
    reading = "const getCustomJwtClaims = async ({ environmentVariables: { KEY } }) => ({ key: KEY ?? null });"
    unread = {"key": None}
    first = function.set(
        "const getCustomJwtClaims = async ({ environmentVariables: { KEY } }) => ({ length: KEY.length });",
        environment_variables={"KEY": secret},
    )
    custom_claims.record("access-token", minutes=5)

    def claims_of_a_token() -> dict[str, Any]:
        return world.claims(world.exchange(world.subject_token()).json()["access_token"], world.resource)

    assert claims_of_a_token()["length"] == len(secret)
    with pytest.raises(Conflict, match="KEY"):
        custom_claims.update("access-token", script=reading)
    assert custom_claims.test("access-token", reading, token={}, context={}).claims == unread
    (run, *_) = custom_claims.dry_run("access-token", reading).runs
    assert (run.added, run.changed, run.removed) == (unread, {}, ["length"])
    second = function.set(reading)
    assert custom_claims.test("access-token", version=second, token={}, context={}).claims == unread
    assert claims_of_a_token()["key"] is None
    custom_claims.activate("access-token", first)
    with pytest.raises(Conflict, match="KEY"):
        custom_claims.update("access-token", script=reading)
    custom_claims.update("access-token", context_sample={"a": 1})
    eventually(lambda: claims_of_a_token().get("length") == len(secret))
    custom_claims.activate("access-token", second)
    assert custom_claims.test("access-token", version=second, token={}, context={}).claims == unread
    custom_claims.record("access-token", minutes=0)


def test_a_replaced_or_removed_function_is_no_longer_called(world: World, function: ClaimsFunction) -> None:
    def extra() -> object:
        return world.claims(world.exchange(world.subject_token()).json()["access_token"], world.resource).get("v")

    function.set("const getCustomJwtClaims = async () => ({ v: 1 });")
    first = extra()
    function.set("const getCustomJwtClaims = async () => ({ v: 2 });")
    second = extra()
    function.set("const getCustomJwtClaims = async () => ({});")
    empty = extra()
    function.remove()
    assert [first, second, empty, extra()] == [1, 2, None, None]


def test_a_refused_refresh_leaves_the_refresh_token_unrotated(world: World, function: ClaimsFunction) -> None:
    sign_in = SignIn(world)
    refresh_token = str(sign_in.tokens()["refresh_token"])
    function.set("const getCustomJwtClaims = async ({ api }) => api.denyAccess('not on sundays');")
    assert sign_in.refresh(refresh_token).json() == DENIED
    for failing in (FAILING, LONG):
        function.set(failing, block_issuance_on_error=True)
        assert sign_in.refresh(refresh_token).json() == BLOCKED

    async def rows(stores: Stores) -> list[tuple[int, int | None]]:
        statement = "SELECT generation, rotated_at FROM refresh_tokens WHERE authorization_id = :id"
        async with stores.engine.connect() as connection:
            found = await connection.execute(text(statement), {"id": sign_in.authorization_id})
            return [(row.generation, row.rotated_at) for row in found]

    assert in_stores(world.stack.token_settings, rows) == [(0, None)]
    function.remove()
    assert sign_in.refreshed(refresh_token)["refresh_token"] != refresh_token


def test_a_denial_spends_the_subject_token(world: World, function: ClaimsFunction) -> None:
    """A check that needs the subject spends its token, and so does a denial."""
    function.set("const getCustomJwtClaims = async ({ api }) => api.denyAccess();")
    subject_token = world.subject_token()

    answer = world.exchange(subject_token)

    assert (answer.status_code, answer.json()) == (400, error_body("access_denied", "access was denied"))
    assert not world.is_usable(subject_token)


def test_the_description_of_a_denial_has_the_characters_that_the_rfc_allows(
    world: World, function: ClaimsFunction
) -> None:
    """RFC 6749 section 5.2."""
    function.set(
        r"""const getCustomJwtClaims = async ({ api }) => api.denyAccess('na\u0000h "é" \\' + 'x'.repeat(500));"""
    )

    answer = world.exchange(world.subject_token())

    assert answer.json() == error_body("access_denied", "na?h ??? ?" + "x" * 246)


@pytest.mark.heavy
def test_endless_loops_spend_no_token_and_delay_no_other_request(world: World, function: ClaimsFunction) -> None:
    """Requests that find no worker within 50 ms spend nothing; tokens that need no function do not wait for one."""
    function.set(LOOP)
    tokens = [world.subject_token() for _ in range(LOOPS)]

    with ThreadPoolExecutor(LOOPS) as loops, ThreadPoolExecutor(4) as others:
        looping = [loops.submit(world.exchange, token) for token in tokens]
        without = [others.submit(world.client_credentials) for _ in range(length(short=100, long=200))]
        answers = [each.result() for each in looping]
        assert {each.result().status_code for each in without} == {200}

    issued = [token for token, answer in zip(tokens, answers, strict=True) if answer.status_code == 200]
    refused = [token for token, answer in zip(tokens, answers, strict=True) if answer.status_code == 503]
    assert len(issued) + len(refused) == len(tokens)
    assert issued
    assert refused
    assert {answer.headers.get("Retry-After") for answer in answers if answer.status_code == 503} <= {*SOON}
    assert [world.is_usable(token) for token in refused] == [True] * len(refused)
    function.remove()
    assert {world.exchange(token).status_code for token in refused} == {200}

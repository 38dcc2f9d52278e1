"""The path of every token request: its phases in order, and the effect of a change that arrives meanwhile."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from identity_common.bus.connection import Bus
from identity_common.bus.stream_reader import Batch, StreamMessage
from identity_common.failures import StoreUnavailable, TemporarilyUnavailable, TooLarge
from identity_common.sealing import SealingKeys
from identity_common.stores.database import create_database_engine
from identity_common.stores.redis import RedisCommands, connect_redis
from identity_common.stores.source_limit import SourceLimit
from identity_common.wire.actor_tokens import ActorTokenRequests
from identity_common.wire.claims_function import SealedVariables
from identity_common.wire.events import (
    ApplicationState,
    ResourceState,
    SecretState,
    Watermark,
    event_subject,
    watermark_subject,
)
from stead.event_types import CloudEvent
from stead.verify.keys import KeySet
from token_service.audit import TokenAudit
from token_service.claims_function import CustomClaims
from token_service.claims_function.failures import FailedCalls
from token_service.claims_function.on_demand import WorkersOnDemand
from token_service.claims_function.recordings import Recordings
from token_service.claims_function.sandbox import ClaimsWorkers, Limits
from token_service.directory import Directory, InMemoryDirectory, InRedisDirectory
from token_service.directory.projection import ProjectionState
from token_service.grants import Grants, TokenRequest, TokenResponse
from token_service.grants.client_authentication import ClientAuthenticator, ClientCredentials
from token_service.grants.client_credentials import ClientCredentialsGrant
from token_service.grants.failed_authentications import FailedAuthentications
from token_service.grants.failures import Refusal, oauth_error_of, refusal_of
from token_service.grants.form import parse_form
from token_service.grants.oauth_errors import OAuthError, invalid_request, invalid_target, unauthorized_client
from token_service.grants.sign_in_demands import SignInDemands
from token_service.grants.table import ChecksOutdatedError
from token_service.grants.targets import Targets
from token_service.grants.token_exchange import TokenExchangeGrant
from token_service.grants.waiting import WaitingRequests
from token_service.metrics import TokenServiceMetrics
from token_service.presented_tokens.actor_tokens import ActorTokens
from token_service.presented_tokens.foreign_actors import ForeignActors
from token_service.presented_tokens.live_tokens import LiveTokens
from token_service.presented_tokens.revocations import Revocations
from token_service.presented_tokens.subject_token_taker import SubjectTokenTaker
from token_service.presented_tokens.subject_tokens import SubjectTokens
from token_service.tokens.issuer import Issuer
from token_service.tokens.keys import AwaitedKey, JwkSet, KeyRing, SigningKeys
from token_service.tokens.signing import SigningKey, generate_private_key, thumbprint

UNREACHABLE = "127.0.0.1:9"
SECRET = "x" * 43
CREDENTIALS = ClientCredentials("app", "client_secret_basic", hashlib.sha256(SECRET.encode()).hexdigest())


class Known:
    """A directory that knows one application; the test feeds it further events."""

    def __init__(self) -> None:
        self.bus = bus = Bus(f"nats://{UNREACHABLE}", service="token")
        self.redis = connect_redis(f"redis://{UNREACHABLE}")
        self.in_memory = InMemoryDirectory(bus, tenant_id="default")
        self.in_memory._take("template", Batch([], caught_up=True))
        self.in_redis = InRedisDirectory(bus, RedisCommands(self.redis), tenant_id="default", max_age_s=900)
        self.directory = Directory(
            bus,
            self.in_memory,
            self.in_redis,
            tenant_id="default",
            max_age_s=900,
            revision_wait_s=0.05,
            catch_up_wait_s=0.05,
        )
        engine = create_database_engine(f"postgresql+asyncpg://u:p@{UNREACHABLE}/x", service="token", pool_size=1)
        self.revocations = Revocations(engine, self.redis, RedisCommands(self.redis), tenant_id="default", replicas=0)
        self.keys = SigningKeys(
            engine,
            SealingKeys([]),
            self.revocations,
            tenant_id="default",
            algorithm="ES256",
            refresh_s=30,
            longest_lifetime_s=lambda: 3600,
        )
        self.live_tokens = LiveTokens(
            self.directory,
            self.keys,
            self.revocations,
            issuer="https://id.example.com/oidc",
            urn_namespace="service",
        )
        self.metrics = TokenServiceMetrics()
        self.audit = TokenAudit(RedisCommands(self.redis), tenant_id="default", backlog=100)
        self._sequence = 0

    def failed_authentications(self) -> FailedAuthentications:
        limit = SourceLimit(
            RedisCommands(self.redis),
            "client-failures",
            tenant_id="default",
            window_s=60,
            limit=1,
            throttled=self.metrics.throttled,
        )
        return FailedAuthentications(limit, limit)

    def has_keys(self) -> None:
        key = generate_private_key("ES256")
        signing_key = SigningKey(key, kid=thumbprint(key, "ES256"), algorithm="ES256")
        jwks = msgspec.json.encode(JwkSet([signing_key.jwk]))
        self.keys._ring = KeyRing(signing_key, jwks, KeySet.parse(jwks), ["ES256"])

    def grants(self, *grants: Any) -> Grants:
        return Grants(
            self.directory,
            self.keys,
            ClientAuthenticator(self.directory, self.failed_authentications()),
            {each.grant_type: each for each in grants},
            outcomes=self.metrics.tokens,
            audit=self.audit,
            waiting=WaitingRequests(),
        )

    def receives(self, kind: str, ids: tuple[str, ...], revision: int, state: msgspec.Struct, *, verb: str) -> None:
        watermark = kind == "revision"
        subject = (
            watermark_subject("management", "default")
            if watermark
            else event_subject("management", "default", kind, *ids)
        )
        event = CloudEvent(
            id=f"default:management:{revision}",
            source="/management",
            type=f"{kind}.{verb}",
            subject="/".join(ids),
            time="2026-01-01T00:00:00.000Z",
            tenantid="default",
            revision=revision,
            data=msgspec.Raw(msgspec.json.encode(state)),
        )
        self._sequence += 1
        message = StreamMessage(subject, self._sequence, event)
        self.in_memory._take("management", Batch([message], caught_up=True))

    def receives_application(self, application: ApplicationState, *, revision: int) -> None:
        verb = "deleted" if application.deleted else "updated"
        self.receives("application", (application.id,), revision, application, verb=verb)
        self.receives_watermark(revision)

    def receives_watermark(self, revision: int) -> None:
        self.receives("revision", ("management",), revision, Watermark(revision), verb="published")
        self.in_redis.freshness.advance("management", revision)


def claims_without_a_function(known: Known) -> CustomClaims:
    keys, commands = SealingKeys([]), RedisCommands(known.redis)
    return CustomClaims(
        known.in_memory,
        WorkersOnDemand(ClaimsWorkers(Limits(), 1), count=1),
        SealedVariables(keys, tenant_id="default"),
        Recordings(commands, keys, tenant_id="default"),
        FailedCalls(commands, tenant_id="default"),
    )


class ProbingGrant:
    """Records the revision that each phase saw; a change may arrive while it prepares."""

    grant_type = "urn:example:probe"

    def __init__(self, known: Known) -> None:
        self._known = known
        self.phases: list[tuple[str, int]] = []
        self.meanwhile: list[Any] = []
        self.refusals: list[Refusal] = []
        self.newer: list[int] = []
        self.keys: list[AwaitedKey] = []

    async def prepare(self, request: TokenRequest, client: ApplicationState) -> int:
        seen = self._known.in_memory.freshness.seen("management")
        self.phases.append(("prepare", seen))
        if self.meanwhile:
            self.meanwhile.pop(0)()
        await asyncio.sleep(0)
        if self.refusals:
            raise self.refusals.pop(0)
        return seen

    async def wait_for(self, awaited: Mapping[str, int]) -> None:
        self.phases.append(("wait", self._known.in_memory.freshness.seen("management")))
        await self._known.directory.wait_for(awaited, self._known.in_memory.freshness)

    async def issue(self, prepared: int, key: AwaitedKey) -> TokenResponse:
        self.phases.append(("issue", prepared))
        self.keys.append(key)
        if self.newer:
            self._known.receives_watermark(self.newer[0])
            raise ChecksOutdatedError({"management": self.newer.pop(0)})
        return TokenResponse(access_token="t", token_type="Bearer", expires_in=1, scope="")


@pytest_asyncio.fixture
async def known() -> AsyncIterator[Known]:
    known = Known()
    application = ApplicationState(id="app", secrets=(SecretState(sha256=CREDENTIALS.secret_sha256 or ""),))
    known.receives_application(application, revision=4)
    known.has_keys()
    yield known
    await known.redis.aclose()


@pytest.fixture
def probe(known: Known) -> ProbingGrant:
    return ProbingGrant(known)


@pytest.fixture
def grants(known: Known, probe: ProbingGrant) -> Grants:
    return known.grants(probe)


def request(form: bytes = b"grant_type=urn:example:probe", **awaited: int) -> TokenRequest:
    return TokenRequest(parameters=parse_form(form), credentials=CREDENTIALS, awaited=awaited)


async def test_without_a_revision_everything_happens_once(grants: Grants, probe: ProbingGrant) -> None:
    await grants.issue(request())

    assert probe.phases == [("prepare", 4), ("issue", 4)]


async def test_a_revision_that_was_there_from_the_beginning_is_not_waited_for(
    grants: Grants, probe: ProbingGrant
) -> None:
    await grants.issue(request(management=4))

    assert probe.phases == [("prepare", 4), ("issue", 4)]


async def test_a_check_made_before_the_revision_arrived_is_repeated(
    known: Known, grants: Grants, probe: ProbingGrant
) -> None:
    """The revision may arrive before the wait begins; the earlier check does not count nevertheless."""
    probe.meanwhile.append(lambda: known.receives_watermark(5))
    await grants.issue(request(management=5))

    assert probe.phases == [("prepare", 4), ("wait", 5), ("prepare", 5), ("issue", 5)]


async def test_a_client_that_was_deleted_by_the_awaited_revision_is_refused(
    known: Known, grants: Grants, probe: ProbingGrant
) -> None:
    """Authentication is checked again like everything else."""
    probe.meanwhile.append(lambda: known.receives_application(ApplicationState(id="app", deleted=True), revision=5))
    with pytest.raises(OAuthError) as refused:
        await grants.issue(request(management=5))

    assert (refused.value.error, refused.value.status) == ("invalid_client", 401)
    assert probe.phases == [("prepare", 4), ("wait", 5)]


async def test_checks_that_are_older_than_what_is_spent_are_made_again(
    known: Known, grants: Grants, probe: ProbingGrant
) -> None:
    probe.newer.append(5)
    await grants.issue(request())
    assert probe.phases == [("prepare", 4), ("issue", 4), ("prepare", 5), ("issue", 5)]

    probe.newer += [6, 7]
    with pytest.raises(OAuthError) as refused:
        await grants.issue(request())
    assert (refused.value.error, refused.value.status) == ("temporarily_unavailable", 503)

    probe.meanwhile.append(lambda: known.receives_application(ApplicationState(id="app", deleted=True), revision=8))
    probe.newer.append(8)
    with pytest.raises(OAuthError) as refused:
        await grants.issue(request())
    assert (refused.value.error, probe.phases[-1]) == ("invalid_client", ("issue", 7))


async def test_a_revision_that_does_not_arrive_is_refused_before_anything_is_issued(
    grants: Grants, probe: ProbingGrant
) -> None:
    with pytest.raises(OAuthError) as refused:
        await grants.issue(request(management=5))

    assert (refused.value.error, refused.value.status, refused.value.retry_after_s) == (
        "temporarily_unavailable",
        503,
        1,
    )
    assert probe.phases == [("prepare", 4), ("wait", 4)]


async def test_an_outdated_refusal_is_withdrawn_once_the_revision_arrives(
    known: Known, grants: Grants, probe: ProbingGrant
) -> None:
    """An administrator has allowed the grant in that very revision."""
    probe.refusals.append(unauthorized_client("not yet"))
    probe.meanwhile.append(lambda: known.receives_watermark(5))
    await grants.issue(request(management=5))

    assert probe.phases == [("prepare", 4), ("wait", 5), ("prepare", 5), ("issue", 5)]


async def test_a_refusal_that_the_revision_does_not_change_is_answered(
    known: Known, grants: Grants, probe: ProbingGrant
) -> None:
    probe.refusals += [unauthorized_client("before the revision"), invalid_target("after the revision")]
    probe.meanwhile.append(lambda: known.receives_watermark(5))
    with pytest.raises(OAuthError) as refused:
        await grants.issue(request(management=5))

    assert refused.value.description == "after the revision"
    assert probe.phases == [("prepare", 4), ("wait", 5), ("prepare", 5)]


@pytest.mark.parametrize(
    "refusal",
    [unauthorized_client("before the revision"), TooLarge("token.too_long", "before the revision")],
    ids=lambda refusal: refusal_of(refusal).error,
)
async def test_a_refusal_stands_when_the_revision_does_not_arrive(
    grants: Grants, probe: ProbingGrant, refusal: Refusal
) -> None:
    """The contract's order: grant, target and actor come before the awaited revision."""
    probe.refusals.append(refusal)
    with pytest.raises(OAuthError) as refused:
        await grants.issue(request(management=5))

    assert refused.value.description == "before the revision"
    assert probe.phases == [("prepare", 4), ("wait", 4)]


@pytest.mark.parametrize(
    "refusal",
    [invalid_request("code is required"), StoreUnavailable("redis", "ConnectionError", why="a store is down")],
    ids=lambda refusal: refusal_of(refusal).error,
)
async def test_a_refusal_that_no_revision_changes_is_immediate(
    grants: Grants, probe: ProbingGrant, refusal: Refusal
) -> None:
    """Waiting begins after validation."""
    probe.refusals.append(refusal)
    with pytest.raises(OAuthError) as refused:
        await grants.issue(request(management=5))

    assert str(refused.value) == str(refusal_of(refusal))
    assert probe.phases == [("prepare", 4)]


async def test_a_failure_below_the_grant_is_counted_as_the_error_that_the_client_gets(
    known: Known, grants: Grants, probe: ProbingGrant
) -> None:
    probe.refusals.append(StoreUnavailable("redis", "ConnectionError", why="codes cannot be read right now"))
    with pytest.raises(OAuthError) as refused:
        await grants.issue(request())

    assert (refused.value.description, refused.value.status) == ("codes cannot be read right now", 503)
    counted = known.metrics.tokens.labels(ProbingGrant.grant_type, "temporarily_unavailable")
    assert counted._value.get() == 1


async def test_a_revision_of_a_source_without_events_is_awaited_too(grants: Grants, probe: ProbingGrant) -> None:
    """It does not count as zero."""
    with pytest.raises(OAuthError) as refused:
        await grants.issue(request(management=4, template=0))

    assert refused.value.error == "temporarily_unavailable"
    assert probe.phases == [("prepare", 4), ("wait", 4)]


async def test_an_unknown_grant_is_named_only_to_a_client_that_authenticated(grants: Grants) -> None:
    wrong = msgspec.structs.replace(CREDENTIALS, secret_sha256="0" * 64)
    form = parse_form(b"grant_type=nothing")
    errors = []
    for credentials in (wrong, CREDENTIALS):
        with pytest.raises(OAuthError) as refused:
            await grants.issue(TokenRequest(parameters=form, credentials=credentials, awaited={}))
        errors.append(refused.value.error)

    assert errors == ["invalid_client", "unsupported_grant_type"]


async def test_a_directory_that_is_not_loaded_answers_nothing_at_all() -> None:
    """The design: missing data leads neither to a grant nor to a refusal."""
    empty = Known()
    probe = ProbingGrant(empty)
    empty.has_keys()
    with pytest.raises(OAuthError) as refused:
        await empty.grants(probe).issue(request())

    assert (refused.value.error, refused.value.status, refused.value.retry_after_s) == (
        "temporarily_unavailable",
        503,
        1,
    )
    await empty.redis.aclose()


async def test_without_a_key_to_sign_with_nothing_is_begun(known: Known, grants: Grants, probe: ProbingGrant) -> None:
    """A database that is down at start is a clear 503, and does not spend a subject token."""
    known.keys._ring = None
    with pytest.raises(OAuthError) as refused:
        await grants.issue(request())

    assert (refused.value.error, refused.value.status, refused.value.retry_after_s) == (
        "temporarily_unavailable",
        503,
        1,
    )
    assert probe.phases == []


async def test_the_key_to_sign_with_is_checked_after_the_request(
    known: Known, grants: Grants, probe: ProbingGrant
) -> None:
    """A refused request asks nothing; the answer may come late, more than once, or be of no use to the grant."""
    probe.refusals.append(invalid_request("code is required"))
    with pytest.raises(OAuthError):
        await grants.issue(request())
    assert probe.keys == []

    before = asyncio.all_tasks()
    await grants.issue(request())
    (asked,) = probe.keys
    assert [await asked, await asked] == [known.keys.ring.current] * 2
    await grants.issue(request())  # does not await it
    started = asyncio.all_tasks() - before
    unused = {task for task in started if "Coalescer" in repr(task.get_coro())}  # services have tasks on this loop, too
    await asyncio.wait(unused)
    assert {task.exception() for task in unused} == {None}


async def test_people_cannot_be_judged_while_they_are_being_loaded(known: Known) -> None:
    """The design: an incomplete directory in Redis is 503; readiness does not turn back when the records are lost."""
    in_redis = known.in_redis

    def state(*, complete: bool) -> ProjectionState:
        return ProjectionState(complete=complete, heard_at=0, revisions={"management": 4})

    seen = []
    for each in (None, state(complete=False), state(complete=True), state(complete=False)):
        if each is not None:
            in_redis.projection.take(each)
        try:
            known.directory.require_people()
        except TemporarilyUnavailable as failure:
            seen.append((in_redis.is_loaded, oauth_error_of(failure).status))
        else:
            seen.append((in_redis.is_loaded, 200))

    assert seen == [(False, 503), (False, 503), (True, 200), (True, 503)]


async def test_a_directory_without_events_for_too_long_answers_nothing(known: Known, grants: Grants) -> None:
    """The design: ``directory_max_age_s``, heartbeats included."""
    known.directory._max_age_s = -1
    with pytest.raises(OAuthError) as refused:
        await grants.issue(request())

    assert (refused.value.error, refused.value.description) == (
        "temporarily_unavailable",
        "the directory is out of date",
    )


async def test_while_redis_is_away_people_cannot_be_judged(known: Known) -> None:
    """The design: a store that is down is 503, never a guess."""
    with pytest.raises(StoreUnavailable) as failed:
        await known.directory.person("user", at_least={})

    refusal = oauth_error_of(failed.value)
    assert (refusal.error, refusal.status) == ("temporarily_unavailable", 503)
    assert refusal.description == "the directory cannot be read right now"


class Organizations:
    """Both grants over a directory that has loaded everything but organizations."""

    ISSUER = "https://id.example.com/oidc"
    RESOURCE = "https://api.example.com"

    def __init__(self, known: Known) -> None:
        known.receives("resource", ("r",), 5, ResourceState(id="r", indicator=self.RESOURCE), verb="updated")
        secret = SecretState(sha256=CREDENTIALS.secret_sha256 or "")
        web = ApplicationState(id="web", type="Traditional", allow_token_exchange=True, secrets=(secret,))
        known.receives_application(web, revision=6)
        known.in_redis.projection.take(ProjectionState(complete=True, heard_at=0, revisions={"management": 6}))
        issuer = Issuer(self.ISSUER)
        targets = Targets(
            known.directory,
            userinfo_audience=f"{self.ISSUER}/me",
            urn_namespace="service",
            management_api_resource="https://default.service.internal/api",
            unknown_scopes=known.metrics.unknown_scopes,
        )
        custom_claims = claims_without_a_function(known)
        self._grants = known.grants(
            ClientCredentialsGrant(known.directory, targets, custom_claims, issuer),
            TokenExchangeGrant(
                known.directory,
                SubjectTokens(
                    SubjectTokenTaker(
                        known.redis,
                        RedisCommands(known.redis),
                        known.revocations,
                        known.audit,
                        tenant_id="default",
                        replicas=0,
                    ),
                    known.directory,
                    known.revocations,
                ),
                ActorTokens(
                    known.directory,
                    known.live_tokens,
                    ForeignActors(known.bus, ActorTokenRequests(SealingKeys([]), tenant_id="default")),
                    userinfo_audience=f"{self.ISSUER}/me",
                    by_exchange=False,
                    urn_namespace="service",
                ),
                targets,
                custom_claims,
                issuer,
                SignInDemands(known.directory.in_memory, urn_namespace="service"),
                urn_namespace="service",
            ),
        )

    async def answer(self, client_id: str, form: str) -> tuple[int, str]:
        """Return the status, and why it was refused or what was issued."""
        credentials = ClientCredentials(client_id, "client_secret_basic", CREDENTIALS.secret_sha256)
        try:
            issued = await self._grants.issue(
                TokenRequest(parameters=parse_form(form.encode()), credentials=credentials, awaited={})
            )
        except OAuthError as error:
            return error.status, error.description
        claims = issued.access_token.split(".")[1]
        return 200, msgspec.json.decode(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["aud"]


async def test_until_organizations_are_loaded_only_their_tokens_are_refused(known: Known) -> None:
    """The design: temporarily_unavailable before anything is spent; everything else goes on."""
    organizations = Organizations(known)
    client = "grant_type=client_credentials"
    exchange = (
        "grant_type=urn:ietf:params:oauth:grant-type:token-exchange&subject_token=sub_x"
        "&subject_token_type=urn:ietf:params:oauth:token-type:access_token"
    )
    answers = {
        (client_id, more): await organizations.answer(client_id, f"{grant}{more}")
        for client_id, grant in (("app", client), ("web", exchange))
        for more in ("&organization_id=o", f"&organization_id=o&resource={organizations.RESOURCE}")
    }

    assert set(answers.values()) == {(503, "organizations are being loaded")}
    assert await organizations.answer("app", f"{client}&resource={organizations.RESOURCE}") == (
        200,
        organizations.RESOURCE,
    )
    # The request gets as far as the subject token, and there is no Redis to read it from.
    assert await organizations.answer("web", f"{exchange}&resource={organizations.RESOURCE}") == (
        503,
        "subject tokens cannot be read right now",
    )


async def test_both_halves_must_have_loaded_organizations(known: Known) -> None:
    """The in-memory template grants nothing to members that are not loaded yet, nor the other way round."""
    seen = []
    for half in (known.in_memory, known.in_redis):
        half.freshness.advance("template", 0)
        try:
            known.directory.require_organizations()
        except TemporarilyUnavailable as failure:
            seen.append(oauth_error_of(failure).status)
        else:
            seen.append(200)

    assert seen == [503, 200]

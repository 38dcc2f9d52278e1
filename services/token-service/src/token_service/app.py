"""Builds the token service: the one place that sees the settings and puts the parts together."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final, cast

from litestar import Litestar
from litestar.handlers import HTTPRouteHandler
from prometheus_client import CollectorRegistry, Gauge

from identity_common.bus.connection import Bus
from identity_common.http.application import create_service_app
from identity_common.http.health import Readiness
from identity_common.stores import migrations
from identity_common.stores.database import create_database_engine
from identity_common.stores.redis import RedisCommands, connect_redis
from token_service.authorizations import Authorizations, Codes, Consents, RefreshTokens
from token_service.authorizations.forgetting import Forgetting
from token_service.directory import Directory, InMemoryDirectory, InRedisDirectory
from token_service.endpoints.consents import ConsentController
from token_service.endpoints.cors import Cors
from token_service.endpoints.introspection import Introspector, introspection_endpoint
from token_service.endpoints.keys import PrivateKeyController
from token_service.endpoints.management_access import ManagementAccess
from token_service.endpoints.metadata import PATHS as METADATA_PATHS
from token_service.endpoints.metadata import metadata_endpoints
from token_service.endpoints.revocation import PATH as REVOCATION_PATH
from token_service.endpoints.revocation import Revoker, revocation_endpoint
from token_service.endpoints.token import PATH as TOKEN_PATH
from token_service.endpoints.token import token_endpoint
from token_service.endpoints.userinfo import PATH as USERINFO_PATH
from token_service.endpoints.userinfo import Userinfo, userinfo_endpoint
from token_service.grants import Grant, Grants
from token_service.grants.actor import ActorTokens
from token_service.grants.authorization_code import AuthorizationCodeGrant
from token_service.grants.client_authentication import ClientAuthenticator
from token_service.grants.client_credentials import ClientCredentialsGrant
from token_service.grants.refresh_token import RefreshTokenGrant
from token_service.grants.targets import ORGANIZATION_TOKEN_TTL_S, USERINFO_TOKEN_TTL_S, Targets
from token_service.grants.token_exchange import TokenExchangeGrant
from token_service.grants.user_tokens import UserTokens
from token_service.people import People
from token_service.presented_tokens.live_tokens import LiveTokens
from token_service.presented_tokens.revocations import Revocations
from token_service.presented_tokens.subject_tokens import SubjectTokens
from token_service.settings import Settings
from token_service.sign_in.flow import SignInFlow
from token_service.sign_in.passwords import PasswordCheck
from token_service.sign_in.pending import PendingAuthorizations
from token_service.sign_in.routes import AuthorizationPages
from token_service.sign_in.sessions import Sessions
from token_service.sign_in.sign_out import EndSession
from token_service.sign_in.throttle import PasswordThrottle
from token_service.tokens.id_token_hints import IdTokenHints
from token_service.tokens.issuer import Issuer
from token_service.tokens.key_encryption import KeyEncryption
from token_service.tokens.keys import SigningKeys
from token_service.tokens.signing import SigningAlgorithm

VERSIONS: Final = Path(__file__).parent / "migrations"


def migrate(settings: Settings) -> None:
    """Bring this service's database to the newest revision; blocks."""
    migrations.migrate(settings.database_url, VERSIONS)


def create_app(settings: Settings) -> Litestar:
    """Return the app; its lifespan starts and stops everything that it is made of."""
    registry = CollectorRegistry()
    engine = create_database_engine(
        settings.database_url, service="token-service", pool_size=settings.database_connections
    )
    redis = connect_redis(settings.redis_url)
    commands = RedisCommands(redis)
    bus = Bus(settings.nats_url, service="token")
    in_memory = InMemoryDirectory(bus, tenant_id=settings.tenant_id)
    keys = SigningKeys(
        engine,
        KeyEncryption(settings.key_encryption_keys),
        tenant_id=settings.tenant_id,
        algorithm=cast("SigningAlgorithm", settings.signing_algorithm),
        refresh_s=settings.signing_keys_refresh_s,
        longest_lifetime_s=lambda: max(USERINFO_TOKEN_TTL_S, ORGANIZATION_TOKEN_TTL_S, in_memory.longest_lifetime_s),
    )
    in_redis = InRedisDirectory(bus, commands, tenant_id=settings.tenant_id, max_age_s=settings.directory_max_age_s)
    directory = Directory(
        bus,
        in_memory,
        in_redis,
        tenant_id=settings.tenant_id,
        max_age_s=settings.directory_max_age_s,
        revision_wait_s=settings.revision_wait_s,
        catch_up_wait_s=settings.catch_up_wait_s,
    )
    revocations = Revocations(engine, redis, commands, tenant_id=settings.tenant_id, replicas=settings.redis_replicas)
    consents = Consents(engine, tenant_id=settings.tenant_id)
    authorizations = Authorizations(engine, revocations, tenant_id=settings.tenant_id)
    forgetting = Forgetting(directory, consents, authorizations)
    refresh_tokens = RefreshTokens(
        engine, authorizations, tenant_id=settings.tenant_id, grace_s=settings.refresh_token_grace_s
    )
    live_tokens = LiveTokens(directory, keys, revocations, issuer=settings.issuer, urn_namespace=settings.urn_namespace)
    people = People(directory, urn_namespace=settings.urn_namespace)
    authenticator = ClientAuthenticator(directory)
    grants = Grants(
        directory,
        keys,
        authenticator,
        _grants(
            settings,
            directory,
            live_tokens,
            people,
            consents,
            Issuer(settings.issuer, keys),
            SubjectTokens(redis, commands, tenant_id=settings.tenant_id, replicas=settings.redis_replicas),
            Codes(commands, tenant_id=settings.tenant_id),
            authorizations,
            refresh_tokens,
        ),
    )
    introspector = Introspector(directory, keys, authenticator, live_tokens, refresh_tokens, issuer=settings.issuer)
    revoker = Revoker(directory, keys, authenticator, live_tokens, refresh_tokens, authorizations, revocations)
    _watch(registry, directory, bus)
    pages = _pages(settings, directory, keys, bus, commands, authorizations)

    @asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncGenerator[None, None]:
        bus.start()
        keys.start()
        directory.start()
        revocations.start()
        authorizations.start()
        forgetting.start()
        try:
            yield
        finally:
            await forgetting.stop()
            await authorizations.stop()
            await revocations.stop()
            await directory.stop()
            await keys.stop()
            await bus.stop()
            await redis.aclose()
            await engine.dispose()

    return create_service_app(
        title="Token service",
        route_handlers=[
            token_endpoint(grants),
            introspection_endpoint(introspector),
            revocation_endpoint(revoker),
            userinfo_endpoint(Userinfo(live_tokens, people, consents, userinfo_audience=_userinfo_audience(settings))),
            *pages,
            PrivateKeyController,
            ConsentController,
            *metadata_endpoints(
                issuer=settings.issuer,
                urn_namespace=settings.urn_namespace,
                grant_types=grants.grant_types,
                ring=lambda: keys.ring if keys.is_loaded else None,
            ),
        ],
        provide={
            "authorizations": authorizations,
            "consents": consents,
            "directory": directory,
            "keys": keys,
            "tenant_id": settings.tenant_id,
            "management_access": ManagementAccess(
                directory, live_tokens, management_api_resource=settings.management_api_resource
            ),
        },
        readiness=Readiness(lambda: keys.is_loaded, lambda: directory.is_loaded),
        registry=registry,
        lifespan=lifespan,
        cors=lambda whole: Cors(
            whole,
            public_paths=frozenset({*METADATA_PATHS, USERINFO_PATH}),
            registered_paths=frozenset({TOKEN_PATH, REVOCATION_PATH}),
            is_registered=in_memory.is_registered_origin,
        ),
    )


def _userinfo_audience(settings: Settings) -> str:
    return f"{settings.issuer}/me"


def _grants(
    settings: Settings,
    directory: Directory,
    live_tokens: LiveTokens,
    people: People,
    consents: Consents,
    issuer: Issuer,
    subject_tokens: SubjectTokens,
    codes: Codes,
    authorizations: Authorizations,
    refresh_tokens: RefreshTokens,
) -> Mapping[str, Grant[object]]:
    """Return the table of grants."""
    targets = Targets(
        directory,
        userinfo_audience=_userinfo_audience(settings),
        urn_namespace=settings.urn_namespace,
        management_api_resource=settings.management_api_resource,
    )
    user_tokens = UserTokens(directory, targets, people, consents, issuer, urn_namespace=settings.urn_namespace)
    actor_tokens = ActorTokens(
        directory,
        live_tokens,
        userinfo_audience=_userinfo_audience(settings),
        by_exchange=settings.actor_tokens_by_exchange,
    )
    grants = (
        ClientCredentialsGrant(directory, targets, issuer),
        TokenExchangeGrant(
            directory, subject_tokens, actor_tokens, targets, issuer, urn_namespace=settings.urn_namespace
        ),
        AuthorizationCodeGrant(codes, authorizations, refresh_tokens, user_tokens),
        RefreshTokenGrant(refresh_tokens, user_tokens),
    )
    return {grant.grant_type: cast("Grant[object]", grant) for grant in grants}


def _pages(
    settings: Settings,
    directory: Directory,
    keys: SigningKeys,
    bus: Bus,
    commands: RedisCommands,
    authorizations: Authorizations,
) -> list[HTTPRouteHandler]:
    """Return everything that people see."""
    tenant_id = settings.tenant_id
    sessions = Sessions(commands, tenant_id=tenant_id)
    pending = PendingAuthorizations(commands, tenant_id=tenant_id)
    hints = IdTokenHints(keys, issuer=settings.issuer)
    flow = SignInFlow(
        directory,
        sessions,
        authorizations,
        Codes(commands, tenant_id=tenant_id),
        hints,
        urn_namespace=settings.urn_namespace,
    )
    throttle = PasswordThrottle(
        commands,
        tenant_id=tenant_id,
        window_s=settings.password_window_s,
        per_account=settings.password_attempts_per_account,
        per_address=settings.password_attempts_per_address,
    )
    authorization = AuthorizationPages(
        flow,
        sessions,
        pending,
        PasswordCheck(bus, tenant_id=tenant_id),
        throttle,
        base_url=settings.base_url,
        issuer=settings.issuer,
        trusted_proxies=settings.trusted_proxies,
    )
    end_session = EndSession(
        flow,
        sessions,
        hints,
        base_url=settings.base_url,
        trusted_proxies=settings.trusted_proxies,
    )
    return [*authorization.routes(), *end_session.routes()]


def _watch(registry: CollectorRegistry, directory: Directory, bus: Bus) -> None:
    """Show how far the directory is: what readiness deliberately does not tell."""
    revision = Gauge("directory_revision", "Highest revision seen.", ("store", "source"), registry=registry)
    silence = Gauge(
        "directory_silence_seconds", "Seconds since the bus was last heard from.", ("store",), registry=registry
    )
    for store, freshness in (("memory", directory.in_memory.freshness), ("redis", directory.in_redis.freshness)):
        silence.labels(store).set_function(partial(getattr, freshness, "silence_s"))
        for source in ("management", "template"):
            revision.labels(store, source).set_function(partial(freshness.seen, source))
    connected = Gauge("bus_connected", "1 while there is a connection to NATS.", registry=registry)
    connected.set_function(lambda: float(bus.is_connected))

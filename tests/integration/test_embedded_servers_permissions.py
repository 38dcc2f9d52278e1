"""What each service may do in the embedded PostgreSQL, Valkey and NATS."""

from collections.abc import Iterator

import asyncpg
import nats
import pytest
import redis
from nats.aio.msg import Msg
from nats.js.api import ConsumerConfig
from redis.backoff import NoBackoff
from redis.retry import Retry

from identity_common.bus.streams import STREAMS, SUBSCRIBERS_API, SUBSCRIBERS_COPY
from identity_common.wire.revocations import LUA_REVOKE, cutoff_id, position_key, retired_key_id, revocation_key
from tests.support.embedded_servers import Cluster, execute
from tests.support.waiting import WAIT_S, round_trip

pytestmark = pytest.mark.heavy


class TestPostgres:
    @pytest.mark.parametrize("service", ["management", "token", "template"])
    @pytest.mark.parametrize("database", ["management", "token", "template", "postgres", "template1"])
    async def test_a_role_reaches_its_own_database_only(self, cluster: Cluster, service: str, database: str) -> None:
        url = getattr(cluster.addresses, f"{service}_database_url").rpartition("/")[0] + f"/{database}"
        if service == database:
            await execute(url, "CREATE TABLE own (id int)")
            await execute(url, "DROP TABLE own")
        else:
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await execute(url, "SELECT 1")

    async def test_a_role_owns_its_database_and_may_do_nothing_more(self, cluster: Cluster) -> None:
        rows = await execute(
            cluster.addresses.admin_postgres_url,
            "SELECT datname, rolname, rolsuper OR rolcreatedb OR rolcreaterole OR rolreplication OR rolbypassrls"
            " FROM pg_database JOIN pg_roles ON pg_roles.oid = datdba WHERE rolname <> 'postgres' ORDER BY 1",
        )
        assert rows == [(name, name, False) for name in ("management", "template", "token")]

    async def test_a_connection_needs_the_password(self, cluster: Cluster) -> None:
        port = cluster.servers.postgres.port
        for user in ("postgres", "management"):
            with pytest.raises(asyncpg.InvalidPasswordError):
                await execute(f"postgresql://{user}:wrong@127.0.0.1:{port}/{user}", "SELECT 1")


class TestValkey:
    KEY = "identity:default:subject-token:abc"

    @pytest.fixture
    def management(self, cluster: Cluster) -> Iterator[redis.Redis]:
        with redis.Redis.from_url(cluster.addresses.management_redis_url) as client:
            yield client

    @pytest.fixture
    def token(self, cluster: Cluster) -> Iterator[redis.Redis]:
        with redis.Redis.from_url(cluster.addresses.token_redis_url) as client:
            yield client

    def test_one_service_puts_a_subject_token_and_the_other_takes_it(
        self, management: redis.Redis, token: redis.Redis
    ) -> None:
        assert management.set(self.KEY, "record", nx=True, px=60_000)
        assert token.getdel(self.KEY) == b"record"
        assert token.getdel(self.KEY) is None

    @pytest.mark.parametrize(
        "command", [("GETDEL", KEY), ("GET", KEY), ("DEL", KEY), ("SET", "identity:default:user:1", "x"), ("KEYS", "*")]
    )
    def test_management_can_only_put_subject_tokens(self, management: redis.Redis, command: tuple[str, ...]) -> None:
        with pytest.raises(redis.exceptions.NoPermissionError):
            management.execute_command(*command)

    def test_management_counts_attempts_and_runs_scripts_on_nothing_else(
        self, management: redis.Redis, token: redis.Redis
    ) -> None:
        key, script = "identity:default:sign-in-attempts:user:1:0", "return redis.call('HINCRBY', KEYS[1], 'a', 1)"
        assert management.eval(script, 1, key) == 1
        assert management.delete(key) == 1
        token.set(self.KEY, "record")
        with pytest.raises(redis.exceptions.NoPermissionError):
            management.eval("return 1", 1, "identity:default:user:1")
        reading = ("'GET', KEYS[1]", "'GETDEL', KEYS[1]", "'SET', KEYS[1], 'x', 'GET'", "'COPY', KEYS[1], 'x'")
        for refused in (script, *(f"return redis.call({command})" for command in reading)):
            with pytest.raises(redis.exceptions.ResponseError):
                management.eval(refused, 1, self.KEY)
        for beyond in (f"return redis.call('GET', '{self.KEY}')", f"return redis.call('DEL', '{self.KEY}')"):
            with pytest.raises(redis.exceptions.ResponseError):
                management.eval(beyond, 1, key)
        assert token.getdel(self.KEY) == b"record"

    def test_management_ends_impersonations_and_revokes_nothing_else(
        self, management: redis.Redis, token: redis.Redis
    ) -> None:
        """Neither a token, nor a signing key; and it can neither undo a revocation nor say what the copy has."""
        write = LUA_REVOKE + "revoke(KEYS[1], ARGV[1], ARGV[2])"
        for ended, kept in ((cutoff_id("user:1"), 7), ("k2v0m8b4n7c1z5l9rj3xq", 1)):
            key = revocation_key("default", ended)
            management.eval(write, 1, key, kept, 60_000)
            assert token.get(key) == b"%d" % kept
            with pytest.raises(redis.exceptions.NoPermissionError):
                management.delete(key)
        assert management.wait(0, 1) == 0
        others = [revocation_key("default", each) for each in ("a.b", retired_key_id("k" * 43), "x" * 43)]
        for key in (*others, position_key("default"), self.KEY):
            with pytest.raises(redis.exceptions.ResponseError):
                management.eval(write, 1, key, 1, 60_000)
            assert token.get(key) is None

    @pytest.mark.parametrize("service", ["management", "template"])
    def test_verifiers_of_access_tokens_can_read_revocations_only(
        self, cluster: Cluster, token: redis.Redis, service: str
    ) -> None:
        token.set("identity:default:revocation:a.b", "1")
        token.set("identity:default:revocations", "7")
        url = getattr(cluster.addresses, f"{service}_redis_url")
        with redis.Redis.from_url(url) as client:
            assert client.mget("identity:default:revocations", "identity:default:revocation:a.b") == [b"7", b"1"]
            for command in (
                ("SET", "identity:default:revocations", "8"),
                ("SET", "identity:default:revocation:a.b", "0"),
                ("MGET", "identity:default:revocations", self.KEY),
                ("MGET", "identity:default:user:1"),
                ("DEL", "identity:default:revocation:a.b"),
            ):
                with pytest.raises(redis.exceptions.NoPermissionError):
                    client.execute_command(*command)

    @pytest.mark.parametrize("site", ["console", "account"])
    def test_the_console_keeps_its_sessions_and_reads_nothing_else(
        self, cluster: Cluster, token: redis.Redis, site: str
    ) -> None:
        ours, other = f"identity:default:{site}-session:1", "identity:default:sign-in-attempts:user:1:0"
        token.set(self.KEY, "record")
        token.hset(other, "a", "1")
        with redis.Redis.from_url(cluster.addresses.console_redis_url) as console:
            assert console.hset(ours, "tokens", "sealed") == 1
            assert console.delete(ours) == 1
            for command in (
                ("GET", self.KEY),
                ("GETDEL", self.KEY),
                ("SET", self.KEY, "x"),
                ("EVAL", "return redis.call('GET', KEYS[1])", "1", self.KEY),
                ("HGETALL", other),
                ("DEL", other),
                ("GET", "identity:default:revocations"),
                ("KEYS", "*"),
                ("XRANGE", "identity:default:audit:subject-tokens", "-", "+"),
            ):
                with pytest.raises(redis.exceptions.NoPermissionError):
                    console.execute_command(*command)
            with pytest.raises(redis.exceptions.ResponseError):
                console.eval(f"return redis.call('GET', '{self.KEY}')", 1, ours)
        assert token.getdel(self.KEY) == b"record"
        with redis.Redis.from_url(cluster.addresses.management_redis_url) as management:
            for refused in (("HGETALL", ours), ("EVAL", "return 1", "1", ours), ("DEL", ours)):
                with pytest.raises(redis.exceptions.NoPermissionError):
                    management.execute_command(*refused)

    @pytest.mark.parametrize(
        "command",
        [("FLUSHALL",), ("FLUSHDB",), ("CONFIG", "GET", "*"), ("ACL", "LIST"), ("SET", "other:1", "x"), ("MONITOR",)],
    )
    def test_token_can_neither_empty_nor_configure_nor_leave_its_keys(
        self, token: redis.Redis, command: tuple[str, ...]
    ) -> None:
        with pytest.raises(redis.exceptions.NoPermissionError):
            token.execute_command(*command)

    def test_token_can_run_scripts_on_its_keys(self, token: redis.Redis) -> None:
        script = token.register_script("redis.call('HSET', KEYS[1], 'a', ARGV[1]) return redis.call('TIME')")
        assert len(script(keys=["identity:default:position"], args=["1"])) == 2
        with pytest.raises(redis.exceptions.ResponseError):
            script(keys=["elsewhere"], args=["1"])
        assert token.delete("identity:default:position") == 1

    async def test_the_asynchronous_client_connects_as_every_service(self, cluster: Cluster) -> None:
        addresses = cluster.addresses
        for service in ("management", "token", "template", "console"):
            url = getattr(addresses, f"{service}_redis_url")
            async with redis.asyncio.Redis.from_url(url, client_name="a-name") as client:
                assert await client.ping()

    def test_a_connection_needs_a_password(self, cluster: Cluster) -> None:
        with pytest.raises(redis.exceptions.AuthenticationError):
            redis.Redis(port=cluster.servers.valkey.port, retry=Retry(NoBackoff(), 0)).ping()

    def test_nothing_is_evicted(self, cluster: Cluster) -> None:
        admin = redis.Redis.from_url(cluster.addresses.admin_redis_url)
        assert admin.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}


STREAM_NAMES = ("IDENTITY_EVENTS", "IDENTITY_INTERNAL", "IDENTITY_STATE", "IDENTITY_AUDIT", "IDENTITY_MAIL")
PUBLISHED = (
    *("identity.default.role.1", "identity-internal.default.user.1", "identity-rpc.default.password-check"),
    *("identity-rpc.default.claims-function", "identity-rpc.default.members"),
    *("identity-rpc.default.organization-grants", "identity-rpc.default.organization-names"),
    *("identity-rpc.default.search", "identity-rpc.default.account-links", "identity-rpc.default.factors"),
    *("identity-rpc.default.organization-invitations", "identity-rpc.default.mail-sending"),
    *("identity-relay.default.management", "identity-relay.default.template"),
    *("_INBOX.1.2", "_INBOX_management.1.2", "_INBOX_template.1.2", "_INBOX_token.1.2", "anything"),
    *("$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.LIST", "$JS.API.STREAM.CREATE.ANYTHING"),
    *(
        f"$JS.API.{action}.{stream}"
        for stream in STREAM_NAMES
        for action in (
            *("STREAM.INFO", "STREAM.CREATE", "STREAM.UPDATE", "STREAM.DELETE", "STREAM.PURGE"),
            *("STREAM.MSG.GET", "STREAM.MSG.DELETE", "STREAM.SNAPSHOT", "STREAM.RESTORE", "DIRECT.GET"),
            *("CONSUMER.CREATE", "CONSUMER.NAMES", "CONSUMER.LIST"),
        )
    ),
    *(
        f"$JS.API.CONSUMER.{action}.{stream}.a"
        for stream in STREAM_NAMES
        for action in ("CREATE", "DURABLE.CREATE", "INFO", "MSG.NEXT", "DELETE")
    ),
    *(f"{subject}.{stream}.a.1.1.1.1.1" for subject in ("$JS.ACK", "$JS.FC") for stream in STREAM_NAMES),
    *(
        f"{account}.$JS.API.{request}.IDENTITY_EVENTS"
        for account in ("services", "subscribers")
        for request in ("STREAM.INFO", "STREAM.CREATE", "STREAM.DELETE", "CONSUMER.CREATE", "CONSUMER.MSG.NEXT")
    ),
    *("identity-mirror.a", "identity-audit.default.management", "identity-audit.default.template"),
    *("identity-audit.default.subject-tokens", "identity-audit.default.exchanges", "identity-audit.default.token"),
    *(f"identity-mail.default.{service}" for service in ("management", "template", "token")),
)
SUBSCRIBED = (
    *("identity.>", "identity-internal.>", "identity-rpc.>", "identity-rpc.default.password-check", "identity-relay.>"),
    *("identity-rpc.default.claims-function", "identity-rpc.default.members"),
    *("identity-rpc.default.organization-grants", "identity-rpc.default.organization-names"),
    *("identity-rpc.default.search", "identity-rpc.default.account-links", "identity-rpc.default.factors"),
    *("identity-rpc.default.organization-invitations", "identity-rpc.default.mail-sending"),
    *("identity-relay.default.management", "identity-relay.default.template"),
    *("$JS.API.>", ">", "identity-audit.>", "identity-audit.default.management"),
    *("identity-mail.>", "identity-mail.default.management"),
    *("_INBOX.>", "_INBOX_management.>", "_INBOX_template.>", "_INBOX_token.>", "identity-mirror.>"),
    *(f"identity.*.{kind}.>" for kind in ("member", "role", "permission", "member-permissions", "organization")),
)
STREAMS_OF_ALL = {
    "$JS.API.INFO",
    *(
        f"$JS.API.{action}.IDENTITY_{stream}"
        for action in ("STREAM.INFO", "STREAM.CREATE", "STREAM.MSG.GET", "DIRECT.GET")
        for stream in ("EVENTS", "INTERNAL", "STATE")
    ),
    *("subscribers.$JS.API.STREAM.CREATE.IDENTITY_EVENTS", "$JS.API.STREAM.INFO.IDENTITY_AUDIT"),
    "$JS.API.STREAM.INFO.IDENTITY_MAIL",
}
CREATING_AUDIT = "$JS.API.STREAM.CREATE.IDENTITY_AUDIT"
READING_AUDIT = {
    *("$JS.API.STREAM.MSG.GET.IDENTITY_AUDIT", "$JS.API.DIRECT.GET.IDENTITY_AUDIT"),
    *(f"$JS.API.CONSUMER.{action}.IDENTITY_AUDIT.a" for action in ("CREATE", "INFO", "MSG.NEXT", "DELETE")),
}
CREATING_MAIL = "$JS.API.STREAM.CREATE.IDENTITY_MAIL"
READING_MAIL = {each.replace("AUDIT", "MAIL") for each in READING_AUDIT} | {"$JS.ACK.IDENTITY_MAIL.a.1.1.1.1.1"}
CONSUMING_STATE = {f"$JS.API.CONSUMER.{action}.IDENTITY_STATE.a" for action in ("CREATE", "INFO", "MSG.NEXT", "DELETE")}
CONSUMING_INTERNAL = {each.replace("STATE", "INTERNAL") for each in CONSUMING_STATE}
CONSUMING_EVENTS = {each.replace("STATE", "EVENTS") for each in CONSUMING_STATE}


class TestNats:
    @staticmethod
    async def allowed(url: str) -> tuple[set[str], set[str]]:
        """Return which of the subjects above the user may publish to, and may subscribe to."""
        refused: list[str] = []

        async def keep(error: Exception) -> None:
            refused.append(str(error).lower())

        client = await nats.connect(url, error_cb=keep, allow_reconnect=False)
        for subject in PUBLISHED:
            await client.publish(subject, b"{}")
        await round_trip(client)
        published = {s for s in PUBLISHED if not any(f'publish to "{s.lower()}"' in error for error in refused)}
        assert len(published) + len(refused) == len(PUBLISHED)
        refused.clear()
        for subject in SUBSCRIBED:
            await client.subscribe(subject)
        await round_trip(client)
        subscribed = {s for s in SUBSCRIBED if not any(f'subscription to "{s.lower()}"' in error for error in refused)}
        assert len(subscribed) + len(refused) == len(SUBSCRIBED)
        await client.close()
        return published, subscribed

    async def test_what_each_user_may_publish_and_subscribe_to(self, cluster: Cluster) -> None:
        addresses = cluster.addresses
        assert await self.allowed(addresses.management_nats_url) == (
            {
                *("identity-internal.default.user.1", "identity-relay.default.management"),
                *("identity-rpc.default.claims-function", "identity-rpc.default.members", *STREAMS_OF_ALL),
                *("identity-rpc.default.organization-grants", "identity-rpc.default.search"),
                *("identity-rpc.default.organization-names", "identity-rpc.default.organization-invitations"),
                *("identity-audit.default.management", "identity-audit.default.subject-tokens"),
                *(CREATING_AUDIT, *READING_AUDIT),
                *("identity-mail.default.management", CREATING_MAIL, *READING_MAIL),
            },
            {
                *("_INBOX_management.>", "identity-relay.default.management"),
                *("identity-rpc.default.password-check", "identity-rpc.default.account-links"),
                *("identity-rpc.default.factors", "identity-rpc.default.mail-sending"),
            },
        )
        assert await self.allowed(addresses.template_nats_url) == (
            {
                *("identity.default.role.1", "identity-relay.default.template", *STREAMS_OF_ALL),
                *(*CONSUMING_INTERNAL, *CONSUMING_STATE),
                *("identity-audit.default.template", CREATING_AUDIT),
                *("identity-mail.default.template", CREATING_MAIL, "identity-rpc.default.mail-sending"),
            },
            {
                *("_INBOX_template.>", "identity-relay.default.template", "identity-rpc.default.members"),
                *("identity-rpc.default.organization-grants", "identity-rpc.default.search"),
                *("identity-rpc.default.organization-names", "identity-rpc.default.organization-invitations"),
                *(f"identity.*.{kind}.>" for kind in ("member", "role", "permission", "organization")),
            },
        )
        assert await self.allowed(addresses.token_nats_url) == (
            {
                *("identity-rpc.default.password-check", "identity-rpc.default.account-links"),
                "identity-rpc.default.factors",
                *(*STREAMS_OF_ALL, *CONSUMING_INTERNAL, *CONSUMING_EVENTS, *CONSUMING_STATE),
                *("identity-audit.default.exchanges", "identity-audit.default.token", CREATING_AUDIT),
            },
            {
                *("_INBOX_token.>", "identity-relay.>", "identity-rpc.default.claims-function"),
                *("identity-relay.default.management", "identity-relay.default.template"),
            },
        )
        assert await self.allowed(addresses.subscriber_nats_url) == (
            {
                *("$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.INFO.IDENTITY_EVENTS"),
                *(subject.replace("_STATE", "_EVENTS") for subject in CONSUMING_STATE),
                *("$JS.API.STREAM.MSG.GET.IDENTITY_EVENTS", "$JS.API.DIRECT.GET.IDENTITY_EVENTS"),
                *("$JS.API.CONSUMER.CREATE.IDENTITY_EVENTS", "$JS.API.CONSUMER.DURABLE.CREATE.IDENTITY_EVENTS.a"),
                *("$JS.ACK.IDENTITY_EVENTS.a.1.1.1.1.1", "$JS.FC.IDENTITY_EVENTS.a.1.1.1.1.1"),
            },
            {"_INBOX.>"},
        )

    async def test_the_services_and_the_subscriber_can_do_their_work(self, cluster: Cluster) -> None:
        urls = cluster.addresses
        management = await nats.connect(urls.management_nats_url, inbox_prefix="_INBOX_management")
        template = await nats.connect(urls.template_nats_url, inbox_prefix="_INBOX_template")
        token = await nats.connect(urls.token_nats_url, inbox_prefix="_INBOX_token")
        subscriber = await nats.connect(urls.subscriber_nats_url)
        try:
            for config in STREAMS:
                await token.jetstream().add_stream(config)
            await token.jetstream(prefix=SUBSCRIBERS_API).add_stream(SUBSCRIBERS_COPY)
            await management.jetstream().publish("identity-internal.work.user.1", b"user")
            await template.jetstream().publish("identity.work.role.1", b"role")

            directory = token.jetstream()
            filters = ["identity.work.>", "identity-internal.work.>"]
            await directory.add_consumer("IDENTITY_STATE", ConsumerConfig(name="directory", filter_subjects=filters))
            state = await directory.pull_subscribe_bind("directory", "IDENTITY_STATE")
            assert {(await state.fetch(1, WAIT_S))[0].data for _ in range(2)} == {b"user", b"role"}

            events = await subscriber.jetstream().pull_subscribe(
                "identity.work.>", durable="team", stream="IDENTITY_EVENTS"
            )
            (event,) = await events.fetch(1, WAIT_S)
            await event.ack_sync(WAIT_S)
            assert event.data == b"role"

            async def answer(question: Msg) -> None:
                await question.respond(b"right")

            for asking, answering, kind in (
                (token, management, "password-check"),
                (token, management, "account-links"),
                (token, management, "factors"),
                (management, token, "claims-function"),
                (template, management, "mail-sending"),
                (management, template, "members"),
                (management, template, "organization-grants"),
                (management, template, "organization-names"),
                (management, template, "search"),
            ):
                await answering.subscribe(f"identity-rpc.*.{kind}", cb=answer)
                await round_trip(answering)
                reply = await asking.request(f"identity-rpc.default.{kind}", b"?", timeout=WAIT_S)
                assert reply.data == b"right"
        finally:
            for client in (management, template, token, subscriber):
                await client.close()

    async def test_a_connection_needs_the_password(self, cluster: Cluster) -> None:
        for user in ("", "token:wrong@"):
            with pytest.raises(nats.errors.Error):
                await nats.connect(f"nats://{user}127.0.0.1:{cluster.servers.nats.port}", allow_reconnect=False)

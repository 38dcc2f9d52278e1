"""Servers elsewhere in place of the embedded ones."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import nats
import pytest
import redis

from all_in_one.embedded import EmbeddedError, EmbeddedServers, ExternalServers, ServerAddresses, external_or_embedded
from tests.support.embedded_servers import Cluster, execute

pytestmark = pytest.mark.heavy


class TestExternalServers:
    @pytest.fixture
    def environment(self, cluster: Cluster) -> Iterator[dict[str, str]]:
        stored = msgspec.json.decode((cluster.directory / "secrets.json").read_bytes())
        yield {
            "POSTGRES_URL": cluster.addresses.admin_postgres_url.replace("postgresql:", "postgresql+psycopg2:"),
            "REDIS_URL": cluster.addresses.admin_redis_url,
            "NATS_URL": f"nats://127.0.0.1:{cluster.servers.nats.port}",
            "NATS_PASSWORDS": msgspec.json.encode(stored["nats"]).decode(),
        }
        # The test changed the services' passwords; restore them for the other tests.
        own = ExternalServers(
            cluster.home / "restored",
            postgres_url=cluster.addresses.admin_postgres_url,
            redis_url=cluster.addresses.admin_redis_url,
            nats_url="nats://127.0.0.1",
            nats_passwords=stored["nats"],
        )
        (cluster.home / "restored").mkdir()
        shutil.copy(cluster.directory / "secrets.json", cluster.home / "restored")
        own.start()
        own.stop()
        shutil.rmtree(cluster.home / "restored")

    async def test_they_can_be_provisioned_repeatedly_with_the_same_passwords(
        self, home: Path, environment: dict[str, str]
    ) -> None:
        found: list[ServerAddresses] = []
        for _ in range(2):
            servers = external_or_embedded(environment, home / "servers")
            found.append(servers.start())
            servers.stop()
            assert await execute(found[-1].admin_postgres_url, "SELECT 1") == [(1,)]
            assert await execute(found[-1].template_database_url, "SELECT current_user::text") == [("template",)]
            with redis.Redis.from_url(found[-1].management_redis_url) as client:
                assert client.execute_command("PING")
            await (await nats.connect(found[-1].subscriber_nats_url)).close()
        assert found[0] == found[1]

    def test_naming_some_but_not_all_is_refused(self, home: Path, environment: dict[str, str]) -> None:
        del environment["NATS_PASSWORDS"]
        with pytest.raises(EmbeddedError) as refusal:
            external_or_embedded(environment, home / "servers")
        assert str(refusal.value) == (
            "POSTGRES_URL, REDIS_URL, NATS_URL is set, NATS_PASSWORDS is not: set all of them, or none"
        )

    @pytest.mark.parametrize(
        "passwords", ["{", "[]", '{"billing": "a"}', '{"management": "a"}', '{"management": "a:b@c"}']
    )
    def test_invalid_passwords_are_refused(self, home: Path, environment: dict[str, str], passwords: str) -> None:
        with pytest.raises(EmbeddedError, match=r"^NATS_PASSWORDS must be a JSON object"):
            external_or_embedded({**environment, "NATS_PASSWORDS": passwords}, home / "servers")

    @pytest.mark.parametrize(("name", "server"), [("POSTGRES_URL", "PostgreSQL"), ("REDIS_URL", "Redis")])
    @pytest.mark.parametrize("url", ["nonsense", "http://user:visible@127.0.0.1", "redis://visible:visible:1/0"])
    def test_an_invalid_address_is_reported_in_one_line(
        self, home: Path, environment: dict[str, str], name: str, server: str, url: str
    ) -> None:
        with pytest.raises(EmbeddedError, match=f"^the URL of {server} is not valid: [^\n]*$") as refusal:
            external_or_embedded({**environment, name: url}, home / "servers").start()
        assert "visible" not in str(refusal.value)

    def test_an_unreachable_server_is_reported_in_one_line_without_its_password(
        self, home: Path, environment: dict[str, str]
    ) -> None:
        environment["POSTGRES_URL"] = "postgresql://postgres:visible@127.0.0.1:1/postgres"
        with pytest.raises(EmbeddedError, match=r"^PostgreSQL at 127\.0\.0\.1:1: [^\n]*$") as refusal:
            external_or_embedded(environment, home / "servers").start()
        assert "visible" not in str(refusal.value)

    def test_without_any_they_are_embedded(self, home: Path) -> None:
        assert isinstance(external_or_embedded({"REDIS_URL": ""}, home / "servers"), EmbeddedServers)

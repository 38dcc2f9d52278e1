"""PostgreSQL, Redis and NATS in containers, described by the same variables as existing servers."""

import json
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import ExecWaitStrategy, LogMessageWaitStrategy

from provision import NATS_PERMISSIONS, nats_server_config


@contextmanager
def containers(directory: Path) -> Iterator[dict[str, str]]:
    """Start the three servers; yield ``POSTGRES_URL``, ``REDIS_URL``, ``NATS_URL`` and ``NATS_PASSWORDS``."""
    admin = secrets.token_hex(16)
    nats_passwords = {user: secrets.token_hex(16) for user in NATS_PERMISSIONS}
    config = directory / "nats.conf"
    config.write_text(nats_server_config(nats_passwords, port=4222, store_dir=Path("/tmp/jetstream"), host="0.0.0.0"))
    config.chmod(0o644)  # the server in the container runs as another user
    postgres = (
        DockerContainer("postgres:17")
        .with_env("POSTGRES_PASSWORD", admin)
        .with_command("postgres -c max_connections=200 -c fsync=off")
        .with_exposed_ports(5432)
        # Over TCP: while the image creates the database, a temporary server answers on a socket, and looks ready.
        .waiting_for(ExecWaitStrategy(["pg_isready", "--host", "127.0.0.1", "--username", "postgres"]))
    )
    redis = (
        DockerContainer("redis:8")
        .with_command(f"redis-server --requirepass {admin} --save '' --maxmemory-policy noeviction")
        .with_exposed_ports(6379)
        .waiting_for(LogMessageWaitStrategy("Ready to accept connections"))
    )
    nats = (
        DockerContainer("nats:2")
        .with_volume_mapping(str(config), "/nats.conf", "ro")
        .with_command("-c /nats.conf")
        .with_exposed_ports(4222)
        .waiting_for(LogMessageWaitStrategy("Server is ready"))
    )
    with ExitStack() as started:
        at = {}
        for container, port in ((postgres, 5432), (redis, 6379), (nats, 4222)):
            started.enter_context(container)
            at[port] = f"{container.get_container_host_ip()}:{container.get_exposed_port(port)}"
        yield {
            "POSTGRES_URL": f"postgresql://postgres:{admin}@{at[5432]}/postgres",
            "REDIS_URL": f"redis://:{admin}@{at[6379]}/0",
            "NATS_URL": f"nats://{at[4222]}",
            "NATS_PASSWORDS": json.dumps(nats_passwords),
        }

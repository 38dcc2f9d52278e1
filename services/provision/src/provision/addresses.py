"""Where each service finds its servers."""

import re
from urllib.parse import quote, urlsplit

import msgspec

from provision.passwords import Passwords
from provision.postgres import without_driver


class ServerAddresses(msgspec.Struct, frozen=True, kw_only=True):
    """The URLs of each service's servers; each carries that service's own user and random password."""

    management_database_url: str
    token_database_url: str
    template_database_url: str
    management_redis_url: str
    token_redis_url: str
    template_redis_url: str
    console_redis_url: str
    management_nats_url: str
    token_nats_url: str
    template_nats_url: str
    subscriber_nats_url: str
    admin_postgres_url: str
    admin_redis_url: str

    def __repr__(self) -> str:
        return f"ServerAddresses({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"

    def __rich_repr__(self) -> list[tuple[str, str]]:
        return [(name, re.sub(r"(//[^:/@]*):[^@]*@", r"\1:…@", getattr(self, name))) for name in self.__struct_fields__]


def addresses(*, postgres_url: str, redis_url: str, nats_url: str, passwords: Passwords) -> ServerAddresses:
    """Return the services' URLs on these servers.

    Args:
        postgres_url: Of a superuser; its options apply to that connection only.
        redis_url: Of a user with all permissions; by sentinels, with the name of the primary.
        nats_url: Without a user; of a cluster, the address of each server, with commas between them.
        passwords: The services' passwords.
    """
    postgres, cache = (_host(urlsplit(url).netloc) for url in (postgres_url, redis_url))
    redis_scheme, redis_query = urlsplit(redis_url).scheme, urlsplit(redis_url).query
    buses = [urlsplit(each.strip()) for each in nats_url.split(",")]

    def database(name: str) -> str:
        return f"postgresql+asyncpg://{name}:{quote(passwords.postgres[name], safe='')}@{postgres}/{name}"

    def redis_as(user: str) -> str:
        server = f"{redis_scheme}://{user}:{quote(passwords.redis[user], safe='')}@{cache}/0"
        return f"{server}?{redis_query}" if redis_query else server

    def nats_as(user: str) -> str:
        return ",".join(f"{bus.scheme}://{user}:{passwords.nats[user]}@{_host(bus.netloc)}" for bus in buses)

    return ServerAddresses(
        management_database_url=database("management"),
        token_database_url=database("token"),
        template_database_url=database("template"),
        management_redis_url=redis_as("management"),
        token_redis_url=redis_as("token"),
        template_redis_url=redis_as("template"),
        console_redis_url=redis_as("console"),
        management_nats_url=nats_as("management"),
        token_nats_url=nats_as("token"),
        template_nats_url=nats_as("template"),
        subscriber_nats_url=nats_as("subscriber"),
        admin_postgres_url=without_driver(postgres_url),
        admin_redis_url=redis_url,
    )


def nats_url(hosts: str) -> str:
    """Return the addresses of NATS servers, each given as ``host:port`` or as ``tls://host:port``, as one text."""
    return ",".join(each if "://" in each else f"nats://{each}" for each in map(str.strip, hosts.split(",")))


def _host(netloc: str) -> str:
    return netloc.rpartition("@")[2]

"""Where each service finds its servers."""

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
        urls = [(name, urlsplit(getattr(self, name))) for name in self.__struct_fields__]
        return [
            (name, url._replace(netloc=f"{url.username or ''}:…@{_host(url.netloc)}").geturl()) for name, url in urls
        ]


def addresses(*, postgres_url: str, redis_url: str, nats_url: str, passwords: Passwords) -> ServerAddresses:
    """Return the services' URLs on these servers.

    Args:
        postgres_url: Of a superuser; its options apply to that connection only.
        redis_url: Of a user with all permissions.
        nats_url: Without a user.
        passwords: The services' passwords.
    """
    postgres, cache, bus = (_host(urlsplit(url).netloc) for url in (postgres_url, redis_url, nats_url))
    redis_scheme, nats_scheme = urlsplit(redis_url).scheme, urlsplit(nats_url).scheme

    def database(name: str) -> str:
        return f"postgresql+asyncpg://{name}:{quote(passwords.postgres[name], safe='')}@{postgres}/{name}"

    def redis_as(user: str) -> str:
        return f"{redis_scheme}://{user}:{quote(passwords.redis[user], safe='')}@{cache}/0"

    def nats_as(user: str) -> str:
        return f"{nats_scheme}://{user}:{passwords.nats[user]}@{bus}"

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


def _host(netloc: str) -> str:
    return netloc.rpartition("@")[2]

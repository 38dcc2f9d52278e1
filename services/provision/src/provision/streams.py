"""The streams of the bus, for an operator: how many servers keep each, and which of them leads."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

import msgspec
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError

from provision.errors import ProvisionError
from provision.nats import OPERATOR, SERVICES, streams_of
from stead.nats_addresses import parse_nats_addresses
from stead.nats_client import NatsClient

_TIMEOUT_S: Final = 5.0
_IN_SYNC_S: Final = 300.0
_CHECK_S: Final = 0.25
_ATTEMPTS: Final = 20


class Stream(NamedTuple):
    """A stream; ``str()`` is one line about it.

    Attributes:
        account: The account that it is in.
        name: Its name.
        config: Its configuration, as the server reports it.
        leader: The server that leads it; empty without one, or outside of a cluster.
        followers: The other servers that keep it, and whether each has all of it.
    """

    account: str
    name: str
    config: dict[str, Any]
    leader: str
    followers: dict[str, bool]

    @property
    def is_in_sync(self) -> bool:
        """Whether it has a leader, and as many servers as configured have all of it."""
        is_complete = len(self.followers) + 1 == self.config["num_replicas"] and all(self.followers.values())
        return is_complete and (bool(self.leader) or self.config["num_replicas"] == 1)

    @property
    def origins(self) -> set[str]:
        """The services' streams that this one copies."""
        mirror = self.config.get("mirror")
        return {each["name"] for each in (*self.config.get("sources", ()), *([mirror] if mirror else ()))}

    def __str__(self) -> str:
        followers = [name if is_current else f"{name} (behind)" for name, is_current in self.followers.items()]
        of = ", ".join((f"leader {self.leader or 'unknown'}", *followers))
        return f"{self.account} {self.name}: {self.config['num_replicas']} replicas ({of})"


class _NoAnswerError(ProvisionError):
    """A stream, or the cluster, has no leader at the moment."""


def change_streams(
    url: str, passwords: Mapping[str, str], *, replicas: int | None = None, step_down: bool = False
) -> list[Stream]:
    """Return the streams in all accounts, after these changes. Blocks; runs its own event loop.

    Args:
        url: The addresses of NATS, without a user.
        passwords: The password of each user.
        replicas: The number of servers that keep each stream from now on; waits until all of them have all of it.
        step_down: Whether another server becomes the leader of each stream.

    Returns:
        All of them. After a change the copies have other leaders than what they copy.

    Raises:
        ProvisionError: NATS does not answer, or refuses.
    """
    return asyncio.run(_change(url, passwords, replicas=replicas, step_down=step_down))


async def _change(url: str, passwords: Mapping[str, str], *, replicas: int | None, step_down: bool) -> list[Stream]:
    client = await _connected(url, passwords)
    try:
        streams = await _read(client, streams_of(passwords))
        if replicas is not None:
            for stream in streams:
                if stream.config["num_replicas"] != replicas:
                    config = msgspec.json.encode(stream.config | {"num_replicas": replicas})
                    await _request(client, stream.account, f"STREAM.UPDATE.{stream.name}", config)
            streams = await _in_sync(client, streams_of(passwords))
        if step_down:
            streams = await _step_down(client, streams)
        return streams if replicas is None and not step_down else await _lead_copies_elsewhere(client, streams)
    finally:
        await client.close()


async def _lead_copies_elsewhere(client: Client, streams: list[Stream]) -> list[Stream]:
    """Have other servers lead the copies than the originals.

    A copy that gets a new leader before its original has one may wait for 45 s.
    """
    for _ in range(_ATTEMPTS):
        leaders = {stream.name: stream.leader for stream in streams if stream.account == SERVICES}
        together = [stream for stream in streams if stream.leader in {leaders.get(each) for each in stream.origins}]
        if not together or not all(stream.followers for stream in streams):
            break
        await _step_down(client, together)
        streams = await _in_sync(client, [(stream.account, stream.name) for stream in streams])
    return streams


async def _step_down(client: Client, streams: Sequence[Stream]) -> list[Stream]:
    for stream in streams:
        await _request(client, stream.account, f"STREAM.LEADER.STEPDOWN.{stream.name}")
    return await _in_sync(client, [(stream.account, stream.name) for stream in streams])


async def _connected(url: str, passwords: Mapping[str, str]) -> Client:
    reasons: list[str] = []

    async def keep(error: Exception) -> None:
        reasons.append(str(error) or type(error).__name__)

    client = NatsClient()
    try:
        await client.connect(
            [*parse_nats_addresses(url).servers],
            user=OPERATOR,
            password=passwords[OPERATOR],
            name=OPERATOR,
            inbox_prefix=f"_INBOX_{OPERATOR}",
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            error_cb=keep,
        )
    except KeyError:
        raise ProvisionError(f"there is no password of the user {OPERATOR} of NATS") from None
    except ValueError as error:
        raise ProvisionError(f"the address of NATS is not valid: {error}") from None
    except (NatsError, OSError, TimeoutError) as error:
        reason = reasons[-1] if reasons else str(error)
        raise ProvisionError(f"NATS does not answer, or refuses the user {OPERATOR}: {reason}") from None
    return client


async def _in_sync(client: Client, streams: Sequence[tuple[str, str]]) -> list[Stream]:
    """Return the streams once all their servers have all of them."""
    try:
        async with asyncio.timeout(_IN_SYNC_S):
            while True:
                with suppress(_NoAnswerError):  # a stream without a leader, for a moment
                    found = await _read(client, streams)
                    if all(stream.is_in_sync for stream in found):
                        return found
                await asyncio.sleep(_CHECK_S)
    except TimeoutError:
        raise ProvisionError(f"after {_IN_SYNC_S:g} s not every server has all of every stream: look again") from None


async def _read(client: Client, streams: Sequence[tuple[str, str]]) -> list[Stream]:
    """Return those of the streams that exist."""
    found = []
    for account, name in streams:
        info = await _request(client, account, f"STREAM.INFO.{name}", missing={})
        if info:
            cluster = info.get("cluster") or {}
            followers = {each["name"]: bool(each["current"]) for each in cluster.get("replicas") or []}
            found.append(Stream(account, name, info["config"], cluster.get("leader", ""), followers))
    return found


async def _request(
    client: Client, account: str, request: str, body: bytes = b"", *, missing: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return JetStream's answer, or ``missing`` if there is no such stream.

    Raises:
        ProvisionError: It refuses, or does not answer.
    """
    try:
        message = await client.request(f"{account}.$JS.API.{request}", body, timeout=_TIMEOUT_S)
    except NoRespondersError:
        raise ProvisionError("NATS has no way for the operator: render its configuration with this version") from None
    except (NatsError, OSError, TimeoutError) as error:
        raise _NoAnswerError(f"{account} {request}: no answer ({type(error).__name__})") from None
    answer: dict[str, Any] = msgspec.json.decode(message.data)
    refusal = answer.get("error")
    if refusal is None:
        return answer
    if missing is not None and refusal.get("code") == 404:
        return missing
    raise ProvisionError(f"{account} {request}: {refusal.get('description')}")

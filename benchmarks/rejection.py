"""How soon after an acknowledged change a token is refused: at introspection, and by verifiers that follow the feed.

An impersonation is ended; a person signs in at a provider without the group that gave a role; a permission is removed
from a role that many members have. The time runs from the answer to the change, and at a sign-in from the provider's
answer. Introspection requests do not name the revision of the change: with it, the first one would wait for it.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any, Final, Self

import httpx2 as httpx
import msgspec

from benchmarks.scenarios import RESOURCE, Client, Parties
from identity_common.identifiers import new_id
from provision import ServerAddresses
from stead import AccessTokenVerifier, ManagementClient, NotValidFeed, TokenInvalid, exchange_subject_token
from tests.support.mapped_groups import MappedGroups, NotSignedIn
from tests.support.provider import Provider
from tests.support.template_tables import TemplateTables
from tests.support.waiting import eventually

_TENANT: Final = "default"
_TARGET_MS: Final = 1000
_BUCKETS_MS: Final = (10, 25, 50, 100, 250, 500, 1000)
_POLL_S: Final = 0.001
_TIMEOUT_S: Final = 60
_SCOPES: Final = "read:orders write:orders"

Check = Callable[[str], bool]
"""Whether a token is refused."""


class Place(msgspec.Struct, frozen=True):
    """The system whose tokens are measured.

    Attributes:
        addresses: The URLs of its servers.
        token_url: Address of token-service.
        issuer: As its tokens name it.
        parties: The clients that request tokens, and the user of the tokens.
    """

    addresses: ServerAddresses
    token_url: str
    issuer: str
    parties: Parties


class Tokens:
    """Gets tokens, and checks on each path whether one is refused; a context manager that follows the feeds."""

    def __init__(self, place: Place, management: ManagementClient) -> None:
        self.management = management
        self._place = place
        self._http = httpx.Client(timeout=30)
        application = place.parties.application
        reading: dict[str, Any] = {
            "issuer": place.issuer,
            "client_id": application.id,
            "client_secret": application.secret,
        }
        self.feeds = {
            "SDK over HTTP": NotValidFeed.over_http(place.token_url, **reading),
            "SDK over NATS": NotValidFeed.over_nats(
                place.addresses.subscriber_nats_url, base_url=place.token_url, **reading
            ),
        }
        self._following = ExitStack()

    def __enter__(self) -> Self:
        self._following.enter_context(self._http)
        for feed in self.feeds.values():
            self._following.enter_context(feed)
        if not all(feed.wait_until_fresh(_TIMEOUT_S) for feed in self.feeds.values()):
            raise RuntimeError("a feed does not become fresh")
        return self

    def __exit__(self, *exception: object) -> None:
        self._following.close()

    def get(self, user_id: str, *, organization_id: str | None = None, scope: str = _SCOPES) -> tuple[str, str]:
        """Return an impersonation and its access token, for the resource or for an organization."""
        begun = self.management.subject_tokens.create(user_id)
        application = self._place.parties.application
        issued = exchange_subject_token(
            self._place.token_url,
            client_id=application.id,
            client_secret=application.secret,
            subject_token=begun.token,
            resource=RESOURCE if organization_id is None else None,
            organization_id=organization_id,
            scope=scope,
            revision=self.management.last_revision,
            http=self._http,
        )
        return begun.impersonation_id, issued.access_token

    def is_inactive(self, token: str) -> bool:
        """Whether introspection says that a token is not active."""
        client: Client = self._place.parties.application
        answer = self._http.post(
            f"{self._place.token_url}/oidc/token/introspection",
            data={"token": token},
            auth=(client.id, client.secret),
        )
        return not answer.raise_for_status().json()["active"]

    def verifier(self, path: str, audience: str, *, strict: bool = False) -> Check:
        """Return the check whether the SDK's verifier refuses a token."""
        verifier = AccessTokenVerifier(
            issuer=self._place.issuer,
            jwks_url=f"{self._place.token_url}/oidc/jwks",
            audience=audience,
            feed=self.feeds[path],
            reject_stale_permissions=strict,
        )

        def refuses(token: str) -> bool:
            try:
                verifier.verify(token)
            except TokenInvalid:
                return True
            return False

        return refuses


def lines(
    place: Place, management: ManagementClient, *, ends: int, members: Sequence[int], rounds: int
) -> Iterator[str]:
    """End impersonations, lose groups and edit roles; yield the results line by line.

    Args:
        place: The system.
        management: A client of its API.
        ends: How many impersonations, and how many sign-ins without the group.
        members: How many members the edited role has, one measurement for each.
        rounds: How often each role is edited.
    """
    with Tokens(place, management) as tokens:
        yield from _ended(tokens, place.parties.user_id, ends)
        yield from _lost_group(tokens, place, ends)
        for count in members:
            yield asyncio.run(_edited(tokens, place, count, rounds))


def _ended(tokens: Tokens, user_id: str, ends: int) -> Iterator[str]:
    paths: dict[str, Check] = {"introspection": tokens.is_inactive}
    paths |= {path: tokens.verifier(path, RESOURCE) for path in tokens.feeds}
    times: dict[str, list[float]] = {path: [] for path in paths}
    for _ in range(ends):
        impersonation_id, token = tokens.get(user_id)
        if any(refuses(token) for refuses in paths.values()):
            raise RuntimeError("a token was refused before its impersonation ended")
        tokens.management.impersonations.end(impersonation_id)
        for path, taken_ms in _until_refused(paths, token).items():
            times[path].append(taken_ms)
    yield f"{ends} impersonations ended, from the answer to the first rejection, ms"
    yield from _table(times)


def _lost_group(tokens: Tokens, place: Place, sign_ins: int) -> Iterator[str]:
    """Sign in with a group that gives a role, and again without it, while a verifier checks the first token."""
    group = "engineers"
    with Provider() as provider, ThreadPoolExecutor(1) as pool:
        person = MappedGroups(tokens.management, provider, group)
        eventually(lambda: person.is_known(place.token_url))
        audience = f"urn:service:organization:{person.organization}"
        paths = {path: tokens.verifier(path, audience, strict=True) for path in tokens.feeds}
        times: dict[str, list[float]] = {path: [] for path in paths}
        for _ in range(sign_ins):
            person.groups = [group]
            token, scopes = person.organization_token(place.token_url)
            if scopes != {person.permissions[group]} or any(refuses(token) for refuses in paths.values()):
                raise RuntimeError("a token was refused before the group was lost, or had no permission")
            person.groups = []
            signing_in = pool.submit(person.sign_in, place.token_url)
            refused_at = _refused_at(paths, token)
            with suppress(NotSignedIn):  # the groups were not applied within the time that a code waits for them
                signing_in.result()
            for path, at in refused_at.items():
                times[path].append((at - person.answered_at) * 1000)
    yield f"{sign_ins} sign-ins without a group that gave a role, from the provider's answer to the first rejection, ms"
    yield from _table(times)


def _table(times: Mapping[str, list[float]]) -> Iterator[str]:
    yield f"{'path':16} {'p50':>6} {'p99':>6} {'max':>6}  " + " ".join(f"{f'≤{each}':>6}" for each in _BUCKETS_MS)
    for path, found in times.items():
        found.sort()
        p50, p99 = (found[int((len(found) - 1) * share)] for share in (0.5, 0.99))
        within = [sum(each <= bucket for each in found) for bucket in _BUCKETS_MS]
        counts = [after - before for before, after in zip([0, *within], within, strict=False)]
        verdict = "" if p99 <= _TARGET_MS else f"  over {_TARGET_MS} ms"
        yield f"{path:16} {p50:6.0f} {p99:6.0f} {found[-1]:6.0f}  " + " ".join(f"{each:6}" for each in counts) + verdict


async def _edited(tokens: Tokens, place: Place, members: int, rounds: int) -> str:
    """Remove a permission from a role of this many members; measure when the token of one of them is refused."""
    management = tokens.management
    names = [f"bench:{new_id()}" for _ in range(rounds)]
    permissions = [management.organization_permissions.create(name).id for name in names]
    role = management.organization_roles.create(f"bench {new_id()}", permission_ids=permissions).id
    organization, user_id = management.organizations.create("bench").id, place.parties.user_id
    management.organizations.add_users(organization, [user_id])
    management.organizations.replace_user_roles(organization, user_id, [role])
    addresses = place.addresses
    async with TemplateTables(addresses.template_database_url, addresses.subscriber_nats_url, _TENANT) as tables:
        if members > 1:
            await tables.members(organization, members - 1, role, quietly=True)
        await tables.database.execute("ANALYZE members")
        audience = f"urn:service:organization:{organization}"
        paths = {path: tokens.verifier(path, audience, strict=True) for path in tokens.feeds}
        times: dict[str, list[float]] = {path: [] for path in paths}
        for number in range(rounds):
            _, token = await asyncio.to_thread(
                tokens.get, user_id, organization_id=organization, scope=" ".join(names[number:])
            )
            management.organization_roles.replace_permissions(role, permissions[number + 1 :])
            for path, taken_ms in (await asyncio.to_thread(_until_refused, paths, token)).items():
                times[path].append(taken_ms)
            await tables.settled(_TIMEOUT_S)
    return f"a permission removed from a role of {members:,} members, at verifiers that reject stale permissions: " + (
        ", ".join(f"{path} {max(found):.0f} ms" for path, found in times.items())
    )


def _until_refused(paths: dict[str, Check], token: str) -> dict[str, float]:
    """Return for each path how long a token was still accepted, milliseconds."""
    begun_at = time.monotonic()
    return {path: (at - begun_at) * 1000 for path, at in _refused_at(paths, token).items()}


def _refused_at(paths: dict[str, Check], token: str) -> dict[str, float]:
    """Return for each path when a token was first refused, by the monotonic clock."""
    deadline = time.monotonic() + _TIMEOUT_S
    waiting, refused = dict(paths), dict[str, float]()
    while waiting:
        for path, refuses in list(waiting.items()):
            if refuses(token):
                refused[path] = time.monotonic()
                del waiting[path]
        if time.monotonic() > deadline:
            raise RuntimeError(f"still accepted: {', '.join(waiting)}")
        time.sleep(_POLL_S)
    return refused

"""Codes, authorizations and refresh tokens in real stores: reuse is detected, also under races."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from redis.asyncio import Redis
from sqlalchemy import text

from identity_common.failures import StoreUnavailable
from identity_common.identifiers import new_id
from provision import ServerAddresses
from tests.support.authorizing import Stores, Verifier, begin, code_for, issue, opened, until_a_transaction_waits
from tests.support.running_stack import RunningStack
from tests.support.settable_clock import Time
from token_service.authorizations import Authorization, Code, Consented, Consents
from token_service.authorizations.codes import CODE_TTL_S, MARK_TTL_S

CONSENTED = Consented(
    scopes=frozenset({"openid", "offline_access"}),
    resource_scopes={"https://things.example.com": frozenset({"read:things"}), "https://bare.example.com": frozenset()},
    organization_permissions=frozenset({"manage:members"}),
)
LATER = 10**15


class Replicas:
    """Two replicas of the stores, in their own tenant."""

    def __init__(self, one: Stores, other: Stores, tenant_id: str, time: Time, administrator: Redis) -> None:  # type: ignore[type-arg]
        self.one = one
        self.other = other
        self.tenant_id = tenant_id
        self.time = time
        self.administrator = administrator

    def both(self, times: int = 1) -> list[Stores]:
        return [self.one, self.other] * times

    async def begun(self, **changes: Any) -> Code:
        """Begin an authorization; return its code."""
        code = new_code(**changes)
        await begin(self.one, code.authorization)
        return code

    async def redeem(self, stores: Stores, code: Code) -> tuple[bool, str | None]:
        """Redeem a code as the grant does; return whether it succeeded, and the refresh token."""
        return await stores.refresh_tokens.redeem(
            code.authorization.id, tokens_expire_at=self.time() + 3_600_000, issued_at=0, expires_at=LATER
        )

    async def family(self, **changes: Any) -> tuple[Authorization, str]:
        """Begin an authorization; return it and its first refresh token."""
        code = await self.begun(**changes)
        redeemed, refresh_token = await self.redeem(self.one, code)
        assert redeemed
        assert refresh_token is not None
        return code.authorization, refresh_token

    async def use(self, stores: Stores, refresh_token: str) -> str | None:
        """Use a refresh token as the grant does; return its successor."""
        found = await stores.refresh_tokens.find(refresh_token, application_id="app")
        if found is None or await stores.refresh_tokens.is_replayed(found):
            return None
        return await stores.refresh_tokens.rotate(
            found, tokens_expire_at=self.time() + 3_600_000, issued_at=0, expires_at=LATER
        )

    @property
    def consents(self) -> Consents:
        return Consents(self.one.engine, tenant_id=self.tenant_id)

    async def is_alive(self, refresh_token: str) -> bool:
        return await self.one.refresh_tokens.find(refresh_token, application_id="app") is not None


@pytest_asyncio.fixture
async def replicas(stack: RunningStack, servers: ServerAddresses) -> AsyncIterator[Replicas]:
    tenant_id, time = f"t{secrets.token_hex(6)}", Time()
    async with AsyncExitStack() as stacked:
        one, other = [
            await stacked.enter_async_context(
                opened(
                    database_url=servers.token_database_url,
                    redis_url=servers.token_redis_url,
                    tenant_id=tenant_id,
                    clock=time,
                )
            )
            for _ in range(2)
        ]
        administrator: Redis = Redis.from_url(servers.admin_redis_url)  # type: ignore[type-arg]
        yield Replicas(one, other, tenant_id, time, administrator)
        await administrator.aclose()


def new_code(**changes: Any) -> Code:
    return code_for("user", "app", Verifier(), **{"consented": CONSENTED, **changes})


async def results(calls: list[Awaitable[Any]]) -> list[Any]:
    return list(await asyncio.gather(*calls))


async def test_only_the_first_use_of_a_code_is_marked_as_such(replicas: Replicas) -> None:
    """RFC 6749 section 4.1.2."""
    code = new_code(nonce="n", session_id="s")
    secret = await replicas.one.codes.issue(code)
    uses = [await stores.codes.use(secret, application_id="app") for stores in replicas.both()]

    assert [(use.code, use.is_first_use) for use in uses if use] == [(code, True), (code, False)]


async def test_exactly_one_of_many_concurrent_uses_is_the_first(replicas: Replicas) -> None:
    """Raced over replicas, twenty times."""
    for _ in range(20):
        secret = await replicas.one.codes.issue(new_code())
        uses = await results([stores.codes.use(secret, application_id="app") for stores in replicas.both(8)])
        assert sorted(use.is_first_use for use in uses) == [False] * 15 + [True]


async def test_another_client_can_neither_use_nor_spend_a_code(replicas: Replicas) -> None:
    secret = await replicas.one.codes.issue(new_code())

    assert await replicas.one.codes.use(secret, application_id="other") is None
    use = await replicas.one.codes.use(secret, application_id="app")
    assert use is not None
    assert use.is_first_use


async def test_the_stores_hold_no_code_or_refresh_token_in_plain_text(replicas: Replicas) -> None:
    """Neither a code nor a refresh token can be read from its store; a code expires on its own."""
    secret = await replicas.one.codes.issue(new_code())
    _, refresh_token = await replicas.family()
    (key,) = [key async for key in replicas.administrator.scan_iter(f"identity:{replicas.tenant_id}:code:*")]
    stored = await replicas.administrator.get(key) or b""
    async with replicas.one.engine.connect() as connection:
        rows = str((await connection.execute(text("SELECT * FROM refresh_tokens"))).all())

    assert secret not in f"{key!r} {stored!r}"
    assert refresh_token not in rows
    assert 50 < await replicas.administrator.ttl(key) <= 60
    await replicas.one.codes.use(secret, application_id="app")
    assert 60 < await replicas.administrator.ttl(key) <= MARK_TTL_S


@pytest.mark.parametrize(
    "text",
    ["", "cod_", "cod_x", "ref_x", "sub_x", "cod_" + "x" * 50_000, "cod_\udc80".encode(errors="replace").decode()],
)
async def test_a_malformed_or_unknown_code_is_not_found(replicas: Replicas, text: str) -> None:
    assert await replicas.one.codes.use(text, application_id="app") is None
    assert await replicas.one.refresh_tokens.find(text, application_id="app") is None


async def test_a_code_is_redeemed_once(replicas: Replicas) -> None:
    """A Redis that failed over to an older copy brings a used code back; the row in the database remembers."""
    code = await replicas.begun()
    redemptions = await results([replicas.redeem(stores, code) for stores in replicas.both(4)])

    assert sorted(redeemed for redeemed, _ in redemptions) == [False] * 7 + [True]
    assert sorted(token is not None for _, token in redemptions) == [False] * 7 + [True]


async def test_reuse_ends_the_authorization_whichever_use_comes_first(replicas: Replicas) -> None:
    """RFC 6749 section 4.1.2, raced: after both, no refresh token is alive, and every issued token is revoked."""
    for _ in range(20):
        code = await replicas.begun()
        (redeemed, refresh_token), was_alive = await results(
            [replicas.redeem(replicas.one, code), replicas.other.authorizations.end(code.authorization.id)]
        )
        assert was_alive
        assert not await replicas.other.authorizations.end(code.authorization.id)
        if redeemed:
            assert refresh_token is not None
            assert not await replicas.is_alive(refresh_token)
            assert await replicas.other.revocations.is_revoked(f"{code.authorization.id}.x", "kid")


async def test_the_end_of_an_authorization_ends_its_code(replicas: Replicas) -> None:
    """Also before its redemption: by withdrawal of consent, by signing out, by reuse that is detected first."""
    ending = replicas.other.authorizations
    for end in (
        lambda _: ending.withdraw_consent("user", "app"),
        lambda _: ending.end_of_session("s"),
        lambda code: ending.end(code.authorization.id),
    ):
        code = await replicas.begun(session_id="s")
        await end(code)
        assert await replicas.redeem(replicas.one, code) == (False, None)
        assert not await replicas.one.revocations.is_revoked(f"{code.authorization.id}.x", "kid")  # no token was issued


async def test_a_withdrawal_waits_for_an_authorization_in_progress_and_ends_it(replicas: Replicas) -> None:
    """Neither misses the other, although a consent that is not stored yet has no row to lock."""
    code = new_code()
    async with replicas.one.authorizations.agreement("user", "app") as agreement:
        await agreement.begin(code.authorization, implicit=False)
        withdrawal = asyncio.create_task(replicas.other.authorizations.withdraw_consent("user", "app"))
        await until_a_transaction_waits(agreement._connection)

    assert await withdrawal
    assert await replicas.redeem(replicas.one, code) == (False, None)
    assert (await replicas.consents.find("user", "app")).everything() == frozenset()


@pytest.mark.heavy
async def test_no_authorization_outlives_its_consent(replicas: Replicas) -> None:
    """Raced over replicas: an authorization that begins after the withdrawal stores its consent in its transaction."""
    for _ in range(40):
        codes = [new_code() for _ in range(2)]

        async def sign_in(stores: Stores, code: Code) -> str | None:
            secret = await issue(stores, code)
            use = await stores.codes.use(secret, application_id="app")
            assert use is not None
            _, refresh_token = await replicas.redeem(stores, use.code)
            return refresh_token

        *refresh_tokens, _ = await results(
            [
                *(sign_in(stores, code) for stores, code in zip(replicas.both(), codes, strict=True)),
                replicas.other.authorizations.withdraw_consent("user", "app"),
            ]
        )
        are_alive = [await replicas.is_alive(token) for token in refresh_tokens if token]
        is_consented = (await replicas.consents.find("user", "app")).covers(CONSENTED)
        assert is_consented or not any(are_alive)


async def test_a_refresh_token_leads_to_its_whole_authorization(replicas: Replicas) -> None:
    authorization, refresh_token = await replicas.family(session_id="s")
    found = await replicas.other.refresh_tokens.find(refresh_token, application_id="app")

    assert found is not None
    assert (found.authorization, found.generation, found.rotated_at) == (authorization, 0, None)
    assert await replicas.one.refresh_tokens.find(refresh_token, application_id="other") is None


async def test_an_expired_refresh_token_is_not_found(replicas: Replicas) -> None:
    _, first = await replicas.family()
    replicas.time.ms = LATER - 1
    assert await replicas.is_alive(first)
    replicas.time.ms = LATER
    assert not await replicas.is_alive(first)


async def test_reuse_of_a_rotated_token_yields_a_sibling_within_the_grace_and_ends_the_family_after_it(
    replicas: Replicas,
) -> None:
    """RFC 9700 section 4.14.2: the answer may have been lost; after the grace period it is a replay."""
    authorization, first = await replicas.family()
    second = await replicas.use(replicas.one, first)
    replicas.time.pass_s(9)
    sibling = await replicas.use(replicas.other, first)
    assert second
    assert sibling
    assert len({first, second, sibling}) == 3
    replicas.time.pass_s(2)

    assert await replicas.use(replicas.one, first) is None
    assert [await replicas.is_alive(token) for token in (first, second, sibling)] == [False] * 3
    assert await replicas.other.revocations.is_revoked(f"{authorization.id}.x", "kid")


async def test_the_later_of_two_siblings_ends_the_family(replicas: Replicas) -> None:
    """A thief and the owner cannot both continue, in whatever order they come."""
    _, first = await replicas.family()
    owner, thief = await replicas.use(replicas.one, first), await replicas.use(replicas.one, first)
    assert owner
    assert thief
    replicas.time.pass_s(3600)
    third = await replicas.use(replicas.one, owner)
    assert third
    replicas.time.pass_s(11)

    assert await replicas.use(replicas.other, thief) is None
    assert not await replicas.is_alive(third)


async def test_a_late_sibling_inherits_the_rotation_time_of_its_generation(replicas: Replicas) -> None:
    """No chain of siblings outlives the grace period: a late sibling is as old as the first one."""
    _, first = await replicas.family()
    second = await replicas.use(replicas.one, first)
    assert second
    third = await replicas.use(replicas.one, second)
    replicas.time.pass_s(8)
    late = await replicas.use(replicas.one, first)
    assert third
    assert late
    replicas.time.pass_s(3)

    assert await replicas.use(replicas.one, late) is None
    assert not await replicas.is_alive(third)


@pytest.mark.heavy
async def test_concurrent_uses_never_leave_two_live_chains(replicas: Replicas) -> None:
    """Raced over replicas: all get siblings of one generation; one continues, and any other ends the family."""
    for _ in range(5):
        _, first = await replicas.family()
        siblings = await results([replicas.use(stores, first) for stores in replicas.both(4)])
        assert all(siblings)
        assert len(set(siblings)) == 8
        replicas.time.pass_s(60)
        successor = await replicas.use(replicas.one, siblings[3])
        assert successor
        replicas.time.pass_s(60)
        assert await replicas.use(replicas.other, siblings[5]) is None
        assert not await replicas.is_alive(successor)


async def test_a_use_that_is_delayed_beyond_the_grace_is_a_replay(replicas: Replicas) -> None:
    """The state read before the wait for the family's lock does not count."""
    _, first = await replicas.family()
    found = await replicas.other.refresh_tokens.find(first, application_id="app")
    assert found is not None
    second = await replicas.use(replicas.one, first)
    assert second
    replicas.time.pass_s(11)

    assert await replicas.other.refresh_tokens.rotate(found, tokens_expire_at=0, issued_at=0, expires_at=LATER) is None
    assert not await replicas.is_alive(second)


@pytest.mark.parametrize("rotates", [True, False])
async def test_a_use_that_waits_while_its_authorization_ends_yields_nothing(replicas: Replicas, rotates: bool) -> None:
    """An access token that is signed afterwards might outlive the revocation of its authorization."""
    authorization, refresh_token = await replicas.family()
    found = await replicas.other.refresh_tokens.find(refresh_token, application_id="app")
    assert found is not None
    using: Awaitable[str | bool | None]
    if rotates:
        using = replicas.other.refresh_tokens.rotate(found, tokens_expire_at=LATER, issued_at=0, expires_at=LATER)
    else:
        using = replicas.other.refresh_tokens.keep(found, tokens_expire_at=LATER)
    async with replicas.one.engine.begin() as connection:
        end = text("UPDATE authorizations SET ended_at = :now WHERE id = :id")
        await connection.execute(end, {"now": replicas.time(), "id": authorization.id})
        used = asyncio.ensure_future(using)
        await until_a_transaction_waits(connection)

    assert not await used


@pytest.mark.parametrize("second_ttl_ms", [60_000, 7_200_000])
async def test_a_revoked_authorization_is_kept_until_its_last_token_expires(
    replicas: Replicas, second_ttl_ms: int
) -> None:
    """And for two minutes more: verifiers accept a token for one minute after its expiry, and clocks differ."""
    authorization, refresh_token = await replicas.family()
    found = await replicas.other.refresh_tokens.find(refresh_token, application_id="app")
    assert found is not None
    second = replicas.time() + second_ttl_ms
    assert await replicas.other.refresh_tokens.rotate(found, tokens_expire_at=second, issued_at=0, expires_at=LATER)
    await replicas.other.authorizations.end(authorization.id)

    async with replicas.one.engine.connect() as connection:
        kept = text("SELECT id, expires_at FROM revocations WHERE tenant_id = :tenant")
        rows = (await connection.execute(kept, {"tenant": replicas.tenant_id})).all()
    assert rows == [(authorization.id, max(replicas.time() + 3_600_000, second) + 120_000)]


async def test_the_end_of_an_authorization_leaves_the_others_alive(replicas: Replicas) -> None:
    tokens = {}
    for user, app, session in (("user", "app", "s1"), ("user", "app", "s2"), ("user", "b", "s1"), ("u2", "app", "s3")):
        code = code_for(user, app, Verifier(), consented=CONSENTED, session_id=session)
        await begin(replicas.one, code.authorization)
        _, tokens[user, app, session] = await replicas.redeem(replicas.one, code)

    async def alive() -> list[tuple[str, str, str]]:
        return [
            who
            for who, token in tokens.items()
            if await replicas.one.refresh_tokens.find(token or "", application_id=who[1])
        ]

    ending = replicas.one.authorizations
    await ending.end_of_session("s1")
    assert await alive() == [("user", "app", "s2"), ("u2", "app", "s3")]
    await ending.withdraw_consent("user", "app")
    assert await alive() == [("u2", "app", "s3")]


async def test_one_of_several_concurrent_choices_of_organizations_is_stored_whole(replicas: Replicas) -> None:
    choices = [frozenset({f"o{number}", f"p{number}"}) for number in range(8)]

    async def pick(stores: Stores, organizations: frozenset[str]) -> None:
        code = code_for("user", "app", Verifier(), consented=Consented(organizations=organizations))
        async with stores.authorizations.agreement("user", "app", exclusive=True) as agreement:
            await agreement.begin(code.authorization, implicit=False)

    await asyncio.gather(*(pick(stores, choice) for stores, choice in zip(replicas.both(4), choices, strict=True)))
    assert (await replicas.consents.find("user", "app")).organizations in choices


async def test_consents_accumulate_and_are_withdrawn_together(replicas: Replicas) -> None:
    consents = replicas.consents
    assert await consents.find("user", "app") == Consented(organizations=frozenset())
    await begin(replicas.one, code_for("user", "other", Verifier(), consented=CONSENTED).authorization)
    for consented in (
        CONSENTED,
        Consented(scopes=frozenset({"email"}), organizations=frozenset({"o1"})),
        Consented(organizations=frozenset({"o2"})),
    ):
        await replicas.begun(consented=consented)
    assert [each.application_id for each in await consents.of_user("user")] == ["app", "other"]
    found = await consents.find("user", "app")

    assert found == Consented(
        scopes=frozenset({"openid", "offline_access", "email"}),
        resource_scopes={"https://things.example.com": frozenset({"read:things"})},
        organization_permissions=frozenset({"manage:members"}),
        organizations=frozenset({"o2"}),
    )
    assert found.covers(CONSENTED)
    assert not found.covers(Consented(resource_scopes={"https://other.example.com": frozenset({"read:things"})}))
    await replicas.one.authorizations.withdraw_consent("user", "app")
    assert await consents.find("user", "app") == Consented(organizations=frozenset())
    assert (await consents.find("user", "other")).scopes == CONSENTED.scopes


async def test_an_authorization_whose_tokens_have_expired_is_not_revoked(replicas: Replicas) -> None:
    """Signing out days later adds no key to Redis."""
    authorization, refresh_token = await replicas.family()
    replicas.time.pass_s(3600 + 121)
    await replicas.one.authorizations.end(authorization.id)

    assert not await replicas.is_alive(refresh_token)
    assert not await replicas.one.revocations.is_revoked(f"{authorization.id}.x", "kid")


async def test_only_finished_authorizations_are_deleted(replicas: Replicas) -> None:
    """An authorization is kept while its code can be used or replayed, a refresh token while it can be used."""
    unredeemed, redeemed = await replicas.begun(), await replicas.begun()
    await replicas.one.refresh_tokens.redeem(
        redeemed.authorization.id, tokens_expire_at=0, issued_at=0, expires_at=None
    )
    authorization, refresh_token = await replicas.family()
    ended, _ = await replicas.family()
    await replicas.one.authorizations.end(ended.id)

    async def kept() -> set[str]:
        await replicas.one.authorizations.delete_expired()
        async with replicas.one.engine.connect() as connection:
            statement = text("SELECT id FROM authorizations WHERE tenant_id = :tenant")
            return set((await connection.scalars(statement, {"tenant": replicas.tenant_id})).all())

    everything = {unredeemed.authorization.id, redeemed.authorization.id, authorization.id, ended.id}
    assert await kept() == everything
    replicas.time.pass_s(CODE_TTL_S + MARK_TTL_S)
    assert await kept() == everything
    replicas.time.pass_s(2 * 3600)
    assert await kept() == {authorization.id}
    assert await replicas.redeem(replicas.other, unredeemed) == (False, None)
    assert await replicas.is_alive(refresh_token)
    replicas.time.ms = LATER
    assert await kept() == set()


async def test_a_store_that_is_down_is_a_failure_that_says_what_is_missing() -> None:
    unreachable = "127.0.0.1:9"
    async with opened(
        database_url=f"postgresql+asyncpg://tests@{unreachable}/x", redis_url=f"redis://{unreachable}"
    ) as stores:
        found = []
        for call in (
            lambda: stores.codes.use("cod_x", application_id="app"),
            lambda: stores.refresh_tokens.find("ref_x", application_id="app"),
            lambda: stores.authorizations.end("x"),
            lambda: stores.revocations.is_revoked("x", "kid"),
            stores.revocations.copy,
        ):
            with pytest.raises(StoreUnavailable) as refused:
                await call()
            found.append((refused.value.store, refused.value.why))
    assert found == [
        ("redis", "codes cannot be read right now"),
        ("postgresql", "the database does not answer right now"),
        ("postgresql", "the database does not answer right now"),
        ("redis", "revocations cannot be read right now"),
        ("redis", "revocations cannot be copied right now"),
    ]


def begun_for(application_id: str, **changes: Any) -> Authorization:
    """Return an authorization of another application."""
    return msgspec.structs.replace(new_code().authorization, id=new_id(), application_id=application_id, **changes)


async def test_what_began_as_a_first_party_ends_and_what_a_third_party_was_given_stays(replicas: Replicas) -> None:
    """However often and however late a replica hears of the change."""
    several = [
        begun_for("app", first_party=True),
        begun_for("app", first_party=False),
        begun_for("other", first_party=True),
    ]
    for authorization in several:
        await begin(replicas.one, authorization)

    for _ in range(2):
        await replicas.other.authorizations.end_of_third_parties({"app"})
    redeem = replicas.one.refresh_tokens.redeem
    redeemed = [(await redeem(each.id, tokens_expire_at=LATER, issued_at=0, expires_at=None))[0] for each in several]
    assert redeemed == [False, True, True]


async def test_an_implicit_consent_is_none_until_it_is_given_on_a_page(replicas: Replicas) -> None:
    everything = CONSENTED.everything()
    for implicit, given in ((True, frozenset()), (False, everything), (True, everything)):
        async with replicas.one.authorizations.agreement("user", "app") as agreement:
            await agreement.begin(begun_for("app"), implicit=implicit)
        assert (await replicas.consents.find("user", "app")).everything() == given
        (consent,) = await replicas.consents.of_user("user")
        assert consent.consented.everything() == everything
        assert consent.implicit is not bool(given)

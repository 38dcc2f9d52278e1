"""Reading the caller of a request behind a proxy: nothing that is absent, empty or repeated is a fact."""

from __future__ import annotations

import pytest

from stead import CallerUnknown, ProxiedCaller, proxied_caller

TOLD = {
    "X-Auth-Subject": "user00000001",
    "X-Auth-Actor": "agent0000001",
    "X-Auth-Scope": "read:things write:things",
    "X-Auth-Organization": "-",
    "X-Auth-Acr": "urn:service:acr:mfa",
    "X-Auth-Time": "1800000000",
    "X-Auth-Actor-Acr": "phr",
    "X-Auth-Actor-Time": "1800000100",
}
CALLER = ProxiedCaller(
    subject="user00000001",
    actor="agent0000001",
    scopes=frozenset({"read:things", "write:things"}),
    organization_id=None,
    acr="urn:service:acr:mfa",
    auth_time=1_800_000_000,
    actor_acr="phr",
    actor_auth_time=1_800_000_100,
)


def test_the_fields_of_asgi_and_of_other_servers_are_read() -> None:
    other = [("Host", "orders"), ("Accept", "*/*")]
    assert proxied_caller([*other, *TOLD.items()]) == CALLER
    assert proxied_caller((name.lower().encode(), value.encode()) for name, value in TOLD.items()) == CALLER


@pytest.mark.parametrize("header", TOLD)
@pytest.mark.parametrize("value", [None, "", "  ", "one,two", "-, agent0000001"])
def test_a_header_that_is_absent_empty_or_joined_is_refused(header: str, value: str | None) -> None:
    fields = TOLD | {header: value or ""}
    if value is None:
        del fields[header]
    with pytest.raises(CallerUnknown) as unknown:
        proxied_caller(fields.items())
    assert unknown.value.header == header.lower()


@pytest.mark.parametrize("header", TOLD)
@pytest.mark.parametrize("spelled", [str.lower, str.upper, str.title])
def test_a_header_that_is_repeated_is_refused(header: str, spelled: type[str]) -> None:
    for again in (TOLD[header], "-", ""):
        for fields in ([*TOLD.items(), (spelled(header), again)], [(spelled(header), again), *TOLD.items()]):
            with pytest.raises(CallerUnknown):
                proxied_caller(fields)


@pytest.mark.parametrize("value", ["now", "-1", "1.5", "1e9", "\N{ARABIC-INDIC DIGIT ONE}", "9" * 17])
def test_a_time_that_the_verifier_never_sends_is_refused(value: str) -> None:
    for name in ("X-Auth-Time", "X-Auth-Actor-Time"):
        with pytest.raises(CallerUnknown, match=name.lower()):
            proxied_caller((TOLD | {name: value}).items())


def test_a_caller_who_has_not_signed_in_has_neither_time_nor_strength() -> None:
    caller = proxied_caller((TOLD | {"X-Auth-Acr": "-", "X-Auth-Time": "-"}).items())
    assert (caller.acr, caller.auth_time) == (None, None)


def test_a_caller_without_a_subject_is_refused() -> None:
    with pytest.raises(CallerUnknown):
        proxied_caller((TOLD | {"X-Auth-Subject": "-"}).items())

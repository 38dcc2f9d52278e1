"""The addresses of NATS servers as one text."""

import pytest

from stead import NotValidFeed
from stead.events import EventBus
from stead.nats_addresses import NatsAddresses, parse_nats_addresses


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nats://n1", NatsAddresses(("nats://n1:4222",), None, None)),
        ("n1", NatsAddresses(("nats://n1:4222",), None, None)),
        ("nats://n1:", NatsAddresses(("nats://n1:4222",), None, None)),
        ("nats://token@n1:1", NatsAddresses(("nats://n1:1",), "token", None)),
        ("tls://u:p%40@n1:1/", NatsAddresses(("tls://n1:1",), "u", "p%40")),  # no NATS client decodes it
        ("nats://u:p@[::1]:1, nats://u:p@[::2]", NatsAddresses(("nats://[::1]:1", "nats://[::2]:4222"), "u", "p")),
        ("nats://u:p@n1:1,nats://u:p@n2:1,nats://u:p@n1:1", NatsAddresses(("nats://n1:1", "nats://n2:1"), "u", "p")),
        ("wss://n1,wss://n2:1", NatsAddresses(("wss://n1", "wss://n2:1"), None, None)),
    ],
)
def test_one_address_or_several_are_parsed(text: str, expected: NatsAddresses) -> None:
    assert parse_nats_addresses(text) == expected


def test_credentials_are_options_which_servers_that_are_discovered_get_too() -> None:
    assert parse_nats_addresses("nats://n1,nats://n2").options == {}
    assert parse_nats_addresses("nats://secret@n1").options == {"token": "secret"}
    assert parse_nats_addresses("nats://u:p@n1,nats://u:p@n2").options == {"user": "u", "password": "p"}


MALFORMED = "an address has no host, or an invalid port"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", MALFORMED),
        ("nats://", MALFORMED),
        ("nats://u:hunter2@", MALFORMED),
        ("nats://u:hunter2@n1,", MALFORMED),
        (",nats://u:hunter2@n1", MALFORMED),
        ("nats://u:hunter2@n1:0", MALFORMED),
        ("nats://u:hunter2@n1:65536", MALFORMED),
        ("nats://u:hunter2@n1:x", MALFORMED),
        ("nats://u:hunter2@[::1", MALFORMED),
        ("nats://n1,tls://n2", "all addresses must have the same scheme"),
        ("nats://u:hunter2@n1,nats://n2", "all addresses must have the same user and password"),
        ("nats://u:hunter2@n1,nats://u:hunter3@n2", "all addresses must have the same user and password"),
        ("nats://u:hunter2@n1,nats://v:hunter2@n2", "all addresses must have the same user and password"),
    ],
)
def test_a_malformed_list_is_an_error_without_its_values(text: str, problem: str) -> None:
    for parse in (
        parse_nats_addresses,
        EventBus,
        lambda url: NotValidFeed.over_nats(url, base_url="https://x.example"),
    ):
        with pytest.raises(ValueError, match=f"^{problem}$"):
            parse(text)

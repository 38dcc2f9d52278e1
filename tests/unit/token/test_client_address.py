"""When a proxy evidently hides addresses."""

from __future__ import annotations

import pytest

from tests.support.captured_logs import captured_logs
from token_service.sign_in.client_address import ProxyWatch

FORWARDED, DIRECT = True, False


@pytest.mark.parametrize(
    ("attempts", "trusted_proxies", "reports"),
    [
        ([("10.0.0.9", DIRECT)] * 40, 0, 1),
        ([("fd00::9", DIRECT)] * 40, 0, 1),
        ([("127.0.0.1", FORWARDED)] * 40, 0, 1),
        ([("127.0.0.1", DIRECT)] * 40, 0, 0),
        ([("93.184.216.34", FORWARDED)] * 40, 0, 0),
        ([("10.0.0.9", FORWARDED)] * 40, 1, 0),
        ([("10.0.0.9", FORWARDED)] * 19, 0, 0),
        ([("93.184.216.34", DIRECT)] + [("10.0.0.9", FORWARDED)] * 40, 0, 0),
        ([("10.0.0.9", DIRECT), ("10.0.0.10", DIRECT)] * 20, 0, 0),
    ],
)
def test_a_proxy_is_reported_when_every_attempt_came_from_one_private_address(
    attempts: list[tuple[str, bool]], trusted_proxies: int, reports: int
) -> None:
    watch = ProxyWatch(trusted_proxies=trusted_proxies)
    with captured_logs("test") as log:
        for address, is_forwarded in attempts:
            watch.see(address, is_forwarded=is_forwarded)
    assert log.getvalue().count("sign-in.addresses-hidden") == reports

"""``/api/configs/sign-in``."""

from typing import Any

import msgspec
import pytest

from identity_common.wire.events import SignInPolicyState
from tests.support.management_api import Management, issues, refusal

PATH = "/api/configs/sign-in"
NO_DOMAINS = [
    *("com", "*.example.com", "@example.com", "a b.example", "a..example"),
    *("-a.example", "example.com.", "a_b.example", "[::1]", ".example.com", "x@example.com"),
]
OFF = {"registration": "off", "registrationDomains": [], "secondFactor": "optional"}


async def changed(own: Management, **members: Any) -> dict[str, Any]:
    answer = await own.client.patch(PATH, json=members)
    assert answer.status_code == 200, answer.text
    return answer.json()  # type: ignore[no-any-return]


async def published(own: Management) -> tuple[int, SignInPolicyState]:
    event = (await own.last_events())["sign-in-policy.tenant"]
    return event.revision, msgspec.json.decode(event.data, type=SignInPolicyState)


async def test_it_is_off_until_changed_kept_and_published_and_null_restores_the_default(own: Management) -> None:
    assert (await own.client.get(PATH)).json() == {"tenantId": own.tenant_id, **OFF}
    spelled = ["Example.COM", "bücher.example", "\uff22ÜCHER\uff0eexample", "xn--bcher-kva.example", "example.com"]
    domains = ["example.com", "xn--bcher-kva.example"]
    policy = {"registration": "domains", "registrationDomains": domains, "secondFactor": "required"}
    answer = await changed(own, registration="domains", registrationDomains=spelled, secondFactor="required")
    assert answer == {"tenantId": own.tenant_id, **policy}

    revision = await own.revision()
    assert await changed(own) == await changed(own, **policy) == (await own.client.get(PATH)).json()
    assert await own.revision() == revision
    assert await published(own) == (revision, SignInPolicyState(registration="domains", second_factor="required"))
    assert await changed(own, **dict.fromkeys(OFF)) == {"tenantId": own.tenant_id, **OFF}


@pytest.mark.parametrize(
    ("body", "paths"),
    [
        ({"registration": "everyone"}, {"registration"}),
        ({"registration": True, "registrationDomains": "example.com"}, {"registration", "registrationDomains"}),
        ({"registrationDomains": ["example.com", 1]}, {"registrationDomains[1]"}),
        ({"registrationDomains": ["", "example.com"]}, {"registrationDomains[0]"}),
        ({"registrationDomains": NO_DOMAINS}, {f"registrationDomains[{place}]" for place in range(len(NO_DOMAINS))}),
        ({"registrationDomains": ["x" * 64 + ".example"]}, {"registrationDomains[0]"}),
        ({"registrationDomains": ["x" * 254]}, {"registrationDomains[0]"}),
        ({"registrationDomains": [f"d{number}.example" for number in range(101)]}, {"registrationDomains"}),
        *(({"secondFactor": given}, {"secondFactor"}) for given in ("mfa", "", "Required", True, ["off"])),
        ({"secondFactors": "off"}, {"secondFactors"}),
    ],
)
async def test_what_is_not_a_policy_is_refused_and_nothing_is_lost(
    own: Management, body: dict[str, Any], paths: set[str]
) -> None:
    before = await changed(own, registration="open", registrationDomains=["example.com"])
    assert issues(await own.client.patch(PATH, json=body)) == paths
    assert (await own.client.get(PATH)).json() == before


async def test_registration_by_domains_needs_one(own: Management) -> None:
    await changed(own, registration="open", registrationDomains=None)
    refused = (422, "sign_in.domains_required")
    assert refusal(await own.client.patch(PATH, json={"registration": "domains"})) == refused
    await changed(own, registration="domains", registrationDomains=["example.com"])
    assert refusal(await own.client.patch(PATH, json={"registrationDomains": None})) == refused
    await changed(own, registration="off", registrationDomains=None)


async def test_a_stale_change_and_one_without_the_right_are_refused(own: Management) -> None:
    stale = (await own.client.get(PATH)).headers["ETag"]
    await changed(own, registration="open")
    answer = await own.client.patch(PATH, json={"registration": "off"}, headers={"If-Match": stale})
    assert refusal(answer) == (412, "entity.version_mismatch")
    for scope, expected in (("read", (200, 403)), ("users", (403, 403))):
        async with own.client_with(own.token(scope=scope)) as client:
            answers = await client.get(PATH), await client.patch(PATH, json={"registration": "off"})
        assert tuple(answer.status_code for answer in answers) == expected
    assert (await own.client.get(PATH)).json()["registration"] == "open"
    await changed(own, registration=None)

"""What the tenant sets for everyone, in the console, as a browser without scripts sees it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stead import SignInPolicy
from tests.support.administrator import CONSOLE, Administrator, errors, notices
from tests.support.running_stack import RunningStack

SIGN_IN = f"{CONSOLE}/settings/sign-in"


@pytest.fixture
def off(stack: RunningStack) -> Iterator[None]:
    """All worlds share one policy: it is off again after the test."""
    yield
    stack.management.sign_in_policy.update(registration=None, registration_domains=None, second_factor=None)


@pytest.mark.usefixtures("off")
def test_the_policy_of_signing_in_is_shown_and_changed(stack: RunningStack) -> None:
    administrator, policy = Administrator(stack, "all", name="Grace Hopper"), stack.management.sign_in_policy
    page = administrator.opens(SIGN_IN)
    for domains, status in (("", 422), ("example.com\n<b>", 400)):
        refused = administrator.sends(page, SIGN_IN, registration="domains", registrationDomains=domains)
        assert (refused.status_code, list(errors(refused))) == (status, ["registrationDomains"])
        assert administrator.form(refused, SIGN_IN)[1]["registration"] == ["domains"]
    assert list(errors(administrator.sends(page, SIGN_IN, secondFactor="<b>"))) == ["secondFactor"]
    typed = {"registration": "domains", "registrationDomains": "Bücher.example\nexample.com"}
    shown = administrator.follows(administrator.sends(page, SIGN_IN, **typed, secondFactor="off"))
    assert notices(shown) == ["Saved the policy. It applies from the next request on."]
    assert policy.get() == SignInPolicy(
        registration="domains", registration_domains=("example.com", "xn--bcher-kva.example"), second_factor="off"
    )

    policy.update(registration="invited")
    overtaken = administrator.sends(shown, SIGN_IN, registration="off")
    assert overtaken.status_code == 412
    assert administrator.sends(overtaken, SIGN_IN, registration="off").is_redirect
    assert (policy.get().registration, policy.get().second_factor) == ("off", "off")


@pytest.mark.usefixtures("off")
def test_the_policy_of_signing_in_is_read_but_not_changed_without_the_right(stack: RunningStack) -> None:
    reader = Administrator(stack, "read")
    page = reader.opens(SIGN_IN)
    assert (page.status_code, "Save" in page.text) == (200, False)
    assert reader.sends(page, SIGN_IN, registration="open").status_code == 403
    assert stack.management.sign_in_policy.get().registration == "off"

"""Connectors in the console, as a browser without scripts sees them, with a real provider on loopback."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from stead import NotFound, RequiredClaim, TrustedFactor
from tests.support.administrator import CONSOLE, ENDED, Administrator, errors, notices
from tests.support.provider import CLIENT, KEYS, Provider
from tests.support.running_stack import RunningStack

CONNECTORS = f"{CONSOLE}/connectors"
SECRET = "the secret that no page shows"


@pytest.fixture(scope="module")
def administrator(stack: RunningStack) -> Administrator:
    return Administrator(stack, "all", name="Grace Hopper")


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider() as provider:
        yield provider


@pytest.fixture
def created(stack: RunningStack, provider: Provider) -> Iterator[str]:
    """All worlds share the connectors."""
    config = {"issuer": provider.issuer, "clientId": CLIENT, "clientSecret": SECRET}
    connector = stack.management.connectors.create(f"Okta {secrets.token_hex(4)}", config, is_enabled=False)
    yield connector.id
    if any(each.id == connector.id for each in stack.management.connectors.list()):
        stack.management.connectors.delete(connector.id)


def test_a_connector_is_created_disabled_and_never_shows_its_secret(
    stack: RunningStack, administrator: Administrator, provider: Provider
) -> None:
    page = administrator.opens(f"{CONNECTORS}/new")
    name = f"Okta {secrets.token_hex(4)}"
    typed = {"connectorName": name, "config.clientId": CLIENT, "config.clientSecret": SECRET}
    refused = administrator.sends(page, **typed, **{"config.issuer": f"{provider.issuer}/none"})
    assert (refused.status_code, list(errors(refused))) == (422, ["config.issuer"])
    assert "status 404" in errors(refused)["config.issuer"]
    assert SECRET not in refused.text
    refused = administrator.sends(page, **typed, **{"config.issuer": provider.issuer, "matchClaim": "email"})
    assert list(errors(refused)) == ["matchClaim"]
    shown = administrator.follows(administrator.sends(page, **typed, **{"config.issuer": provider.issuer}))
    (connector,) = (each for each in stack.management.connectors.list() if each.connector_name == name)
    assert (connector.is_enabled, connector.config.has_client_secret) == (False, True)
    for kind in ("callback", "backchannel-logout"):
        assert f">{stack.base_url}/sign-in/{kind}/{connector.id}</code>" in shown.text
    assert SECRET not in shown.text
    stack.management.connectors.delete(connector.id)


def test_what_a_connector_demands_and_trusts_is_written_in_lines(
    stack: RunningStack, administrator: Administrator, created: str
) -> None:
    page = administrator.opens(f"{CONNECTORS}/{created}")
    for typed, refused in (
        ({"requiredClaims": "hd"}, "requiredClaims"),
        ({"trusts.phr": "hd=1"}, "trusts.phr"),
        ({"domains": "a b"}, "domains"),
        ({"sessionMaxAgeS": "5"}, "sessionMaxAgeS"),
        ({"branding.logoUri": "http://a.example"}, "branding.logoUri"),
        ({"branding.displayName": "\u200b"}, "branding.displayName"),
        ({"config.scope": "email"}, "config.scope"),
        ({"config.clientId": ""}, ""),
    ):
        answer = administrator.sends(page, **typed)
        assert list(errors(answer)) == ([refused] if refused else []), typed
    page = administrator.opens(f"{CONNECTORS}/{created}")
    typed = {
        "requiredClaims": " hd = example.com \ndepartment=a=b",
        "trusts.mfa": "amr=mfa\nacr=urn:two",
        "trusts.phr": "amr=hwk",
        "trusts.actors": "desk",
    }
    assert notices(administrator.follows(administrator.sends(page, **typed)))[0].startswith("Saved")
    stored = stack.management.connectors.get(created)
    assert stored.required_claims == (
        RequiredClaim(claim="hd", value="example.com"),
        RequiredClaim(claim="department", value="a=b"),
    )
    assert stored.trusts.factors == (
        TrustedFactor(claim="amr", value="mfa", level="mfa"),
        TrustedFactor(claim="acr", value="urn:two", level="mfa"),
        TrustedFactor(claim="amr", value="hwk", level="phr"),
    )
    assert stored.trusts.actors == ("desk",)


def test_the_secret_is_kept_replaced_or_removed(
    stack: RunningStack, administrator: Administrator, created: str
) -> None:
    def has_secret() -> bool:
        return stack.management.connectors.get(created).config.has_client_secret

    page = administrator.opens(f"{CONNECTORS}/{created}")
    assert administrator.sends(page, groupsClaim="groups").is_redirect
    assert has_secret()
    page = administrator.opens(f"{CONNECTORS}/{created}")
    assert administrator.sends(page, removeSecret="yes").is_redirect
    assert not has_secret()
    page = administrator.opens(f"{CONNECTORS}/{created}")
    assert administrator.sends(page, **{"config.clientSecret": SECRET}).is_redirect
    assert has_secret()


def test_a_test_says_what_the_provider_answers(administrator: Administrator, provider: Provider, created: str) -> None:
    page = administrator.opens(f"{CONNECTORS}/{created}")
    works = administrator.follows(administrator.sends(page, f"{CONNECTORS}/{created}/test"))
    assert notices(works) == ["The provider answers, and its metadata and keys can be used."]
    provider.answers[KEYS] = 500
    refused = administrator.sends(page, f"{CONNECTORS}/{created}/test")
    assert refused.status_code == 422
    assert "status 500" in refused.text.partition("The provider cannot be used: ")[2]


def test_a_connector_is_enabled_disabled_and_deleted_after_its_page_says_what_ends(
    stack: RunningStack, administrator: Administrator, created: str
) -> None:
    here = f"{CONNECTORS}/{created}"
    page = administrator.opens(here)
    assert administrator.sends(page, f"{here}/enable").is_redirect
    assert stack.management.connectors.get(created).is_enabled
    asked = administrator.opens(f"{here}/disable")
    assert "Every session and refresh token" in asked.text
    disabled = administrator.follows(administrator.sends(asked))
    name = stack.management.connectors.get(created).connector_name
    assert notices(disabled) == [f"Disabled {name}. {ENDED}"]
    assert not stack.management.connectors.get(created).is_enabled
    asked = administrator.opens(f"{here}/delete")
    assert "All identities of users there are gone" in asked.text
    assert administrator.sends(asked, confirmation="another").status_code == 422
    assert administrator.sends(asked, confirmation=name).is_redirect
    with pytest.raises(NotFound):
        stack.management.connectors.get(created)


def test_a_reader_sees_a_connector_but_changes_nothing(stack: RunningStack, created: str) -> None:
    reader = Administrator(stack, "read")
    page = reader.opens(f"{CONNECTORS}/{created}")
    assert (page.status_code, "Save</button>" in page.text) == (200, False)
    assert reader.sends(page, connectorName="x").status_code == 403

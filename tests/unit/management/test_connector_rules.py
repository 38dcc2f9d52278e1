"""Which claims may say who a person is."""

import pytest

from management_service.connectors.rules import ConnectorBranding, ConnectorUpdate, problems


@pytest.mark.parametrize("claim", ["sub", "oid", "uid", "employee_number", "https://example.com/claims/id"])
def test_a_claim_of_one_person_alone_is_accepted(claim: str) -> None:
    assert [*problems(ConnectorUpdate(match_claim=claim))] == []


@pytest.mark.parametrize(
    "claim",
    [
        *("email", "Email", "UPN", "mail", "username", "login", "preferred_username", "birthdate", "locale", "address"),
        *("tid", "hd", "groups", "roles", "scope", "client_id", "ver", "iss", "sid", "nonce", "events"),
        *("", "a b", "x" * 129, "e-mäil"),
    ],
)
def test_a_claim_that_another_person_can_have_is_refused(claim: str) -> None:
    assert [path for path, _ in problems(ConnectorUpdate(match_claim=claim))] == ["matchClaim"]


def test_groups_come_in_a_claim_about_people() -> None:
    assert [*problems(ConnectorUpdate(groups_claim="groups"))] == []
    assert [path for path, _ in problems(ConnectorUpdate(groups_claim="scope"))] == ["groupsClaim"]


@pytest.mark.parametrize(
    "uri",
    ["https://a.example;sandbox/", "https://u;sandbox@a.example/", "https://*/", "http://a.example/", "https://[::1]/"],
)
def test_a_logo_adds_nothing_but_its_origin_to_the_policy_of_the_sign_in_page(uri: str) -> None:
    assert [path for path, _ in problems(ConnectorUpdate(branding=ConnectorBranding(logo_uri=uri)))] == [
        "branding.logoUri"
    ]

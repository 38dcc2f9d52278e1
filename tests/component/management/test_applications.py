"""``/api/applications`` and their secrets."""

import hashlib
import re
import time
from typing import Any

import httpx2 as httpx
import pytest

from tests.support.management_api import Management, at_once, issues, refusal, revision_of, unique

DEFAULTS = {
    "allowTokenExchange": False,
    "allowManagementApi": False,
    "corsAllowedOrigins": [],
    "idTokenTtl": 3600,
    "refreshTokenTtlInDays": 14,
    "rotateRefreshToken": True,
    "alwaysIssueRefreshToken": False,
    "tokenEndpointAuthMethod": "client_secret_basic",
    "requirePkce": True,
    "minimumAcr": None,
}
FIXED_METHOD = {"tokenEndpointAuthMethod": None}
THIRD_PARTY = (422, "application.third_party_application_cannot_enable_token_exchange")


async def test_an_application_has_defaults_and_no_secret(management: Management) -> None:
    answer = await management.client.post("/api/applications", json={"name": "Shop", "type": "Traditional"})
    application = answer.json()
    assert answer.status_code == 200
    assert application == {
        "tenantId": management.tenant_id,
        "id": application["id"],
        "name": "Shop",
        "description": None,
        "type": "Traditional",
        "oidcClientMetadata": {"redirectUris": [], "postLogoutRedirectUris": []},
        "customClientMetadata": DEFAULTS,
        "isThirdParty": False,
        "branding": {"logoUri": None, "primaryColor": None},
        "customData": {},
        "createdAt": application["createdAt"],
        "updatedAt": application["createdAt"],
    }
    assert (await management.client.get(f"/api/applications/{application['id']}")).json() == application
    assert (await management.client.get(f"/api/applications/{application['id']}/secrets")).json() == []
    event = await management.event("application", application["id"])
    assert event is not None
    assert (event.type, event.revision) == ("application.created", revision_of(answer))


async def test_an_application_is_shown_as_it_was_created_and_its_event_says_the_same(management: Management) -> None:
    application = await management.created(
        "applications",
        name="Phone",
        type="Native",
        description="On phones",
        oidcClientMetadata={
            "redirectUris": ["com.example.phone:/callback", "http://127.0.0.1:7/cb", "https://example.com/cb?a=1"],
            "postLogoutRedirectUris": ["com.example.phone://bye"],
        },
        customClientMetadata={
            **DEFAULTS,
            **FIXED_METHOD,
            "allowTokenExchange": True,
            "allowManagementApi": True,
            "corsAllowedOrigins": ["https://example.com"],
            "minimumAcr": "phr",
        },
        branding={"logoUri": "https://example.com/logo.svg", "primaryColor": "#2450C8"},
        customData={"team": "mobile"},
    )
    assert application["customClientMetadata"] == {
        **DEFAULTS,
        **FIXED_METHOD,
        "allowTokenExchange": True,
        "allowManagementApi": True,
        "corsAllowedOrigins": ["https://example.com"],
        "minimumAcr": "phr",
    }
    assert await management.event_data("application", application["id"]) == {
        "id": application["id"],
        "name": "Phone",
        "type": "Native",
        "allow_token_exchange": True,
        "allow_management_api": True,
        "redirect_uris": ["com.example.phone:/callback", "http://127.0.0.1:7/cb", "https://example.com/cb?a=1"],
        "post_logout_redirect_uris": ["com.example.phone://bye"],
        "id_token_ttl_s": 3600,
        "minimum_acr": "phr",
        "cors_allowed_origins": ["https://example.com"],
        "logo_uri": "https://example.com/logo.svg",
        "primary_color": "#2450C8",
        "custom_data": {"team": "mobile"},
    }


async def test_a_patch_merges_nested_settings_and_null_restores_their_defaults(
    management: Management,
) -> None:
    application = await management.created(
        "applications",
        name="Shop",
        type="SPA",
        oidcClientMetadata={"redirectUris": ["https://a.example/cb"], "postLogoutRedirectUris": ["https://a.example"]},
        customClientMetadata={
            "idTokenTtl": 60,
            "allowTokenExchange": True,
            "allowManagementApi": True,
            "minimumAcr": "mfa",
        },
    )
    path = f"/api/applications/{application['id']}"
    answer = await management.client.patch(
        path,
        json={
            "oidcClientMetadata": {"redirectUris": ["https://b.example/cb"]},
            "customClientMetadata": {"idTokenTtl": None, "refreshTokenTtlInDays": 30},
        },
    )
    changed = answer.json()
    assert changed == {
        **application,
        "oidcClientMetadata": {
            "redirectUris": ["https://b.example/cb"],
            "postLogoutRedirectUris": ["https://a.example"],
        },
        "customClientMetadata": {
            **DEFAULTS,
            **FIXED_METHOD,
            "allowTokenExchange": True,
            "allowManagementApi": True,
            "refreshTokenTtlInDays": 30,
            "minimumAcr": "mfa",
        },
        "updatedAt": changed["updatedAt"],
    }
    cleared = await management.client.patch(path, json={"oidcClientMetadata": None, "customClientMetadata": None})
    assert cleared.json()["oidcClientMetadata"] == {"redirectUris": [], "postLogoutRedirectUris": []}
    assert cleared.json()["customClientMetadata"] == {**DEFAULTS, **FIXED_METHOD}
    nothing = await management.client.patch(path, json={"customClientMetadata": {"idTokenTtl": 3600}})
    assert revision_of(nothing) == revision_of(cleared)


async def test_branding_is_merged_and_null_removes_it(management: Management) -> None:
    look = {"logoUri": "https://example.com/logo.svg", "primaryColor": "#2450c8"}
    application = await management.created("applications", name="Shop", type="SPA", branding=look)
    path = f"/api/applications/{application['id']}"
    shown = []
    for change in ({"primaryColor": "#003366"}, {"logoUri": None}, {}, None):
        answer = await management.client.patch(path, json={"branding": change})
        assert (await management.client.get(path)).json() == answer.json()
        shown.append(tuple(answer.json()["branding"].values()))
    kept = (None, "#003366")
    assert shown == [(look["logoUri"], "#003366"), kept, kept, (None, None)]


async def test_a_third_party_application_may_never_exchange_tokens_whichever_is_set_first(
    management: Management,
) -> None:
    exchange = {"customClientMetadata": {"allowTokenExchange": True}}
    body = {"name": "Partner", "type": "Traditional"}
    post, patch = management.client.post, management.client.patch
    assert refusal(await post("/api/applications", json={**body, **exchange, "isThirdParty": True})) == THIRD_PARTY
    partner = await management.created("applications", **body, isThirdParty=True)
    assert refusal(await patch(f"/api/applications/{partner['id']}", json=exchange)) == THIRD_PARTY
    own = await management.created("applications", **body, **exchange)
    assert refusal(await patch(f"/api/applications/{own['id']}", json={"isThirdParty": True})) == THIRD_PARTY
    both = {"isThirdParty": True, "customClientMetadata": {"allowTokenExchange": False}}
    assert (await patch(f"/api/applications/{own['id']}", json=both)).status_code == 200


async def test_a_traditional_application_chooses_its_client_authentication_and_may_do_without_pkce(
    management: Management,
) -> None:
    chosen = {"tokenEndpointAuthMethod": "client_secret_post", "requirePkce": False}
    application = await management.created(
        "applications", name="Older", type="Traditional", customClientMetadata=chosen
    )
    assert application["customClientMetadata"] == {**DEFAULTS, **chosen}
    event = await management.event_data("application", application["id"])
    assert (event["token_endpoint_auth_method"], event["require_pkce"]) == ("client_secret_post", False)
    reset = {"customClientMetadata": dict.fromkeys(chosen)}
    answer = await management.client.patch(f"/api/applications/{application['id']}", json=reset)
    assert answer.json()["customClientMetadata"] == DEFAULTS


@pytest.mark.parametrize("setting", [{"tokenEndpointAuthMethod": "client_secret_post"}, {"requirePkce": False}])
async def test_other_types_have_no_choice(management: Management, setting: dict[str, Any]) -> None:
    """Their defaults can be written back, as a client does that sends the whole object."""
    wrong_type = (422, "entity.db_constraint_violated")
    for kind in ("Native", "SPA", "MachineToMachine"):
        body = {"name": "n", "type": kind}
        created = await management.created("applications", **body)
        path = f"/api/applications/{created['id']}"
        refused = [
            await management.client.post("/api/applications", json={**body, "customClientMetadata": setting}),
            await management.client.patch(path, json={"customClientMetadata": setting}),
        ]
        assert [refusal(answer) for answer in refused] == [wrong_type] * 2
        whole = {"customClientMetadata": created["customClientMetadata"]}
        assert (await management.client.patch(path, json=whole)).json() == created


async def test_a_machine_is_never_of_a_third_party(management: Management) -> None:
    refused = (422, "application.invalid_third_party_application_type")
    body = {"name": "n", "type": "MachineToMachine", "isThirdParty": True}
    assert refusal(await management.client.post("/api/applications", json=body)) == refused
    path = f"/api/applications/{await management.machine()}"
    assert refusal(await management.client.patch(path, json={"isThirdParty": True})) == refused
    for first_party in (False, None):
        assert (await management.client.patch(path, json={"isThirdParty": first_party})).status_code == 200


async def test_a_machine_has_no_users_for_whom_it_could_request_the_management_api(management: Management) -> None:
    setting = {"customClientMetadata": {"allowManagementApi": True}}
    refused = (422, "entity.db_constraint_violated")
    body = {"name": "n", "type": "MachineToMachine", **setting}
    assert refusal(await management.client.post("/api/applications", json=body)) == refused
    path = f"/api/applications/{await management.machine()}"
    assert refusal(await management.client.patch(path, json=setting)) == refused
    for value in ("true", 1, []):
        answer = await management.client.patch(path, json={"customClientMetadata": {"allowManagementApi": value}})
        assert issues(answer) == {"customClientMetadata.allowManagementApi"}


@pytest.mark.parametrize("method", ["none", "private_key_jwt", "", 1])
async def test_an_authentication_method_must_be_known(management: Management, method: object) -> None:
    body = {"name": "n", "type": "Traditional", "customClientMetadata": {"tokenEndpointAuthMethod": method}}
    answer = await management.client.post("/api/applications", json=body)
    assert issues(answer) == {"customClientMetadata.tokenEndpointAuthMethod"}


async def test_a_third_party_application_always_needs_pkce_whichever_is_set_first(management: Management) -> None:
    refused = (422, "application.third_party_application_cannot_disable_pkce")
    without = {"customClientMetadata": {"requirePkce": False}}
    body = {"name": "Partner", "type": "Traditional"}
    post, patch = management.client.post, management.client.patch
    assert refusal(await post("/api/applications", json={**body, **without, "isThirdParty": True})) == refused
    partner = await management.created("applications", **body, isThirdParty=True)
    assert refusal(await patch(f"/api/applications/{partner['id']}", json=without)) == refused
    own = await management.created("applications", **body, **without)
    assert refusal(await patch(f"/api/applications/{own['id']}", json={"isThirdParty": True})) == refused


async def test_a_secret_is_shown_once_and_only_its_hash_is_kept(management: Management) -> None:
    application = await management.created("applications", name="Shop", type="Traditional")
    path = f"/api/applications/{application['id']}/secrets"
    expires_at = int(time.time() * 1000) + 3_600_000
    answer = await management.client.post(path, json={"name": "first", "expiresAt": expires_at})
    secret = answer.json()
    assert (answer.status_code, answer.headers["Cache-Control"]) == (201, "no-store")
    assert re.fullmatch(r"[0-9A-Za-z]{43}", secret["value"])
    shown = {
        "tenantId": management.tenant_id,
        "applicationId": application["id"],
        "name": "first",
        "createdAt": secret["createdAt"],
        "expiresAt": expires_at,
    }
    assert secret == {**shown, "value": secret["value"]}
    assert (await management.client.get(path)).json() == [shown]
    sha256 = hashlib.sha256(secret["value"].encode()).hexdigest()
    state = await management.event_data("application", application["id"])
    assert state["secrets"] == [{"sha256": sha256, "expires_at": expires_at}]
    assert secret["value"] not in str(state)

    second = await management.created(f"applications/{application['id']}/secrets", name="a second")
    assert second["expiresAt"] is None
    listed = (await management.client.get(path)).json()
    assert [found["name"] for found in listed] == ["a second", "first"]
    assert len((await management.event_data("application", application["id"]))["secrets"]) == 2
    taken = await management.client.post(path, json={"name": "first"})
    assert refusal(taken) == (422, "application.secret_name_exists")

    deleted = await management.client.delete(f"{path}/a second")
    assert deleted.status_code == 204
    assert (await management.event_data("application", application["id"]))["secrets"] == state["secrets"]
    assert refusal(await management.client.delete(f"{path}/a second")) == (404, "entity.not_found")


async def test_a_secret_may_be_renamed(management: Management) -> None:
    application = await management.created("applications", name="Shop", type="Traditional")
    path = f"/api/applications/{application['id']}/secrets"
    secret = await management.created(f"applications/{application['id']}/secrets", name="first")
    await management.created(f"applications/{application['id']}/secrets", name="second")
    del secret["value"]
    renamed = await management.client.patch(f"{path}/first", json={"name": "third"})
    assert (renamed.status_code, renamed.json()) == (200, {**secret, "name": "third"})
    assert [found["name"] for found in (await management.client.get(path)).json()] == ["second", "third"]
    event = await management.event("application", application["id"])
    assert event is not None
    assert (event.type, event.revision) == ("application.updated", revision_of(renamed))
    for body in ({}, {"name": "third"}):
        assert revision_of(await management.client.patch(f"{path}/third", json=body)) == revision_of(renamed)
    taken = await management.client.patch(f"{path}/third", json={"name": "second"})
    assert refusal(taken) == (422, "application.secret_name_exists")
    for body in ({"name": "a/b"}, {"name": ""}, {"name": None}):
        assert issues(await management.client.patch(f"{path}/third", json=body)) == {"name"}
    assert issues(await management.client.patch(f"{path}/third", json={"expiresAt": 1})) == {"expiresAt"}
    assert refusal(await management.client.patch(f"{path}/first", json={"name": "x"})) == (404, "entity.not_exists")


@pytest.mark.parametrize("kind", ["SPA", "Native"])
async def test_a_public_client_gets_no_secret(management: Management, kind: str) -> None:
    application = await management.created("applications", name="Public", type=kind)
    path = f"/api/applications/{application['id']}/secrets"
    answer = await management.client.post(path, json={"name": "first"})
    assert refusal(answer) == (422, "entity.db_constraint_violated")
    assert "PKCE" in answer.json()["message"]
    assert issues(await management.client.post(path, json={"name": "a/b"})) == {"name"}
    assert (await management.client.get(path)).json() == []
    state = await management.event_data("application", application["id"])
    assert state.get("secrets", []) == []


async def test_custom_data_of_an_application_is_merged(management: Management) -> None:
    made = await management.created("applications", name="n", type="SPA", customData={"a": {"b": 1}, "c": 2})
    path = f"/api/applications/{made['id']}/custom-data"
    answer = await management.client.patch(path, json={"a": {"d": 1}, "c": None})
    assert (answer.status_code, answer.json()) == (200, {"a": {"d": 1}})
    assert (await management.event_data("application", made["id"]))["custom_data"] == {"a": {"d": 1}}
    assert revision_of(await management.client.patch(path, json={})) == revision_of(answer)
    too_large = await management.client.patch(path, json={"e": "x" * 65_536})
    assert refusal(too_large) == (413, "request.too_large")
    assert issues(await management.client.patch(path, json=[])) == {""}
    missing = await management.client.patch("/api/applications/none/custom-data", json=[])
    assert refusal(missing) == (404, "entity.not_exists_with_id")


@pytest.mark.heavy
async def test_an_application_never_has_more_than_100_secrets(management: Management) -> None:
    application = await management.created("applications", name="Shop", type="Traditional")
    path = f"/api/applications/{application['id']}/secrets"
    answers = await at_once(*(management.client.post(path, json={"name": f"secret {number}"}) for number in range(103)))
    assert sorted(answer.status_code for answer in answers) == [201] * 100 + [422] * 3
    assert (await management.client.get(path)).headers["Total-Number"] == "100"
    assert len((await management.event_data("application", application["id"]))["secrets"]) == 100


async def test_a_deleted_application_is_gone_with_its_secrets(management: Management) -> None:
    application = await management.created("applications", name="Shop", type="Traditional")
    await management.created(f"applications/{application['id']}/secrets", name="first")
    path = f"/api/applications/{application['id']}"
    assert (await management.client.delete(path)).status_code == 204
    assert await management.event_data("application", application["id"]) == {
        "id": application["id"],
        "deleted": True,
    }
    count = "SELECT count(*) FROM application_secrets WHERE application_id = $1"
    assert await management.database.fetchval(count, application["id"]) == 0
    with_id, exists, found = "entity.not_exists_with_id", "entity.not_exists", "entity.not_found"
    assert refusal(await management.client.get(path)) == (404, with_id)
    assert refusal(await management.client.patch(path, json={})) == (404, exists)
    assert refusal(await management.client.delete(path)) == (404, found)
    assert refusal(await management.client.get(f"{path}/secrets")) == (404, with_id)
    assert refusal(await management.client.post(f"{path}/secrets", json=1)) == (404, with_id)
    assert refusal(await management.client.delete(f"{path}/secrets/first")) == (404, with_id)


async def test_a_secret_of_another_application_is_not_found(management: Management) -> None:
    """The child is looked up under its parent."""
    mine = await management.created("applications", name="Mine", type="Traditional")
    other = await management.created("applications", name="Other", type="Traditional")
    await management.created(f"applications/{mine['id']}/secrets", name="first")
    wrong = await management.client.delete(f"/api/applications/{other['id']}/secrets/first")
    assert refusal(wrong) == (404, "entity.not_found")


@pytest.mark.parametrize(
    ("body", "paths"),
    [
        ({}, {"name", "type"}),
        ({"name": "", "type": "SPA"}, {"name"}),
        ({"name": "n", "type": "Robot"}, {"type"}),
        ({"name": "n", "type": "SPA", "secret": "mine"}, {"secret"}),
        ({"name": "n", "type": "SPA", "oidcClientMetadata": {"redirectUris": "https://a.example"}},
         {"oidcClientMetadata.redirectUris"}),
        ({"name": "n", "type": "SPA", "oidcClientMetadata": {"redirectUris": ["https://a.example#x"]}},
         {"oidcClientMetadata.redirectUris[0]"}),
        ({"name": "n", "type": "SPA", "oidcClientMetadata": {"redirectUris": ["https://a.example", "com.a:/cb"]}},
         {"oidcClientMetadata.redirectUris[1]"}),
        ({"name": "n", "type": "Native", "oidcClientMetadata": {"postLogoutRedirectUris": ["http://a.example"]}},
         {"oidcClientMetadata.postLogoutRedirectUris[0]"}),
        ({"name": "n", "type": "SPA", "oidcClientMetadata": {"logoUri": ""}}, {"oidcClientMetadata"}),
        ({"name": "n", "type": "SPA", "customClientMetadata": {"corsAllowedOrigins": ["https://a.example/path"]}},
         {"customClientMetadata.corsAllowedOrigins[0]"}),
        ({"name": "n", "type": "SPA", "customClientMetadata": {"idTokenTtl": 0}}, {"customClientMetadata.idTokenTtl"}),
        *(({"name": "n", "type": "SPA", "customClientMetadata": {"minimumAcr": given}},
           {"customClientMetadata.minimumAcr"}) for given in ("password", "", "urn:identity:acr:mfa", True, ["mfa"])),
        ({"name": "n", "type": "SPA", "branding": {"logoUri": "http://a.example/l.png", "primaryColor": "#ffff00"}},
         {"branding.logoUri", "branding.primaryColor"}),
        ({"name": "n", "type": "SPA", "branding": {"logoUri": 1, "favicon": ""}}, {"branding.logoUri"}),
        ({"name": "n", "type": "SPA", "isThirdParty": 1, "customData": 2}, {"isThirdParty", "customData"}),
    ],
)  # fmt: skip
async def test_every_wrong_member_of_a_new_application_is_named(
    management_api: httpx.AsyncClient, body: dict[str, Any], paths: set[str]
) -> None:
    assert issues(await management_api.post("/api/applications", json=body)) == paths


async def test_a_patch_is_validated_for_the_type_of_the_application(management: Management) -> None:
    native = await management.created("applications", name="Phone", type="Native")
    website = await management.created("applications", name="Site", type="Traditional")
    body = {"oidcClientMetadata": {"redirectUris": ["com.example:/cb"]}}
    assert (await management.client.patch(f"/api/applications/{native['id']}", json=body)).status_code == 200
    refused = await management.client.patch(f"/api/applications/{website['id']}", json=body)
    assert issues(refused) == {"oidcClientMetadata.redirectUris[0]"}
    changed_type = await management.client.patch(f"/api/applications/{website['id']}", json={"type": "SPA"})
    assert issues(changed_type) == {"type"}


@pytest.mark.parametrize("kind", ["Traditional", "SPA"])
async def test_http_redirect_uris_are_for_native_applications_and_stored_ones_stay(
    management: Management, kind: str
) -> None:
    """RFC 9700 section 2.6. The setting for development is off here."""
    http, secure = "http://localhost:3000/cb", "https://a.example/cb"

    def addresses(name: str, *uris: str) -> dict[str, Any]:
        return {"oidcClientMetadata": {name: uris}}

    def refused(answer: httpx.Response) -> list[str]:
        assert refusal(answer) == (422, "application.http_redirect_uri"), answer.text
        assert "ALLOW_HTTP_LOOPBACK_REDIRECTS" in answer.json()["message"]
        return [issue["path"] for issue in answer.json()["data"]["issues"]]

    made = await management.created("applications", name="Site", type=kind)
    path = f"/api/applications/{made['id']}"
    for name in ("redirectUris", "postLogoutRedirectUris"):
        wrong = addresses(name, secure, http)
        new = {"name": "Site", "type": kind, **wrong}
        assert refused(await management.client.post("/api/applications", json=new)) == [f"oidcClientMetadata.{name}[1]"]
        assert refused(await management.client.patch(path, json=wrong)) == [f"oidcClientMetadata.{name}[1]"]
    earlier = "UPDATE applications SET redirect_uris = $2, post_logout_redirect_uris = $3 WHERE id = $1"
    await management.database.execute(earlier, made["id"], [http], ["http://a.example"])
    kept = await management.client.patch(path, json=addresses("redirectUris", http, secure))
    stored = {"redirectUris": [http, secure], "postLogoutRedirectUris": ["http://a.example"]}
    assert kept.json()["oidcClientMetadata"] == stored
    assert (await management.client.patch(path, json={"oidcClientMetadata": stored})).json() == kept.json()
    another = addresses("redirectUris", http, secure, "HTTP://[::1]/")
    assert refused(await management.client.patch(path, json=another)) == ["oidcClientMetadata.redirectUris[2]"]
    elsewhere = addresses("postLogoutRedirectUris", http)
    assert refused(await management.client.patch(path, json=elsewhere)) == [
        "oidcClientMetadata.postLogoutRedirectUris[0]"
    ]
    assert (await management.client.patch(path, json={"name": "Renamed"})).json()["oidcClientMetadata"] == stored


async def test_a_machine_has_nothing_of_a_sign_in(management: Management) -> None:
    """What an earlier release has stored is shown, and can be written back or removed."""
    settings: list[dict[str, Any]] = [
        {"oidcClientMetadata": {"redirectUris": ["https://a.example/cb"]}},
        {"oidcClientMetadata": {"postLogoutRedirectUris": ["https://a.example/"]}},
        *(
            {"customClientMetadata": each}
            for each in (
                {"idTokenTtl": 60},
                {"refreshTokenTtlInDays": 1},
                {"rotateRefreshToken": False},
                {"alwaysIssueRefreshToken": True},
                {"minimumAcr": "mfa"},
            )
        ),
        {"branding": {"logoUri": "https://a.example/logo.svg"}},
        {"branding": {"primaryColor": "#2450c8"}},
    ]
    made = await management.created("applications", name="Machine", type="MachineToMachine")
    path = f"/api/applications/{made['id']}"
    for setting in settings:
        refused = [
            await management.client.post(
                "/api/applications", json={"name": "n", "type": "MachineToMachine", **setting}
            ),
            await management.client.patch(path, json=setting),
        ]
        assert [refusal(answer) for answer in refused] == [(422, "entity.db_constraint_violated")] * 2, setting
    whole = {name: made[name] for name in ("oidcClientMetadata", "customClientMetadata", "branding")}
    assert (await management.client.patch(path, json=whole)).json() == made
    earlier = "UPDATE applications SET redirect_uris = '{https://a.example}', id_token_ttl_s = 60 WHERE id = $1"
    await management.database.execute(earlier, made["id"])
    shown = (await management.client.get(path)).json()
    whole = {name: shown[name] for name in whole}
    assert whole["oidcClientMetadata"]["redirectUris"] == ["https://a.example"]
    assert (await management.client.patch(path, json=whole)).json() == shown
    removed = dict.fromkeys(whole)
    assert (await management.client.patch(path, json=removed)).json()["oidcClientMetadata"] == made[
        "oidcClientMetadata"
    ]


@pytest.mark.parametrize(
    ("body", "paths"),
    [
        ({}, {"name"}),
        ({"name": ""}, {"name"}),
        ({"name": "a/b"}, {"name"}),
        ({"name": ".."}, {"name"}),
        ({"name": "n", "expiresAt": 0}, {"expiresAt"}),
        ({"name": "n", "expiresAt": "tomorrow"}, {"expiresAt"}),
        ({"name": "n", "value": "mine"}, {"value"}),
    ],
)
async def test_every_wrong_member_of_a_new_secret_is_named(
    management: Management, body: dict[str, Any], paths: set[str]
) -> None:
    application = await management.created("applications", name=unique("a"), type="Traditional")
    answer = await management.client.post(f"/api/applications/{application['id']}/secrets", json=body)
    assert issues(answer) == paths


async def test_the_urls_and_data_of_an_application_are_bounded(management: Management) -> None:
    uris = [f"https://a.example/{number:04}/{'x' * 1000}" for number in range(70)]
    for members in (
        {"oidcClientMetadata": {"redirectUris": uris[:35], "postLogoutRedirectUris": uris[35:]}},
        {"customClientMetadata": {"corsAllowedOrigins": [f"https://{'x' * 1000}{n}.example" for n in range(70)]}},
        {"customData": {"a": "x" * 65_536}},
    ):
        body = {"name": "Large", "type": "SPA", **members}
        too_large = await management.client.post("/api/applications", json=body)
        assert refusal(too_large) == (413, "request.too_large")

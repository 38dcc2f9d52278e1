"""Operations on a person's own account."""

from __future__ import annotations

from stead import Factor, MyAccount, MyConsent, MyFactors, MyIdentity, MyImpersonation, MyProfile, MySession
from tests.unit.sdk.operations.entities import IMPERSONATION
from tests.unit.sdk.operations.rows import Row

_PATH = "/api/my-account"
_JSON = {
    "id": "u1",
    "name": "Ada",
    "profile": {"locale": "de"},
    "hasPassword": True,
    "canChangePassword": True,
    "canChangeEmail": True,
}
_ACCOUNT = MyAccount(
    id="u1",
    name="Ada",
    profile=MyProfile(locale="de"),
    has_password=True,
    can_change_password=True,
    can_change_email=True,
)

ROWS: list[Row] = [
    (lambda c: c.my_account.get(), "GET", _PATH, None, _JSON, _ACCOUNT),
    (
        lambda c: c.my_account.update(name="Ada", avatar=None, username="ada"),
        "PATCH",
        _PATH,
        {"name": "Ada", "avatar": None, "username": "ada"},
        _JSON,
        _ACCOUNT,
    ),
    (
        lambda c: c.my_account.update_profile(locale="de", preferred_username=None),
        "PATCH",
        f"{_PATH}/profile",
        {"locale": "de", "preferredUsername": None},
        _JSON,
        _ACCOUNT,
    ),
    (
        lambda c: c.my_account.set_password("a new one", current_password="the old one"),
        "POST",
        f"{_PATH}/password",
        {"currentPassword": "the old one", "password": "a new one"},
        None,
        None,
    ),
    (
        lambda c: c.my_account.set_password("the first one"),
        "POST",
        f"{_PATH}/password",
        {"password": "the first one"},
        None,
        None,
    ),
    (
        lambda c: c.my_account.change_email("ada@example.com"),
        "POST",
        f"{_PATH}/primary-email",
        {"email": "ada@example.com"},
        None,
        None,
    ),
    (
        lambda c: c.my_account.factors(),
        "GET",
        f"{_PATH}/factors",
        None,
        {"factors": [{"id": "f1", "type": "authenticator"}], "recoveryCodes": 9, "canAdd": ["passkey"]},
        MyFactors(factors=(Factor(id="f1", type="authenticator"),), recovery_codes=9, can_add=("passkey",)),
    ),
    (
        lambda c: c.my_account.rename_factor("f1", "Key"),
        "PATCH",
        f"{_PATH}/factors/f1",
        {"name": "Key"},
        {"id": "f1", "type": "passkey", "name": "Key"},
        Factor(id="f1", type="passkey", name="Key"),
    ),
    (lambda c: c.my_account.remove_factor("f1"), "DELETE", f"{_PATH}/factors/f1", None, None, None),
    (
        lambda c: c.my_account.identities(),
        "GET",
        f"{_PATH}/identities",
        None,
        [{"id": "d1", "providerName": "Okta", "createdAt": 1, "lastUsedAt": 2}],
        [MyIdentity(id="d1", provider_name="Okta", created_at=1, last_used_at=2)],
    ),
    (lambda c: c.my_account.remove_identity("d1"), "DELETE", f"{_PATH}/identities/d1", None, None, None),
    (
        lambda c: c.my_account.impersonations(active=True),
        "GET",
        f"{_PATH}/impersonations?active=true&page_size=100",
        None,
        (IMPERSONATION | {"actorName": "Bob"},),
        [MyImpersonation(id="i1", user_id="u1", created_at=1, expires_at=2, actor_name="Bob")],
    ),
    (
        lambda c: c.my_account.end_impersonation("i1", reason="Enough."),
        "POST",
        f"{_PATH}/impersonations/i1/end",
        {"reason": "Enough."},
        None,
        None,
    ),
    (
        lambda c: c.my_account.sessions(),
        "GET",
        f"{_PATH}/sessions",
        None,
        [{"id": "s1", "userId": "u1", "address": "192.0.2.1", "isCurrent": True}],
        [MySession(id="s1", user_id="u1", address="192.0.2.1", is_current=True)],
    ),
    (lambda c: c.my_account.end_session("s1"), "DELETE", f"{_PATH}/sessions/s1", None, None, None),
    (
        lambda c: c.my_account.consents(),
        "GET",
        f"{_PATH}/consents",
        None,
        ({"applicationId": "a1", "applicationName": "Shop", "scopes": ["openid"]},),  # answered whole, not in pages
        [MyConsent(application_id="a1", application_name="Shop", scopes=("openid",))],
    ),
    (lambda c: c.my_account.withdraw_consent("a1"), "DELETE", f"{_PATH}/consents/a1", None, None, None),
]

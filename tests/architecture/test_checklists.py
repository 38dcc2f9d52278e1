"""Steps of CONTRIBUTING.md's checklists that nothing else would miss: tables of the source agree with each other."""

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import msgspec

import token_service.app
import token_service.grants
from identity_common import oauth
from identity_common.bus.connection import Bus
from provision.nats import NATS_PERMISSIONS
from stead import event_types
from stead.events import _identity_events as identity_events
from stead.sign_in import token_endpoint
from template_service.member_permissions.waiting import ENDS_A_WAIT
from tests.support.recorder import MINTED
from token_service.directory import InMemoryDirectory
from token_service.grants import TokenResponse
from token_service.grants.form import GrantForm
from token_service.openapi.endpoints import TokenForm
from token_service.parts.signing_keys import longest_lifetime_s

ROOT = Path(__file__).parents[2]
GRANT_MODULES = [
    importlib.import_module(f"token_service.grants.{each.name}")
    for each in pkgutil.iter_modules(token_service.grants.__path__)
]
RESULT = "member-permissions"
"""The public event that the others cause."""


def grant_types() -> set[str]:
    assert token_service.app.create_app, "imports every grant"
    return {str(form.__struct_config__.tag) for form in GrantForm.__subclasses__()}


def test_every_grant_type_has_a_form() -> None:
    assert grant_types() == {value for name, value in vars(oauth).items() if name.startswith("GRANT_")}


def test_scopes_of_every_grant_count_as_missing_only_after_catching_up() -> None:
    signing = [module for module in GRANT_MODULES if re.search(r"= TokenToSign\(", inspect.getsource(module))]
    assert len(signing) >= 3
    assert [each.__name__ for each in signing if "await granted_scopes(" not in inspect.getsource(each)] == []


def test_grants_for_users_check_that_the_user_is_live() -> None:
    """Where a holder of scopes is a user, one of the modules that check it has read the user."""
    checking = re.compile(r"why_user_not_live\(|SubjectTokens\b")
    for_users = [module for module in GRANT_MODULES if re.search(r"import .*\bUserHolder\b", inspect.getsource(module))]
    assert for_users
    assert [each.__name__ for each in for_users if not checking.search(inspect.getsource(each))] == []


def test_signing_keys_outlive_every_token_with_a_lifetime_of_its_own() -> None:
    empty = InMemoryDirectory(Bus("nats://127.0.0.1:9", service="token"), tenant_id="default")
    lifetimes = {
        value for module in GRANT_MODULES for name, value in vars(module).items() if name.endswith("_TOKEN_TTL_S")
    }
    assert lifetimes
    assert longest_lifetime_s(empty)() >= max(lifetimes)
    source = inspect.getsource(longest_lifetime_s)
    named = {name for module in GRANT_MODULES for name in vars(module) if name.endswith("_TOKEN_TTL_S")}
    assert [name for name in named if name not in source] == []


def test_opaque_tokens_are_introspected_revoked_and_searched_for() -> None:
    issued = {name for name in TokenResponse.__struct_fields__ if name.endswith("_token")}
    assert issued - MINTED.keys() == set()
    hints = msgspec.json.schema_components([TokenForm])[1]["TokenForm"]["properties"]["token_type_hint"]["enum"]
    assert issued - {"id_token"} == set(hints)


def test_the_sdk_offers_every_grant() -> None:
    sent = re.findall(r'"grant_type": (?:"(.+?)"|(\w+))', inspect.getsource(token_endpoint))
    assert grant_types() == {literal or vars(token_endpoint)[name] for literal, name in sent}


def test_every_public_state_is_an_event_of_the_sdk() -> None:
    states = {
        each for name, each in vars(event_types).items() if name.endswith("State") and issubclass(each, msgspec.Struct)
    }
    assert states == set(identity_events.STATES.values())


def test_token_service_reads_every_public_event() -> None:
    """Tokens depend on all of them so far; a kind that they do not depend on becomes an exception here."""
    sources = (ROOT / "services/token-service/src").rglob("*.py")
    of_template = re.compile(r'event_subject\("template"|^ +"template": \(\(')
    lines = [line for path in sources for line in path.read_text().splitlines() if of_template.search(line)]
    named = set(re.findall(r'"([a-z-]+)"', " ".join(lines)))
    assert identity_events.STATES.keys() - named == set()


def test_every_public_event_that_may_change_permissions_ends_a_wait() -> None:
    assert set(ENDS_A_WAIT) == identity_events.STATES.keys() - {RESULT}
    heard = {each for each in NATS_PERMISSIONS["template"].subscribe if each.startswith("identity.")}
    assert heard == {f"identity.*.{kind}.>" for kind in ENDS_A_WAIT}

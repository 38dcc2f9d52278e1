"""Keys of token requests in the audit trail."""

from pathlib import Path

import token_service.app
from token_service.audit.token_requests import OBJECTS
from token_service.grants.form import GrantForm

ROOT = Path(__file__).parents[3]


def test_every_grant_has_keys_in_the_audit_trail() -> None:
    """Without them its tokens would be recorded as ``token.other.succeeded``, like a grant that is unknown."""
    assert token_service.app.create_app, "imports every grant"
    tags = {form.__struct_config__.tag for form in GrantForm.__subclasses__()}
    assert tags == OBJECTS.keys()
    assert len(set(OBJECTS.values()) | {"other"}) == len(OBJECTS) + 1


def test_the_keys_of_every_grant_are_documented() -> None:
    document = (ROOT / "docs/audit.md").read_text()
    assert [name for name in OBJECTS.values() if f"`token.{name}." not in document] == []

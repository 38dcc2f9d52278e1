"""The JSON of entries of the audit trail: any text fits into it, and what cannot be stored is replaced and named."""

import json
from random import Random
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from identity_common.audited_request import AUDITED_REQUEST, AuditedRequest, audit_reason
from identity_common.wire.audit import AuditContext, AuditEntry
from identity_common.wire.audit_entries import MAX_ENTRY_BYTES, entry_json, storable
from management_service.audit.storing.messages import read_entries
from management_service.audit.tree.leaves import Parts, leaves_of, parts_of, plain_parts
from stead.audit.leaves import leaf_of, personal_hash

TEXT: Final = st.text(st.characters(exclude_categories=()), max_size=300) | st.sampled_from(
    ["\\u0000", "\\ud800", "\0", "\ud800", "o" * 257, "x" * 1_000_000, "\x01" * 5000, "\u202e"]
)
MEMBERS: Final[dict[str, Any]] = {
    **dict.fromkeys(("reason", "operation", "application_id", "user_id", "actor_id", "requested_by"), TEXT),
    **dict.fromkeys(("organization_id", "subject_token_id", "resource", "scope", "token_id"), TEXT),
    **dict.fromkeys(("issued_token_id", "request_id", "address", "user_agent"), TEXT),
    "context": st.builds(AuditContext, reason=TEXT, ticket_id=TEXT),
    "ids": st.dictionaries(TEXT, TEXT, max_size=2),
    "amr": st.lists(TEXT, max_size=3).map(tuple),
    "members": st.lists(TEXT, max_size=3).map(tuple),
    "given": st.dictionaries(TEXT, st.lists(TEXT, max_size=3).map(tuple), max_size=2),
    "aggregates": st.lists(TEXT, max_size=3).map(tuple),
    "expires_at": st.integers(-(2**63), 2**63 - 1),
}


def entry(**members: Any) -> AuditEntry:
    return AuditEntry(id="e", occurred_at=1, tenant_id="default", log="exchanges", sequence=1, key="k", **members)


def read(text: bytes) -> AuditEntry:
    (found,) = read_entries(text)
    assert found is not None
    assert_leaf(found.parts, msgspec.json.decode(found.text))
    return found.entry


def assert_leaf(parts: Parts, members: dict[str, Any]) -> None:
    """Require that an entry has the leaf that a verifier computes from the decoded entry and its salt."""
    (leaf,) = leaves_of([parts])
    assert leaf.hash == leaf_of(members, personal_hash(members, leaf.salt))


VALUES: Final[dict[str, Any]] = {
    **dict.fromkeys(
        ("reason", "operation", "userId", "address", "userAgent", "requestId", "scope"), st.text(max_size=300)
    ),
    **dict.fromkeys(
        ("expiresAt", "revision", "count"),
        st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.booleans(),
    ),
    "context": st.dictionaries(st.text(max_size=3), st.text(max_size=3) | st.none() | st.integers(), max_size=3),
    "ids": st.dictionaries(st.text(max_size=3), st.text(max_size=300), max_size=3),
    "given": st.dictionaries(st.text(max_size=3), st.lists(st.text(max_size=3), max_size=2), max_size=2),
    "aggregates": st.lists(st.text(max_size=3), max_size=3),
    "outcome": st.just("success"),
    "gap": st.fixed_dictionaries({}, optional={"from": st.integers()}),
    "later": st.text(max_size=3) | st.dictionaries(st.text(max_size=3), st.none(), max_size=2),
}
"""Of some members, in JSON that no release writes: defaults, nulls, any numbers, and members of later releases."""


@given(
    values=st.fixed_dictionaries({}, optional={name: each | st.none() for name, each in VALUES.items()}),
    order=st.randoms(),
    indent=st.none() | st.just(1),
    is_ascii=st.booleans(),
)
def test_any_json_has_the_leaf_of_its_members(
    values: dict[str, Any], order: Random, indent: int | None, *, is_ascii: bool
) -> None:
    members = [*values.items(), *msgspec.to_builtins(entry()).items()]
    order.shuffle(members)
    text = json.dumps(dict(members), indent=indent, ensure_ascii=is_ascii).encode()
    for found in read_entries(text):
        if found is not None:
            assert_leaf(found.parts, msgspec.json.decode(found.text))
    parts = plain_parts(text)
    if parts is not None:
        assert_leaf(parts, msgspec.json.decode(text))
        assert storable(msgspec.json.decode(text)) == msgspec.json.decode(text)


def test_what_the_services_write_has_its_leaf_without_a_closer_look() -> None:
    context = AuditContext(reason="Zoë's order", ticket_id="TCK-2077")
    written = entry(
        context=context, ids={"b": "1", "a": "2"}, given={"roleIds": ("x",)}, members=("name",), expires_at=1
    )
    assert plain_parts(entry_json(written)) == parts_of(msgspec.json.decode(entry_json(written)))


@given(members=st.fixed_dictionaries({}, optional=MEMBERS))
def test_any_entry_is_read_again_with_every_member_that_is_not_named_as_it_was(members: dict[str, Any]) -> None:
    published = entry(**members)
    encoded = entry_json(published)
    assert len(encoded) <= MAX_ENTRY_BYTES
    found = read(encoded)
    names = {field.encode_name: field.name for field in msgspec.structs.fields(AuditEntry)}
    altered = {names[each] for each in found.altered}
    for name in names.values():
        is_kept = getattr(found, name) == getattr(published, name)
        assert name == "altered" or is_kept is (name not in altered)
    assert "\0" not in str(msgspec.to_builtins(found))


@pytest.mark.parametrize("text", ["\\u0000", "\\ud800", "\u202e\u05e9\u05dc", "\x7f", "\U0001f600", '"', "1e999"])
def test_text_that_can_be_stored_stays_as_it_is(text: str) -> None:
    published = entry(user_agent=text, context=AuditContext(reason=text), ids={text: text})
    assert entry_json(published) == msgspec.json.encode(published)
    assert read(entry_json(published)) == published


@pytest.mark.parametrize("altered", [5, "text", {"a": 1}, [1, "reason", None]])
def test_what_a_publisher_says_was_altered_is_not_trusted(altered: object) -> None:
    found = read(msgspec.json.encode({**msgspec.to_builtins(entry()), "altered": altered, "reason": "a\0"}))
    assert (found.reason, set(found.altered)) == (
        "a\N{REPLACEMENT CHARACTER}",
        {"reason"} | ({"altered"} & set(found.altered)),
    )


def test_of_an_entry_that_is_too_large_the_largest_members_are_left_out() -> None:
    published = entry(given={"userIds": ("é" * 128,) * 100}, aggregates=("user/u",) * 100, user_agent="a")
    assert read(entry_json(published)) == entry(aggregates=("user/u",) * 100, user_agent="a", altered=("given",))


@pytest.mark.parametrize(
    ("text", "kept"),
    [(None, None), ("", None), ("  \t", None), ("\u200b\u2800 \u2060", None), (" found \n", "found")],
)
def test_a_reason_that_does_not_show_is_none(text: str | None, kept: str | None) -> None:
    request = AuditedRequest(
        operation="EndImpersonation", application_id=None, user_id=None, token_id="", address="", user_agent="", ids={}
    )
    before = AUDITED_REQUEST.set(request)
    audit_reason(text)
    AUDITED_REQUEST.reset(before)
    assert request.reason == kept

"""The encoding of a subject token record: the script that consumes it relies on the order of its members."""

from __future__ import annotations

import re

import msgspec

from identity_common.wire.subject_tokens import SubjectTokenRecord

RECORD = SubjectTokenRecord(
    id="t1",
    user_id="ann",
    issued_to="c1",
    issued_at=1,
    expires_at=2,
    revision=3,
    context=msgspec.Raw(b'{"user_id":"bob"}'),
)


def test_the_members_are_encoded_in_this_order() -> None:
    assert msgspec.json.encode(RECORD) == (
        b'{"type":"subject-token.v1","id":"t1","user_id":"ann","issued_to":"c1","issued_at":1,"expires_at":2,'
        b'"revision":3,"minted_at":0,"context":{"user_id":"bob"}}'
    )


def test_the_first_user_id_is_the_subjects_whatever_the_context_says() -> None:
    found = re.search(rb'"user_id":"([^"]*)"', msgspec.json.encode(RECORD))

    assert found is not None
    assert found[1] == b"ann"

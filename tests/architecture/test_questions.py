"""The table of questions over the bus in docs/architecture.md has every question that the permissions of NATS allow."""

import re
from pathlib import Path

from provision.nats import NATS_PERMISSIONS

PAGE = Path(__file__).parents[2] / "docs/architecture.md"
ROW = re.compile(r"^\| (\w+)-service \| (\w+)-service \| `([a-z-]+)` \|", re.MULTILINE)
SUBJECT = re.compile(r"identity-rpc\.\*\.([a-z-]+)")


def subjects(patterns: tuple[str, ...]) -> set[str]:
    return {match[1] for pattern in patterns if (match := SUBJECT.fullmatch(pattern))}


def test_the_table_of_questions_has_every_question_that_is_permitted() -> None:
    asked = {(user, each) for user, may in NATS_PERMISSIONS.items() for each in subjects(may.publish)}
    answered = {(user, each) for user, may in NATS_PERMISSIONS.items() for each in subjects(may.subscribe)}
    rows = ROW.findall(PAGE.read_text())
    assert sorted((asks, subject) for asks, _, subject in rows) == sorted(asked)
    assert sorted((answers, subject) for _, answers, subject in rows) == sorted(answered)

"""A refused value is answered with the allowed ones, nested members included."""

from typing import Literal

import msgspec
import pytest
from msgspec import UNSET, UnsetType

from identity_common.failures import Invalid, Issue
from identity_common.fields import Body
from identity_common.http.json_body import convert_body


class Inner(Body):
    color_scheme: Literal["light", "dark"]


class Outer(Body):
    kind: Literal["Native", "SPA"] | UnsetType = UNSET
    inner: Inner | UnsetType | None = UNSET
    several: tuple[Inner, ...] = ()
    by_name: dict[str, Inner] | None = None
    numbers: tuple[Literal[1, 2], ...] = ()


@pytest.mark.parametrize(
    ("body", "path", "allowed"),
    [
        ({"kind": "secret"}, "kind", "Native, SPA"),
        ({"inner": {"colorScheme": "secret"}}, "inner.colorScheme", "dark, light"),
        ({"several": [{"colorScheme": "dark"}, {"colorScheme": "x"}]}, "several[1].colorScheme", "dark, light"),
        ({"byName": {"any": {"colorScheme": "x"}}}, "byName[...].colorScheme", "dark, light"),
        ({"numbers": [1, 3]}, "numbers[1]", "1, 2"),
    ],
)
def test_the_issue_names_the_path_and_the_allowed_values(body: object, path: str, allowed: str) -> None:
    with pytest.raises(Invalid) as refused:
        convert_body(body, Outer)
    assert refused.value.data is not None
    assert refused.value.data.issues == [Issue(path=path, message=f"must be one of {allowed}")]


def test_other_faults_keep_their_message() -> None:
    with pytest.raises(Invalid) as refused:
        convert_body({"kind": 5, "inner": {"colorScheme": "dark", "extra": 1}}, Outer)
    assert refused.value.data is not None
    assert msgspec.to_builtins(refused.value.data.issues) == [
        {"path": "kind", "message": "Expected `str`, got `int`"},
        {"path": "inner", "message": "Object contains unknown field …"},
    ]

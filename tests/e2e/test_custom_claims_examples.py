"""The worked examples of docs/custom-claims.md: each script, with its input, gives the result beside it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from stead import ApiError, TestedClaims
from tests.support.running_stack import RunningStack

DOCUMENT = (Path(__file__).parents[2] / "docs" / "custom-claims.md").read_text()
EXAMPLES = {
    title: re.findall(r"```js(?:on)?\n(.*?)```", text, re.DOTALL)
    for title, text in re.findall(r"^### (\d\. [^\n]*)\n(.*?)(?=^### |\Z)", DOCUMENT, re.DOTALL | re.MULTILINE)
}


def test_there_are_five_examples_each_with_a_script_an_input_and_a_result() -> None:
    assert {title: len(blocks) for title, blocks in EXAMPLES.items()} == dict.fromkeys(EXAMPLES, 3)
    assert len(EXAMPLES) == 5


@pytest.mark.parametrize("title", EXAMPLES)
def test_an_example_gives_the_result_beside_it(stack: RunningStack, title: str) -> None:
    script, (given, expected) = EXAMPLES[title][0], map(json.loads, EXAMPLES[title][1:])
    assert result(stack, script, given) == expected


def result(stack: RunningStack, script: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return the claims, or code and message of the refusal."""
    try:
        tested = stack.management.custom_claims.test(
            given["tokenType"],
            script,
            token=given["token"],
            context=given["context"],
            environment_variables=given.get("environmentVariables"),
        )
    except ApiError as refused:
        return {"code": refused.code, "message": refused.message}
    assert tested == TestedClaims(claims=tested.claims)
    return tested.claims

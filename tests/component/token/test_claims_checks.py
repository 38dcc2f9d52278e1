"""What a worker says about a script: limits of one call, checks without a run, problems, denials."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.support.claims_pool import ECHO, SANDBOX, data, run
from tests.support.waiting import WAIT_S
from token_service.claims_function.sandbox import Claims, ClaimsWorkers, Denied, Limits, NotChecked, Problem
from token_service.claims_function.sandbox.outcomes import WORKER_DIED, read_check, read_run

pytestmark = pytest.mark.usefixtures("all_workers_are_back")


async def check(workers: ClaimsWorkers, script: str) -> Problem | None:
    async with await workers.reserve(within_s=WAIT_S) as slot:
        return await slot.check(script)


# Limits


async def test_every_limit_is_a_setting() -> None:
    limits = Limits(time_ms=5000, memory_mib=4, result_bytes=40, microtasks=20, nesting=2)
    awaits = (
        "const getCustomJwtClaims = async ({ context }) => { for (let i = 0; i < context; i++) await i; return {}; };"
    )
    async with ClaimsWorkers(limits, 1) as workers:
        assert await run(workers, ECHO, {"a": [1]}) == Claims({"a": [1]})
        assert await run(workers, ECHO, {"a": [[]]}) == Problem("result", "it nests deeper than 2 levels")
        assert await run(workers, ECHO, {"a": "x" * 32}) == Claims({"a": "x" * 32})
        assert await run(workers, ECHO, {"a": "x" * 33}) == Problem("result", "it is longer than 40 bytes")
        assert await run(workers, awaits, 10) == Claims({})
        assert await run(workers, awaits, 30) == Problem("microtasks", "more than 20 microtasks")
        outcome = await run(workers, "const getCustomJwtClaims = () => { new Uint8Array(4 << 20); };")
        assert isinstance(outcome, Problem)
        assert outcome.reason == "memory"


# Checks and positions

CHECKED: Final[dict[str, tuple[str, Problem | None]]] = {
    "a constant": ("const getCustomJwtClaims = async () => ({});", None),
    "a declaration": ("'use strict';\nasync function getCustomJwtClaims() {}", None),
    "a variable": ("var getCustomJwtClaims = () => ({})", None),
    "not run": ("for (;;);\nlet getCustomJwtClaims = () => ({}); // a comment", None),
    "a syntax error": (
        "const getCustomJwtClaims = () => {\n  return };\n  let = ;",
        Problem("syntax", "SyntaxError: unexpected token in expression: ';'", 3, 9),
    ),
    "a comment without an end": (
        "const getCustomJwtClaims = () => ({});\n/*",
        Problem("syntax", "SyntaxError: unexpected end of comment", 2, 1),
    ),
    "strict code": (
        "'use strict';\nfunction getCustomJwtClaims() { with (1) {} }",
        Problem("syntax", "SyntaxError: invalid keyword: with", 2, 33),
    ),
    "declared twice": (
        "let getCustomJwtClaims;\nlet getCustomJwtClaims;",
        Problem("syntax", "SyntaxError: invalid redefinition of lexical identifier", 2, 23),
    ),
    "a NUL character": (
        "const getCustomJwtClaims = () => ({});\n\0",
        Problem("syntax", "the script contains a NUL character", 2),
    ),
    "no function": (
        "const getCustomClaims = () => ({});",
        Problem("no-function", "the script declares no function getCustomJwtClaims"),
    ),
    "declared within another function": (
        "(() => { const getCustomJwtClaims = () => ({}); })();",
        Problem("no-function", "the script declares no function getCustomJwtClaims"),
    ),
    "empty": ("", Problem("no-function", "the script declares no function getCustomJwtClaims")),
    "a bracket that is not closed": (
        "const getCustomJwtClaims = () => {\n  return {};",
        Problem("syntax", "the script ends in the middle of a statement", 2, 13),
    ),
    "a bracket that is not closed, and a comment": (
        "const getCustomJwtClaims = () => {\n  return {};\r\n// done",
        Problem("syntax", "the script ends in the middle of a statement", 3, 8),
    ),
    "a condition without a statement": (
        "const getCustomJwtClaims = () => ({});\nif (globalThis.a)",
        Problem("syntax", "the script ends in the middle of a statement", 2, 18),
    ),
    "a label without a statement": (
        "const getCustomJwtClaims = () => ({});\nlabel:",
        Problem("syntax", "the script ends in the middle of a statement", 2, 7),
    ),
    "a last statement without a semicolon": ("var a = 1, getCustomJwtClaims = () => ({})\na", None),
    "closing brackets": (
        "}\nconst getCustomJwtClaims = () => ({});\n{",
        Problem("syntax", "SyntaxError: unexpected token in expression: '}'", 1, 1),
    ),
}


@pytest.mark.parametrize(("script", "problem"), CHECKED.values(), ids=CHECKED)
async def test_a_check_parses_and_does_not_run(workers: ClaimsWorkers, script: str, problem: Problem | None) -> None:
    assert await check(workers, script) == problem


async def test_a_check_that_exceeds_a_bound_names_it() -> None:
    many_functions = f"{ECHO}\n" + "(() => { let a = [1, 2, 3]; })();\n" * 8_000
    # The engine reads what is in parentheses once more for each of them, to find out whether it is an arrow function.
    many_parentheses = f"{ECHO}\n{'(' * 200}{'+1' * 30_000}{')' * 200};"
    async with ClaimsWorkers(Limits(time_ms=500, memory_mib=1), 1) as workers:
        assert await check(workers, many_functions) == Problem("memory", "it takes more than 1 MiB to parse")
    async with ClaimsWorkers(Limits(time_ms=20), 1) as workers:
        assert await check(workers, many_parentheses) == Problem("time", "it takes longer than 20 ms to parse")
        assert await check(workers, ECHO) is None


@pytest.mark.heavy
async def test_a_check_that_does_not_end_says_nothing_about_the_script() -> None:
    async with ClaimsWorkers(Limits(time_ms=50), 1) as workers:
        async with await workers.reserve(within_s=WAIT_S) as slot:
            os.kill(slot._worker.pid, signal.SIGSTOP)
            with pytest.raises(NotChecked, match=r"^time$"):
                await slot.check(ECHO)
        assert await check(workers, ECHO) is None


async def test_a_problem_has_its_position_in_the_script(workers: ClaimsWorkers) -> None:
    thrown = "const getCustomJwtClaims = async () => {\n  await null;\n  throw new TypeError('no');\n};"
    written = "const getCustomJwtClaims = () => ({\n  get a() { return null.b; },\n});"

    assert await run(workers, thrown) == Problem("exception", "TypeError: no", 3, 13)
    assert await run(workers, written) == Problem("result", "TypeError: cannot read property 'b' of null", 2, 1)
    assert await run(workers, "\n  nothing();") == Problem("exception", "ReferenceError: nothing is not defined", 2, 3)


@pytest.mark.parametrize(
    ("thrown", "message"),
    [
        ("'no'", "no"),
        ("{ code: 1 }", "an exception that cannot be described"),
        ("{ message: 'no' }", "no"),
        ("Symbol('no')", "an exception that cannot be described"),
    ],
)
async def test_what_is_thrown_is_described(workers: ClaimsWorkers, thrown: str, message: str) -> None:
    expected = Problem("exception", message)
    assert await run(workers, f"const getCustomJwtClaims = () => {{ throw {thrown}; }};") == expected


async def test_a_symbol_that_is_thrown_outside_the_function_is_an_exception(workers: ClaimsWorkers) -> None:
    expected = Problem("exception", "an exception that cannot be described")
    assert await run(workers, "throw Symbol('no');") == expected


async def test_a_number_that_no_float_holds_is_a_problem_of_the_result(workers: ClaimsWorkers) -> None:
    script = "const getCustomJwtClaims = () => ({ limit: JSON.rawJSON('1e999') });"
    assert await run(workers, script) == Problem("result", "a number is out of range")


@pytest.mark.parametrize("answer", [b"", b"X", b"C", b"P{}", b'P{"reason":"bored","message":""}', b'D"\xff"', b"P\xff"])
def test_an_answer_that_no_worker_gives_counts_as_the_end_of_the_worker(answer: bytes) -> None:
    """A script that has broken out of the engine writes what it likes."""
    assert read_run(answer, Limits()) in {WORKER_DIED, Problem("result", "it is not valid JSON in UTF-8")}
    assert read_check(answer) == WORKER_DIED


# A denial that the engine has to end: in a process without the kernel's timer, so that the engine's is first.

DENIES_AND_LOOPS: Final = """
const getCustomJwtClaims = ({ api }) => {
  try { api.denyAccess('no'); } catch { for (;;); }
};
"""
ANSWERED: Final = """
import json, sys
sys.path.insert(0, sys.argv[1])
import worker

start, script, data = json.loads(sys.argv[2])
print(json.dumps(worker.Worker(start)._answer(b"R", script.encode(), data.encode())))
"""


def test_a_denial_stands_although_the_function_then_runs_out_of_time() -> None:
    engine = importlib.util.find_spec("_quickjs")
    assert engine is not None
    assert engine.origin is not None
    start = {
        "engine_directory": str(Path(engine.origin).parent),
        "harness": (SANDBOX / "harness.js").read_text(),
        "describe": (SANDBOX / "describe.js").read_text(),
        "wall_ms": 50,
        "memory_bytes": 32 << 20,
        "result_bytes": 1024,
        "microtasks": 10,
    }
    sent = json.dumps([start, DENIES_AND_LOOPS, data({}).decode()])
    answer = subprocess.run(
        [sys.executable, "-I", "-c", ANSWERED, str(SANDBOX), sent], check=True, capture_output=True
    ).stdout

    assert json.loads(answer) == ["E", '"no"']
    assert read_run(b'E"no"', Limits()) == Denied("no", out_of_time=True)

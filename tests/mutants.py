"""Mutation testing of the critical packages: `make mutants`.

Changes one decision at a time in a copy of the tree, runs the tests that should fail, and prints the mutants that
survive. Run by hand: a survivor is either a missing test or an equivalent mutant, and only a reader can tell.

Other runners do not fit this tree. mutmut 3.8 expects one ``src`` directory: with our six it found no test for any
mutant; and it does not mutate code outside of functions (SQL, Lua, limits). cosmic-ray 8.7 has one test command for all
modules, takes no sample, changes the work tree itself unless it is given clones over HTTP, and has no operator that
drops a condition, the most important mutant here.

The sample is fixed: the mutants with the lowest digests. A digest covers the seed, the function and the change, so that
a change elsewhere, or a moved module, leaves the rest of the sample unchanged.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

COMMON, TOKEN, MANAGEMENT, TEMPLATE, SDK = (
    "libs/common/src/identity_common",
    "services/token-service/src/token_service",
    "services/management-service/src/management_service",
    "services/template-service/src/template_service",
    "libs/sdk/src/stead",
)
# Paths to mutate, and the tests that should fail, quick ones first. The first matching row counts.
MUTATED: Final[tuple[tuple[str, str], ...]] = (
    (f"{COMMON}/sealing.py", "unit/common/test_sealing.py"),
    (
        f"{TOKEN}/grants/client_authentication.py",
        "unit/token/test_client_authentication.py protocol/test_rfc6749_token_endpoint.py "
        "protocol/test_awaited_revision.py",
    ),
    (
        f"{TOKEN}/grants/",
        "unit/token/test_form.py unit/token/test_grants.py unit/token/test_targets.py protocol/test_rfc6749_* "
        "protocol/test_rfc7636_pkce.py protocol/test_rfc8693_* protocol/test_rfc8707_* protocol/test_oidc_* "
        "protocol/test_organization_tokens* component/token/test_bad_input_* protocol/test_awaited_revision.py "
        "component/audit/test_exchanges.py",
    ),
    (
        f"{TOKEN}/tokens/",
        "unit/token/test_claims.py unit/token/test_scopes.py unit/token/test_signing.py "
        "unit/test_tokens_valid_after.py component/token/test_signing_keys.py "
        "component/token/test_retired_signing_keys.py "
        "protocol/test_rfc7517_jwks.py protocol/test_rfc9068_access_token.py protocol/test_oidc_* "
        "pages/test_id_token_hint.py protocol/test_rfc8693_*",
    ),
    (f"{TOKEN}/presented_tokens/revocations/", "component/token/test_revocations.py protocol/test_rfc7009_*"),
    (
        f"{TOKEN}/presented_tokens/",
        "component/token/test_taking_subject_tokens.py protocol/test_rfc8693_* protocol/test_rfc7662_* "
        "protocol/test_oidc_userinfo.py protocol/test_ended_impersonations.py security/test_token_classes.py",
    ),
    (
        f"{TOKEN}/claims_function/answers.py",
        "component/token/test_claims_function_answers.py component/management/test_claims_function* "
        "protocol/test_custom_claims.py",
    ),
    (
        f"{TOKEN}/claims_function/rules.py",
        "unit/token/test_claims_function_rules.py component/management/test_claims_function* "
        "protocol/test_custom_claims.py",
    ),
    (
        f"{MANAGEMENT}/claims_function/rules.py",
        "component/management/test_claims_function* component/management/test_refusals.py",
    ),
    (
        f"{MANAGEMENT}/impersonations/own_routes.py",
        "component/audit/test_own_impersonations.py component/audit/test_impersonations_of_members.py",
    ),
    (
        f"{MANAGEMENT}/impersonations/r",  # register, routes and rules
        "component/audit/test_ending_impersonations.py component/audit/test_impersonation_register.py "
        "component/audit/test_own_impersonations.py",
    ),
    (f"{MANAGEMENT}/audit/storing/erasure.py", "component/audit/test_erasure.py"),
    (f"{MANAGEMENT}/audit/tree/proofs.py", "component/audit/test_tree.py component/audit/test_reading.py"),
    (f"{MANAGEMENT}/audit/tree/tiles.py", "component/audit/test_tree.py component/audit/test_ingestion.py"),
    (
        f"{TOKEN}/not_valid/",
        "unit/token/test_not_valid_tail.py component/token/test_not_valid_feed.py "
        "component/token/test_not_valid_replicas.py component/token/test_not_valid_keys.py "
        "component/token/test_lost_permissions.py",
    ),
    (
        f"{COMMON}/access/",
        "component/token/test_revocations.py component/management/test_authentication.py "
        "protocol/test_ended_impersonations.py",
    ),
    (
        f"{TOKEN}/authorizations/",
        "unit/token/test_consented.py component/token/test_authorizations.py component/token/test_forgetting.py "
        "protocol/test_rfc6749_authorization_code.py "
        "protocol/test_rfc6749_refresh_token.py protocol/test_rfc7009_* pages/test_consents.py "
        "pages/test_codes_under_way.py",
    ),
    (
        f"{TEMPLATE}/fan_out/",
        "component/template/test_effective_permissions.py component/template/test_permission_cache.py "
        "component/template/test_waiting.py component/template/test_fan_out.py",
    ),
    (
        f"{TEMPLATE}/member_permissions/",
        "protocol/test_rfc7240_prefer.py component/template/test_effective_permissions.py "
        "component/template/test_permission_cache.py component/template/test_waiting.py "
        "component/template/test_fan_out.py",
    ),
    (
        f"{SDK}/verify/verifiers.py",
        "unit/sdk/test_verified_tokens.py unit/sdk/test_key_source.py protocol/test_rfc9068_*verification.py",
    ),
    (f"{SDK}/verify/access_tokens.py", "unit/sdk/test_verified_tokens.py protocol/test_rfc9068_*verification.py"),
    (f"{SDK}/verify/signed_tokens.py", "unit/sdk/test_verified_tokens.py protocol/test_rfc9068_*verification.py"),
    (
        f"{SDK}/verify/feed/",
        "unit/sdk/test_not_valid_feed.py component/token/test_not_valid_feed_in_verifiers.py",
    ),
    (f"{SDK}/audit/tree.py", "unit/sdk/test_audit_tree.py component/audit/test_tree.py"),
    (
        f"{SDK}/verify/key",
        "unit/sdk/test_key_set.py unit/sdk/test_key_source.py protocol/test_rfc9068_*verification.py",
    ),
)
TOO_LONG: Final = (
    "component/template/test_fan_out.py::test_a_message_too_large_says_that_it_is_incomplete",
    "component/template/test_waiting.py::test_the_wait_ends_after_20_seconds",
    "protocol/test_rfc6749_token_endpoint.py::TestOrderOfRefusals::test_refusals_come_in_the_documented_order",
)
"""Slow tests that are not run for every mutant."""

ROOT: Final = Path(__file__).parents[1]
NOT_COPIED: Final = shutil.ignore_patterns(".git", ".venv", ".local", "__pycache__", ".*_cache", "node_modules")
GRACE_S: Final = 60.0
LONGEST_S: Final = 900.0
_KILLED: Final = ("failed", "hung")

_TIMED_OUT: Final = "Failed: Timeout ("  # of a single test, by pytest-timeout
_FIRST_FAILURE: Final = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)

_OTHER_COMPARISON: Final[dict[type[ast.cmpop], str]] = {
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
_LIMIT: Final = 16  # larger numbers are limits and times, where an error of one is harmless
_CONDITIONS: Final = {"where", "and_", "or_"}
_STEPS: Final = {"where", "with_for_update", "on_conflict_do_update", "order_by"}
# In SQL and Lua; the first match at a place counts.
_IN_SCRIPTS: Final = (
    (re.compile(r" AND (?!CURRENT)"), " OR "),
    (re.compile(r" and "), " or "),
    (re.compile(r" IS NULL"), " IS NOT NULL"),
    (re.compile(r" IS NOT NULL"), " IS NULL"),
    (re.compile(r" >= "), " > "),
    (re.compile(r" <= "), " < "),
    (re.compile(r" > "), " >= "),
    (re.compile(r" < "), " <= "),
    (re.compile(r" ~= "), " == "),
    (re.compile(r" == "), " ~= "),
)
_SCRIPT: Final = re.compile(r"\b(SELECT|UPDATE|DELETE FROM|INSERT INTO)\b|redis\.call")


@dataclass(frozen=True)
class Mutant:
    """One change to one file.

    Attributes:
        path: Path of the file, from the root.
        line: Line of the change.
        shown: Where printing begins, shortly before the texts differ; scripts are long.
        begin: Offset of the replaced text, in bytes.
        end: Offset of its end.
        before: The replaced text.
        after: The replacement.
        digest: The sample has the lowest ones.
    """

    path: str
    line: int
    shown: int
    begin: int
    end: int
    before: str
    after: str
    digest: str

    def apply(self, root: Path) -> None:
        source = (ROOT / self.path).read_bytes()
        (root / self.path).write_bytes(source[: self.begin] + self.after.encode() + source[self.end :])

    def undo(self, root: Path) -> None:
        (root / self.path).write_bytes((ROOT / self.path).read_bytes())

    def __str__(self) -> str:
        before, after = (" ".join(text[self.shown :].split()) or "nothing" for text in (self.before, self.after))
        return f"{self.path}:{self.line}\n      {before[:120]}\n   -> {after[:120]}"


class Places(ast.NodeVisitor):
    """Finds the places in a file that can be mutated."""

    def __init__(self, source: bytes) -> None:
        self.found: list[tuple[str, ast.AST, int, int, str]] = []
        self._source = source
        self._lines = [0]
        for line in source.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self._within = "module"

    def _span(self, node: ast.AST) -> tuple[int, int]:
        assert isinstance(node, ast.expr | ast.stmt)
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self._lines[node.lineno - 1] + node.col_offset,
            self._lines[node.end_lineno - 1] + node.end_col_offset,
        )

    def _text(self, node: ast.AST) -> str:
        begin, end = self._span(node)
        return self._source[begin:end].decode()

    def _replace(self, node: ast.AST, after: str) -> None:
        self.found.append((self._within, node, *self._span(node), after))

    def _visit_scope(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        if node.name == "__repr__":
            return
        outer, self._within = self._within, node.name if self._within == "module" else f"{self._within}.{node.name}"
        if not isinstance(node, ast.ClassDef):
            for default in (*node.args.defaults, *node.args.kw_defaults):
                if default is not None:
                    self.visit(default)
        for statement in node.body:
            self.visit(statement)
        self._within = outer

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _visit_scope  # noqa: N815

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):  # a docstring
            return
        if isinstance(node.value, ast.Call) and self._text(node.value.func).startswith("_log."):
            return
        self._replace(node, "pass")
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._replace(node, "pass")

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._replace(node, "pass")
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def _negate(self, test: ast.expr) -> None:
        if not isinstance(test, ast.Compare | ast.UnaryOp):  # these have their own mutants
            self._replace(test, f"not ({self._text(test)})")

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._replace(node, f"({self._text(node.operand)})")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        if len(node.ops) == 1:
            left, right = self._text(node.left), self._text(node.comparators[0])
            self._replace(node, f"{left} {_OTHER_COMPARISON[type(node.ops[0])]} {right}")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        word = " and " if isinstance(node.op, ast.And) else " or "
        for dropped in node.values:
            kept = [f"({self._text(value)})" for value in node.values if value is not dropped]
            self._replace(node, f"({word.join(kept)})")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.op, ast.BitAnd | ast.BitOr | ast.Add | ast.Sub):
            self._replace(node, self._text(node.left))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in _CONDITIONS and len(node.args) > 1 and not node.keywords:
            for dropped in node.args:
                kept = [self._text(argument) for argument in node.args if argument is not dropped]
                self._replace(node, f"{self._text(node.func)}({', '.join(kept)})")
        if name in _STEPS and isinstance(node.func, ast.Attribute):
            self._replace(node, self._text(node.func.value))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._replace(node, str(not node.value))
        elif isinstance(node.value, int):
            self._replace(node, f"({self._text(node)} {'+ 1' if node.value < _LIMIT else '// 2'})")
        elif isinstance(node.value, str) and _SCRIPT.search(node.value):
            text = self._text(node)
            for pattern, other in _IN_SCRIPTS:
                for match in pattern.finditer(text):
                    self._replace(node, text[: match.start()] + other + text[match.end() :])

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Skip f-strings: their text is for people."""


def mutants_of(path: str, seed: int) -> Iterator[Mutant]:
    """Yield every mutant of a Python file."""
    source = (ROOT / path).read_bytes()
    places = Places(source)
    places.visit(ast.parse(source))
    repeated: Counter[str] = Counter()
    for within, node, begin, end, after in places.found:
        before = source[begin:end].decode()
        change = f"{seed} {within} {before} -> {after}"
        repeated[change] += 1
        digest = hashlib.sha256(f"{change} {repeated[change]}".encode()).hexdigest()
        try:
            ast.parse(source[:begin] + after.encode() + source[end:])
        except SyntaxError:
            continue
        first = next((at for at, (old, new) in enumerate(zip(before, after, strict=False)) if old != new), 0)
        line = node.lineno + (before[:first].count("\n") if isinstance(node, ast.Constant) else 0)  # type: ignore[attr-defined]
        yield Mutant(path, line, max(0, first - 40), begin, end, before, after, digest)


def all_mutants(seed: int) -> list[tuple[Mutant, str]]:
    """Return every mutant with the tests that should fail."""
    found = []
    for path in sorted(each.relative_to(ROOT).as_posix() for each in ROOT.glob("*/*/src/**/*.py")):
        tests = next((tests for prefix, tests in MUTATED if path.startswith(prefix)), None)
        if tests is not None:
            found += [(mutant, tests) for mutant in mutants_of(path, seed)]
    unused = [prefix for prefix, _ in MUTATED if not any(mutant.path.startswith(prefix) for mutant, _ in found)]
    if unused:
        raise SystemExit(f"no code at: {', '.join(unused)}; see MUTATED in {__file__}")
    return found


def run_tests(root: Path, tests: str, *, timeout_s: float) -> tuple[str, str]:
    """Run tests in a copy of the tree; return ``passed``, ``failed`` or ``hung``, and the first test that failed."""
    files = [path for pattern in tests.split() for path in sorted((root / "tests").glob(pattern))]
    if not files:
        raise SystemExit(f"no such tests: {tests}")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, sorted(root.glob("*/*/src")))),
        "PYTHONDONTWRITEBYTECODE": "1",  # a cache cannot tell two mutants of one size and second apart
    }
    output = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:schemathesis", "-m", "not clients"),
            *(f"--deselect=tests/{test}" for test in TOO_LONG),
            *map(str, files),
        ],
        cwd=root,
        env=environment,
        stdout=output,
        stderr=output,
    )
    try:
        outcome = "passed" if process.wait(timeout_s) == 0 else "failed"
    except subprocess.TimeoutExpired:
        outcome = "hung"
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)  # so that it stops its servers
            try:
                process.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    with output:
        output.seek(0)
        said = output.read()
    if _TIMED_OUT in said:
        outcome = "hung"
    first = _FIRST_FAILURE.search(said)
    return outcome, first[1] if first else ""


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class Runner:
    """Runs the tests on mutants, several at once, each in its own copy of the tree."""

    def __init__(self, copies: Path, jobs: int) -> None:
        self._copies: queue.SimpleQueue[Path] = queue.SimpleQueue()
        self._jobs = jobs
        self._limits_s = defaultdict[str, float](lambda: LONGEST_S)
        for number in range(jobs):
            copy = copies / str(number)
            shutil.copytree(ROOT, copy, ignore=NOT_COPIED, symlinks=True)
            self._copies.put(copy)

    def require_green(self, tests: set[str]) -> None:
        """Run every set of tests without a mutant: it must pass, and its duration sets the time limit."""
        with ThreadPoolExecutor(self._jobs) as threads:
            for each, outcome in zip(sorted(tests), threads.map(self._time, sorted(tests)), strict=True):
                if outcome != "passed":
                    raise SystemExit(f"without a mutant these tests {outcome}: {each}")

    def _time(self, tests: str) -> str:
        copy, began = self._copies.get(), time.monotonic()
        outcome, first = run_tests(copy, tests, timeout_s=LONGEST_S)
        self._copies.put(copy)
        self._limits_s[tests] = 3 * (time.monotonic() - began) + GRACE_S
        return f"{outcome} ({first})" if first else outcome

    def judge(self, sample: list[tuple[Mutant, str]]) -> list[tuple[Mutant, str]]:
        """Return the sample with its outcomes."""
        with ThreadPoolExecutor(self._jobs) as threads:
            return list(threads.map(self._judge, sample))

    def _judge(self, candidate: tuple[Mutant, str]) -> tuple[Mutant, str]:
        mutant, tests = candidate
        copy, began = self._copies.get(), time.monotonic()
        mutant.apply(copy)
        outcome, first = run_tests(copy, tests, timeout_s=self._limits_s[tests])
        mutant.undo(copy)
        if outcome == "hung" and run_tests(copy, tests, timeout_s=self._limits_s[tests])[0] != "passed":
            outcome = "slow"  # without the mutant too: the machine is busy, and nothing is known
        self._copies.put(copy)
        say(f"{outcome:6} after {time.monotonic() - began:3.0f} s: {mutant}\n      {first}")
        return mutant, outcome


def main() -> None:
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a shell's background jobs ignore it, and so would the tests
    parser = argparse.ArgumentParser(
        description="Change the code, one decision at a time, and check that a test fails."
    )
    parser.add_argument("--count", type=int, default=100, help="number of mutants (default: 100)")
    parser.add_argument("--seed", type=int, default=12, help="seed of the sample (default: 12)")
    parser.add_argument("--only", default="", help="only paths that contain this")
    parser.add_argument(
        "--again", nargs="+", metavar="PATH:LINE", help="of the sample, only the mutants whose place begins like one"
    )
    parser.add_argument(
        "--trust", action="store_true", help="do not run the tests without a mutant first; a run has 15 minutes"
    )
    parser.add_argument("--jobs", type=int, default=2, help="number of parallel runs (default: 2)")
    parser.add_argument("--list", action="store_true", help="show the sample and run nothing")
    options = parser.parse_args()
    candidates = [each for each in all_mutants(options.seed) if options.only in each[0].path]
    sample = sorted(candidates, key=lambda each: each[0].digest)[: options.count]
    if options.again:
        sample = [each for each in sample if f"{each[0].path}:{each[0].line}".startswith(tuple(options.again))]
    say(f"{len(sample)} of {len(candidates)} mutants, seed {options.seed}")
    if options.list:
        say("\n".join(str(mutant) for mutant, _ in sample))
        return
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutants-") as copies:
        runner = Runner(Path(copies), options.jobs)
        if not options.trust:
            runner.require_green({tests for _, tests in sample})
        judged = runner.judge(sample)
    by_package: defaultdict[str, Counter[bool]] = defaultdict(Counter)
    for mutant, outcome in judged:
        by_package[mutant.path.partition("/src/")[2].rpartition("/")[0]][outcome in _KILLED] += 1
    say("\nnot killed:")
    for mutant, outcome in judged:
        if outcome not in _KILLED:
            say(f"  {outcome}: {mutant}")
    say("")
    for package, counts in sorted(by_package.items()):
        say(f"  {package}: {counts[True]} of {counts.total()} killed")
    outcomes = Counter(outcome for _, outcome in judged)
    killed = sum(outcomes[each] for each in _KILLED)
    took_min = (time.monotonic() - began) / 60
    say(
        f"{killed} of {len(judged)} killed ({100 * killed / len(judged):.0f} %; {outcomes['hung']} by a hang), "
        f"{outcomes['slow']} unknown, {took_min:.0f} min"
    )


if __name__ == "__main__":
    main()

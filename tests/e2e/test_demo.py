"""``make demo`` against the running stack: its own process, with output for people."""

import io
import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from all_in_one.demo.__main__ import main
from stead import OrganizationRole
from tests.support.running_stack import RunningStack

pytestmark = pytest.mark.heavy

TIMEOUT_S = 120


def demo(directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "all_in_one.demo", "--directory", str(directory)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def demo_here(directory: Path, monkeypatch: pytest.MonkeyPatch) -> subprocess.CompletedProcess[str]:
    """Do the same in a thread: a process takes more than a second of CPU time to start."""
    monkeypatch.setattr(sys, "argv", ["demo", "--directory", str(directory)])
    with (
        redirect_stdout(io.StringIO()) as output,
        redirect_stderr(io.StringIO()) as errors,
        ThreadPoolExecutor(1) as thread,  # it runs an event loop of its own
    ):
        status = thread.submit(main).result(TIMEOUT_S)
    return subprocess.CompletedProcess(sys.argv, status, output.getvalue(), errors.getvalue())


def shown(output: str, name: str) -> list[str]:
    """Return the values that the output shows under a name, without the remarks."""
    lines = (line.strip().partition("  ") for line in output.splitlines() if line.startswith("  "))
    return [value.partition("   <- ")[0] for found, _, value in lines if found == name]


@pytest.fixture(scope="module")
def first_run(stack: RunningStack, run_directory: Path) -> subprocess.CompletedProcess[str]:
    """The first run of the demo on this stack."""
    return demo(run_directory)


def test_the_demo_shows_its_acts_and_can_be_run_again(
    stack: RunningStack,
    run_directory: Path,
    first_run: subprocess.CompletedProcess[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent, customer = stack.credentials.demo.users
    for finished in (first_run, demo_here(run_directory, monkeypatch)):
        assert (finished.returncode, finished.stderr) == (0, "")
        output = finished.stdout
        supporter, engineer = shown(output, "signed in")
        assert supporter == f"Support agent ({agent.id})"
        assert engineer.startswith("Maya Okafor (")
        assert shown(output, "iss") == [stack.issuer]
        assert shown(output, "sub") == [customer.id] * 3 + [engineer.partition("(")[2].rstrip(")")]
        assert [json.loads(act) for act in shown(output, "act")] == [{"sub": agent.id}]
        assert shown(output, "ticket_id") == ["TCK-1042"]
        spent, ended, lost, closed = shown(output, "refused")
        assert spent == "400 invalid_request: the subject token or the actor token is not acceptable"
        assert re.fullmatch(r"ended_\w+, \d+ ms after the end was acknowledged", ended)
        assert re.fullmatch(r"stale_permissions, \d+ ms after the provider said who had signed in", lost)
        assert closed.startswith("ended_")
        assert shown(output, "accepted") == [f"sub {customer.id}, no request to the issuer"]
        assert shown(output, "issued") == ["subject-token.issued"]
        assert re.fullmatch(r"entry \d+ of \d+ in a tree whose head is signed", shown(output, "verified")[-1])
        assert shown(output, "scope") == [
            *("read:orders write:orders", "approve:refunds", "(nothing)"),
            *("restart:services", "(nothing)"),
        ]
        heard = [line.split()[2:] for line in output.splitlines() if line.strip().startswith("version ")]
        assert [change for change, _ in heard] == ["+approve:refunds", "-approve:refunds"]
        assert stack.recorder.found([output]) == []


@pytest.mark.usefixtures("first_run")
def test_it_continues_where_an_earlier_run_stopped(
    stack: RunningStack, run_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    role = the_role(stack)
    permission = next(
        each for each in stack.management.organization_permissions.list() if each.name == "approve:refunds"
    )
    stack.management.organization_roles.assign_permissions(role.id, [permission.id])
    finished = demo_here(run_directory, monkeypatch)
    assert (finished.returncode, shown(finished.stdout, "scope")[1:3]) == (0, ["approve:refunds", "(nothing)"])
    assert the_role(stack).scopes == []


def the_role(stack: RunningStack) -> OrganizationRole:
    return next(each for each in stack.management.organization_roles.list() if each.name == "Demo refund clerk")


def test_a_stack_that_is_not_running_is_reported_in_one_line(
    stack: RunningStack,
    run_directory: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refusal(directory: Path) -> str:
        finished = demo_here(directory, monkeypatch)
        assert finished.returncode == 1
        assert finished.stdout == ""
        assert finished.stderr.count("\n") == 1
        return finished.stderr

    assert refusal(tmp_path) == (
        f"error: there is no {tmp_path}/credentials.json; start the stack first, in another terminal: make run\n"
    )

    written = (run_directory / "credentials.json").read_text()
    (tmp_path / "credentials.json").write_text(written.replace(stack.base_url, "http://127.0.0.1:9"))
    finished = demo_here(tmp_path, monkeypatch)
    assert finished.returncode == 1
    assert finished.stderr.startswith("error: http://127.0.0.1:9: ")
    assert finished.stderr.endswith("is `make run` running?\n")
    assert finished.stderr.count("\n") == 1

    (tmp_path / "unreadable" / "credentials.json").mkdir(parents=True)
    assert refusal(tmp_path / "unreadable") == (f"error: {tmp_path}/unreadable/credentials.json: Is a directory\n")


def test_a_refused_password_is_not_sent_until_the_account_is_throttled(
    stack: RunningStack, run_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = stack.credentials.demo.users[0]
    written = (run_directory / "credentials.json").read_text()
    (tmp_path / "credentials.json").write_text(written.replace(agent.password, "another"))
    finished = demo_here(tmp_path, monkeypatch)
    assert (finished.returncode, finished.stderr.count("\n")) == (1, 1)
    assert "password_refused: the password is not accepted: it was changed" in finished.stderr
    stack.management.users.clear_sign_in_attempts(agent.id)

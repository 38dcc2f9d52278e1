"""The shell commands in the READMEs and in docs/getting-started.md, run as they are pasted."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import free_port
from tests.support.running_stack import RunningStack

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 120


@pytest.fixture
def checkout(stack: RunningStack, run_directory: Path, tmp_path: Path) -> Path:
    """A directory that looks like the top of the repository while the stack runs."""
    for name, target in {".venv": sys.prefix, ".local": run_directory, "examples": ROOT / "examples"}.items():
        (tmp_path / name).symlink_to(target)
    return tmp_path


def pasted(readme: str, checkout: Path, *, port: int | None = None) -> str:
    """Run the commands of a README that use the credentials; return their output.

    Args:
        readme: Path of the README.
        checkout: Directory to run in; background jobs end with the shell.
        port: Replaces the port in the README.
    """
    blocks = [block.split("```")[0] for block in (ROOT / readme).read_text().split("```sh\n")[1:]]
    commands = next(block for block in blocks if "./.local/credentials.env" in block)
    if port is not None:
        commands = re.sub(r"\b800[0-9]\b", str(port), commands)
    finished = subprocess.run(
        ["bash", "-c", f"trap 'kill $(jobs -p)' EXIT\n{commands}"],
        cwd=checkout,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return finished.stdout


@pytest.mark.heavy
def test_the_walk_through_ends_with_the_claims_of_an_access_token(checkout: Path, stack: RunningStack) -> None:
    agent, customer = stack.credentials.demo.users
    claims, _ = json.JSONDecoder().raw_decode(pasted("docs/getting-started.md", checkout))
    assert (claims["sub"], claims["act"], claims["scope"]) == (
        customer.id,
        {"sub": agent.id},
        "read:orders write:orders",
    )
    decoded = json.loads((ROOT / "README.md").read_text().split("```json\n")[1].split("```")[0])
    assert decoded.keys() == claims.keys()


@pytest.mark.heavy
@pytest.mark.parametrize("example", ["orders-api-litestar", "orders-api-starlette"])
def test_the_example_apis_answer_as_their_readmes_say(checkout: Path, stack: RunningStack, example: str) -> None:
    printed = pasted(f"examples/{example}/README.md", checkout, port=free_port())
    customer = stack.credentials.demo.users[1].id
    answers = [json.loads(answer) for answer in re.findall(r'\{"sub".*\}', printed)]
    assert answers == [
        {"sub": customer, "act": None, "orders": []},
        {"sub": customer, "act": None, "orders": ["tea"]},
    ], printed
    assert "401 Unauthorized" in printed

"""What the tests of docs/guides share: the code in a guide as files, and the tokens that its API meets."""

import os
import re
import shlex
import subprocess
from pathlib import Path

from tests.support.world import World

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
_FILE = re.compile(r"^```\w+\n(?:#|//) ([\w-]+\.(?:py|mjs|sh))\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def code_of(guide: str) -> dict[str, str]:
    """Return the code of a guide by file name: every block whose first line is a comment with one."""
    files = dict(_FILE.findall((GUIDES / guide).read_text()))
    assert files, guide
    return files


def write_code(guide: str, directory: Path) -> None:
    """Write the code of a guide into a directory."""
    for name, code in code_of(guide).items():
        (directory / name).write_text(code)


def replaced(code: str, replacements: dict[str, str]) -> str:
    """Return the code with each text, which must be there exactly once, replaced."""
    for text, replacement in replacements.items():
        assert code.count(text) == 1, text
        code = code.replace(text, replacement)
    return code


def called(guide: str, port: int, run_directory: Path, directory: Path) -> list[int]:
    """Run ``call.sh`` of a guide against its API on a port; return the statuses of the API's answers."""
    (directory / ".local").symlink_to(run_directory)
    address = f"http://127.0.0.1:{port}/orders"
    is_accepted = f'curl -sfo /dev/null {address} -H "Authorization: Bearer $TOKEN"'
    code = code_of(guide)["call.sh"].replace("http://127.0.0.1:8001/orders", address)
    code = code.replace("sleep 1\n", f"while {is_accepted}; do sleep 0.1; done\n")
    printed = subprocess.check_output(["sh", "-ec", code], cwd=directory, text=True, timeout=60)
    return [int(status) for status in re.findall(r"^HTTP/1.1 (\d+)", printed, re.MULTILINE)]


class DemoTokens:
    """Access tokens for the demo's API, as request headers.

    Attributes:
        audience: Indicator of that API.
        agent: Id of the actor.
        customer: Id of the subject.
        organization: An organization in which a member may read orders.
        right: The agent acts as the customer, who may read orders.
        narrow: The customer may change orders, not read them.
        within: The member may read orders, in the organization only.
    """

    def __init__(self, world: World) -> None:
        self._stack = world.stack
        demo = world.stack.credentials.demo
        self.audience = demo.resource
        self.agent, self.customer = (user.id for user in demo.users)
        resources = world.management.resources
        api = next(each for each in resources.list() if each.indicator == demo.resource)
        role = world.template.role(scope_ids=[scope.id for scope in resources.scopes(api.id)])
        self.organization = world.template.organization()
        member = world.user()
        world.template.member(self.organization, member, role)
        self.right = self._token(self.customer, "read:orders", actor_token=world.userinfo_token(self.agent))
        self.narrow = self._token(self.customer, "write:orders")
        self.within = self._token(member, "read:orders", organization_id=self.organization)

    def _token(self, user_id: str, scope: str, **parameters: str) -> dict[str, str]:
        issued = self._stack.exchange(
            self._stack.subject_token(user_id), resource=self.audience, scope=scope, **parameters
        )
        return {"Authorization": f"Bearer {issued.access_token}"}


def settings(run_directory: Path) -> dict[str, str]:
    """Return the environment of a program after it has loaded ``credentials.env``."""
    lines = (run_directory / "credentials.env").read_text().splitlines()
    return os.environ | dict(shlex.split(line)[0].split("=", 1) for line in lines)

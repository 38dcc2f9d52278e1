"""Databases restored to an earlier point, by the commands of docs/operations/backup-and-restore.md."""

import re
import subprocess
from pathlib import Path

import httpx2 as httpx
import pytest

from stead import ManagementClient, NotFound
from tests.deployed.kubernetes.long.conftest import Load
from tests.support.cluster import ROOT
from tests.support.cluster_journeys import enter_the_console
from tests.support.impersonation import Impersonation, set_up
from tests.support.waiting import eventually

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(1800)]

DOCUMENT = ROOT / "docs/operations/backup-and-restore.md"


def run(commands: str, directory: Path) -> None:
    """Run the document's commands of this name."""
    (script,) = re.findall(rf"```sh kubernetes {commands}\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    finished = subprocess.run(
        ["bash", "-euxc", script], cwd=directory, capture_output=True, text=True, timeout=900, check=False
    )
    assert finished.returncode == 0, finished.stdout[-2000:] + finished.stderr[-4000:]


def is_active(system: str, impersonation: Impersonation, token: str) -> bool:
    answer = httpx.post(f"{system}/oidc/token/introspection", data={"token": token}, auth=impersonation.auth)
    assert answer.status_code == 200
    return bool(answer.json()["active"])


def test_the_databases_are_restored_and_the_system_works_again(
    system: str, management: ManagementClient, load: Load, tmp_path: Path
) -> None:
    impersonation = set_up(management, resource="https://restored.example.com/api")
    enter_the_console(system, "Before the restoration")
    run("dump", tmp_path)
    later = management.users.create(name="Later").id
    token = exchange_for(system, management, impersonation).json()["access_token"]
    assert is_active(system, impersonation, token)

    run("restore", tmp_path)

    eventually(lambda: exchange_for(system, management, impersonation).status_code == 200, within_s=180)
    assert not is_active(system, impersonation, token)
    with pytest.raises(NotFound):
        management.users.get(later)
    enter_the_console(system, "After the restoration")
    # The load keeps its access token for a minute; then it goes on as before.
    eventually(lambda: goes_on(load), within_s=180)


def exchange_for(system: str, management: ManagementClient, impersonation: Impersonation) -> httpx.Response:
    form = impersonation.form(management.subject_tokens.create(impersonation.user_id).token)
    form["resource"] = "https://restored.example.com/api"
    return httpx.post(f"{system}/oidc/token", data=form, auth=impersonation.auth, timeout=30)


def goes_on(load: Load) -> bool:
    """Tell whether the next hundred requests of the load succeed."""
    with load.during("after the restoration") as failures:
        pass
    return not failures()

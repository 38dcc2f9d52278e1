"""Docker Compose, ``make up`` and ``make down``: the images, the edge and the walk-through."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx2 as httpx
import pytest
import yaml

from provision.credentials import Credentials, read_credentials
from stead import ManagementClient
from tests.support.administrator import CONSOLE, AtTheConsole, notices
from tests.support.processes import free_port
from tests.support.rotation_document import statements
from tests.support.waiting import eventually

pytestmark = [pytest.mark.deployed, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
PROJECT = "stead-test"


class Composed:
    """The running system: its address, its credentials, and commands to change it."""

    def __init__(self, directory: Path) -> None:
        port, nats_port, prometheus_port = free_port(), free_port(), free_port()
        self.base_url = f"http://localhost:{port}"
        self.prometheus_url = f"http://localhost:{prometheus_port}"
        self.directory = directory
        self._environment = {
            **os.environ,
            "COMPOSE_PROJECT_NAME": PROJECT,
            "BASE_URL": self.base_url,
            "PORT": str(port),
            "NATS_PORT": str(nats_port),
            "PROMETHEUS_PORT": str(prometheus_port),
        }

    @property
    def credentials(self) -> Credentials:
        credentials = read_credentials(self.directory)
        assert credentials is not None
        return credentials

    def run(self, *command: str, given: str = "", **settings: str) -> str:
        finished = subprocess.run(
            command,
            cwd=ROOT,
            env=self._environment | settings,
            input=given,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert finished.returncode == 0, finished.stdout[-2000:] + finished.stderr[-4000:]
        return finished.stdout

    def walk_through(self) -> str:
        """Run the lines that ``make walkthrough`` prints, and return what they print."""
        text = self.run("make", "walkthrough", f"DIRECTORY={self.directory}")
        commands = re.sub(r"^\S.*$", "", text, flags=re.MULTILINE)
        return self.run("bash", "-euc", commands)


@pytest.fixture(scope="module")
def composed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Composed]:
    composed = Composed(tmp_path_factory.mktemp("up"))
    try:
        composed.run("docker", "compose", "up", "--build", "--wait")
        composed.run("docker", "compose", "cp", "seed:/credentials/.", str(composed.directory))
        yield composed
    finally:
        composed.run("docker", "compose", "--profile", "observe", "down", "--volumes", "--timeout", "5")


def test_the_walk_through_works_with_three_replicas_of_token_service(composed: Composed) -> None:
    before = set(composed.run("docker", "compose", "ps", "--all", "--quiet").split())
    composed.run("docker", "compose", "up", "--detach", "--wait", "--scale", "token-service=3")
    assert before < set(composed.run("docker", "compose", "ps", "--all", "--quiet").split())  # none was replaced
    answers = [composed.walk_through() for _ in range(4)]
    assert [json.loads(answer)["act"]["sub"] for answer in answers] == [composed.credentials.demo.users[0].id] * 4


def test_the_administrator_signs_in_to_the_console(composed: Composed) -> None:
    person = composed.credentials.administrator
    administrator = AtTheConsole(composed.base_url, person.username, person.password)
    page = administrator.opens(f"{CONSOLE}/organizations/new")
    page = administrator.follows(administrator.sends(page, name="By the console"))
    assert notices(page) == ["Created By the console."]  # and every service has taken note
    shown = composed.run("docker", "inspect", *composed.run("docker", "compose", "ps", "--all", "--quiet").split())
    assert composed.credentials.console.client_secret not in shown


def test_the_credentials_are_readable_by_their_owner_alone_and_in_no_log(composed: Composed) -> None:
    files = sorted(composed.directory.iterdir())
    assert [(file.name, file.stat().st_mode & 0o777) for file in files] == [
        ("credentials.env", 0o600),
        ("credentials.json", 0o600),
    ]
    log = composed.run("docker", "compose", "logs", "--no-color", "bootstrap", "seed")
    assert "the credentials are in /credentials" in log
    credentials = composed.credentials
    for secret in (
        credentials.management_api.client_secret,
        credentials.administrator.password,
        credentials.traditional.client_secret,
    ):
        assert secret not in log


def test_the_edge_hides_what_is_not_public_and_logs_no_query(composed: Composed) -> None:
    with httpx.Client(base_url=composed.base_url) as client:
        statuses = {
            path: client.get(path).status_code for path in ("/health/ready", "/metrics", "/schema", "/oidc/jwks")
        }
        assert client.get("/oidc/auth", params={"login_hint": "never-logged"}).status_code == 400
    assert statuses == {"/health/ready": 404, "/metrics": 404, "/schema": 404, "/oidc/jwks": 200}
    assert "never-logged" not in composed.run("docker", "compose", "logs", "--no-color")


@pytest.mark.usefixtures("prometheus_image")  # what the profile starts
def test_the_profile_observe_scrapes_every_replica_and_evaluates_the_rules(composed: Composed) -> None:
    composed.run("docker", "compose", "--profile", "observe", "up", "--detach", "--no-build", "--wait", "prometheus")
    with httpx.Client(base_url=f"{composed.prometheus_url}/api/v1/") as prometheus:

        def targets() -> list[tuple[str, str]]:
            found = prometheus.get("targets", params={"state": "active"}).json()["data"]["activeTargets"]
            return sorted((each["labels"]["job"], each["health"]) for each in found)

        def rules() -> list[tuple[str, str]]:
            groups = prometheus.get("rules").json()["data"]["groups"]
            return sorted((rule["name"], rule["health"]) for group in groups for rule in group["rules"])

        replicas = composed.run("docker", "compose", "ps", "--format", "{{.Service}}").split()
        services = sorted(replica for replica in replicas if replica.endswith("-service") or replica == "console")
        eventually(lambda: targets() == [(service, "up") for service in services])
        written = yaml.safe_load((ROOT / "deploy" / "observe" / "rules.yml").read_text())["groups"]
        names = sorted(rule.get("record") or rule["alert"] for group in written for rule in group["rules"])
        eventually(lambda: rules() == [(name, "ok") for name in names])


def test_the_containers_show_no_secret_and_can_write_nothing(composed: Composed) -> None:
    names = composed.run("docker", "compose", "ps", "--quiet").split()
    shown = composed.run("docker", "inspect", *names)
    assert composed.credentials.nats.password not in shown
    assert not re.search(r"://[a-z]+:[^@/]+@", shown)
    for service in ("management-service", "token-service", "template-service", "console"):
        user_and_write = "import os; print(os.getuid(), os.access('/', os.W_OK), os.access('/opt/stead', os.W_OK))"
        shown = composed.run("docker", "compose", "exec", "-T", service, "python", "-c", user_and_write)
        assert shown.split() == ["65532", "False", "False"]


OPENS_MEMORY = r"""
import subprocess, sys
from pathlib import Path

def refusal(pid):
    try:
        open(f"/proc/{pid}/mem", "rb").close()
    except OSError as error:
        return type(error).__name__
    return "none"

cmdlines = {path.parent.name: path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline")}
service, = (pid for pid, cmdline in cmdlines.items() if b"-m\0token_service\0" in cmdline)
child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
print(refusal(child.pid), refusal(service))
child.kill()
"""


def test_the_memory_of_token_service_is_closed_to_other_processes_of_its_container(composed: Composed) -> None:
    shown = composed.run("docker", "compose", "exec", "-T", "token-service", "python", "-c", OPENS_MEMORY)
    assert shown.split() == ["none", "PermissionError"]  # its own child's is open


def test_a_custom_claims_function_runs_in_a_confined_worker(composed: Composed) -> None:
    access = composed.credentials.management_api
    script = (
        "const getCustomJwtClaims = async ({ context }) => ({ ticket: context.grant.subjectTokenContext.ticketId });"
    )
    with ManagementClient(
        composed.base_url, client_id=access.client_id, client_secret=access.client_secret, resource=access.resource
    ) as management:
        management.custom_claims.save("access-token", script)
        claims = json.loads(composed.walk_through())
        management.custom_claims.delete("access-token")
    assert claims["ticket"] == "T-1"
    log = composed.run("docker", "compose", "logs", "--no-color", "token-service")
    assert "claims-worker.without-seccomp" not in log
    assert "claims-worker.sandbox-degraded" not in log


OTHER_PERMISSIONS = """
import provision.nats, provision.redis
open(provision.redis.__file__, "a").write("REDIS_RULES['template'] += ('+echo',)")
open(provision.nats.__file__, "a").write('''
_template = NATS_PERMISSIONS["template"]
_new = msgspec.structs.replace(_template, publish=(*_template.publish, "identity-new"))
NATS_PERMISSIONS = NATS_PERMISSIONS | {"template": _new}
''')
"""
WHAT_TEMPLATE_MAY_DO = """
import asyncio, nats, redis
secret = lambda name: open(f"/run/secrets/stead/{name}").read()
try:
    redis.Redis.from_url(secret("redis-url")).echo("")
    print("echo")
except redis.exceptions.NoPermissionError:
    pass
async def publish():
    async def refused(error):
        refusals.append(str(error))
    refusals = []
    bus = await nats.connect(secret("nats-url"), error_cb=refused)
    await bus.publish("identity-new", b"")
    for _ in range(2):  # a flush sends its PING before what is pending
        await bus.flush()
    await bus.close()
    print(*refusals or ["publish"])
asyncio.run(publish())
"""


def test_permissions_of_another_release_reach_the_running_stores(composed: Composed) -> None:
    def what_template_may_do() -> list[str]:
        program = ("python", "-c", WHAT_TEMPLATE_MAY_DO)
        return composed.run("docker", "compose", "exec", "-T", "template-service", *program).splitlines()

    assert what_template_may_do() == ['nats: permissions violation for publish to "identity-new"']
    dockerfile = f"FROM stead/provision:dev\nUSER 0:0\nRUN {json.dumps(['python', '-c', OTHER_PERMISSIONS])}\n"
    composed.run("docker", "build", "--quiet", "--tag", "stead/provision:next", "-", given=dockerfile)
    composed.run("docker", "compose", "up", "--detach", "--no-build", "--wait", "redis", "nats", TAG="next")
    assert what_template_may_do() == ["echo", "publish"]


def test_passwords_of_administrators_are_replaced_and_nothing_restarts(composed: Composed, tmp_path: Path) -> None:
    def as_administrator(password: str, *command: str) -> str:
        redis_cli = ("redis-cli", "--no-auth-warning", "--user", "default", "--pass", password)
        return composed.run("docker", "compose", "exec", "-T", "redis", *redis_cli, *command).strip()

    def started() -> str:
        containers = composed.run("docker", "compose", "ps", "--quiet").split()
        return composed.run("docker", "inspect", "--format", "{{.Name}} {{.State.StartedAt}}", *containers)

    before, file, new = started(), tmp_path / "secrets.json", "the-next-password"
    composed.run("docker", "compose", "cp", "render:/secrets/secrets.json", str(file))
    passwords = json.loads(file.read_text())
    old = passwords["redis"]["default"]
    sql = "".join(statements("sql administrator")).replace("NEW", new)
    composed.run("docker", "compose", "exec", "-T", "postgres", "psql", "--username=postgres", "--command", sql)
    for line in statements("redis administrator before"):
        assert as_administrator(old, *line.replace("NEW", new).split()) == "OK"
    passwords["postgres"]["postgres"] = passwords["redis"]["default"] = new
    file.write_text(json.dumps(passwords))
    composed.run("docker", "compose", "cp", str(file), "render:/secrets/secrets.json")
    assert "applied to postgres" in composed.run("docker", "compose", "run", "--rm", "--no-deps", "apply")
    for line in statements("redis administrator after"):
        assert as_administrator(new, *line.replace("OLD", old).split()) == "OK"
    assert "NOAUTH" in as_administrator(old, "PING")
    assert '"act"' in composed.walk_through()
    assert started() == before


def test_another_start_keeps_data_and_credentials(composed: Composed) -> None:
    before = composed.credentials
    composed.run("make", "down")
    composed.run("make", "up", f"DIRECTORY={composed.directory}")
    assert composed.credentials == before
    assert '"act"' in composed.walk_through()

"""What ``make run`` shows a newcomer: six lines, a page, metrics, and a log that says how it was started."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

import httpx2 as httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from all_in_one.demo.__main__ import main as demo
from all_in_one.walkthrough import main as walkthrough
from stead import ManagementClient
from tests.support.processes import free_port
from tests.support.waiting import eventually

pytestmark = pytest.mark.heavy

ROOT: Final = Path(__file__).parents[2]
TIMEOUT_S = 120
_MIB: Final = 1024 * 1024
ENVIRONMENT: Final = {
    name: value
    for name, value in os.environ.items()
    if name not in {"POSTGRES_URL", "REDIS_URL", "NATS_URL", "NATS_PASSWORDS"}
}
SETTINGS = {
    "MANAGEMENT_API_RESOURCE": "https://identity.acme.example/api",
    "SUBJECT_TOKEN_TTL_S": "300",
    "URN_NAMESPACE": "acme",
}


class Running:
    """The process, with the lines that it printed when it was ready."""

    def __init__(self, directory: Path, cwd: Path, settings: Mapping[str, str], *, stderr: int | None = None) -> None:
        self.directory = directory
        port = free_port()
        self.base_url = f"http://localhost:{port}"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "all_in_one", "--port", str(port), "--directory", directory],
            cwd=cwd,
            env=ENVIRONMENT | settings,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
        assert self.process.stdout is not None
        self.printed = [self.process.stdout.readline() for _ in range(7)]

    def stop(self) -> str:
        """Stop it; return what it printed after these lines."""
        self.process.send_signal(signal.SIGINT)
        return self.process.communicate(timeout=TIMEOUT_S)[0]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    home = tmp_path_factory.mktemp("newcomer")
    running = Running(Path(".local"), home, SETTINGS)
    running.directory = home / ".local"
    yield running
    assert running.stop() == ""
    assert running.process.returncode == 0


def test_it_prints_where_everything_is(running: Running) -> None:
    assert "".join(running.printed) == (
        f"Stead is ready: {running.base_url}\n"
        "  credentials   .local/credentials.json, .local/credentials.env (readable by you alone)\n"
        f"  console       {running.base_url}/console (as administrator; the password is in these files)\n"
        f"  mail          {running.base_url}/mail (kept here unless SMTP_URL is set)\n"
        "  try it        make walkthrough (curl), make demo (the SDK), make example (a support desk)\n"
        "  log           .local/log/services.log\n"
        "  stop          Ctrl-C; the data stays in .local\n"
    )


def test_the_settings_of_the_services_come_from_the_environment(running: Running) -> None:
    credentials = json.loads((running.directory / "credentials.json").read_bytes())
    access, demo = credentials["management_api"], credentials["demo"]
    with ManagementClient(
        running.base_url,
        client_id=access["client_id"],
        client_secret=access["client_secret"],
        resource=SETTINGS["MANAGEMENT_API_RESOURCE"],
    ) as management:
        assert management.subject_tokens.create(demo["users"][1]["id"]).expires_in == 300
    metadata = httpx.get(f"{running.base_url}/oidc/.well-known/openid-configuration").json()
    assert "urn:acme:scope:organizations" in metadata["scopes_supported"]


@pytest.mark.parametrize("address", ["127.0.0.1", "[::1]"])
def test_programs_are_answered_at_each_address_and_browsers_sent_to_the_name(running: Running, address: str) -> None:
    by_address = running.base_url.replace("localhost", address)
    metadata = httpx.get(f"{by_address}/oidc/.well-known/openid-configuration").json()
    assert metadata["issuer"] == f"{running.base_url}/oidc"
    opened = httpx.get(f"{by_address}/console", headers={"Sec-Fetch-Mode": "navigate"})
    assert (opened.status_code, opened.headers["Location"]) == (307, f"{running.base_url}/console")


class Page(HTMLParser):
    """Collects the tags and the links of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.links: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        assert not [name for name, _ in attrs if name.startswith("on") or name == "style"]
        self.links += [value or "" for name, value in attrs if name == "href"]


def test_the_page_says_where_everything_is(running: Running) -> None:
    with httpx.Client(base_url=running.base_url) as http:
        answer = http.get("/")
        assert answer.status_code == 200
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
        for said in (running.base_url, ".local/credentials.json", "make walkthrough", "make demo", "make example"):
            assert said in answer.text
        page = Page(answer.text)
        assert not page.tags & {"script", "iframe", "form", "img", "link"}
        assert page.links == [
            "/console",
            "/account",
            "/api/reference",
            "/api/swagger.json",
            "/mail",
            "/oidc/.well-known/openid-configuration",
            "/health/ready",
            "/metrics",
        ]
        statuses = {link: http.get(link).status_code for link in page.links}
        assert statuses == {**dict.fromkeys(page.links, 200), "/console": 303, "/account": 303}  # to the sign-in
        head = http.head("/")
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["Content-Length"] == str(len(answer.content))
        assert http.post("/").status_code == 404


def test_the_page_runs_no_script_and_is_in_no_frame(running: Running) -> None:
    headers = httpx.get(f"{running.base_url}/").headers
    policy = headers["Content-Security-Policy"]
    assert re.fullmatch(
        r"default-src 'none'; style-src 'sha256-[A-Za-z0-9+/]{43}='; base-uri 'none'; form-action 'none';"
        r" frame-ancestors 'none'",
        policy,
    )
    assert (headers["X-Frame-Options"], headers["X-Content-Type-Options"]) == ("DENY", "nosniff")
    assert (headers["Referrer-Policy"], headers["Cache-Control"]) == ("no-referrer", "no-store")


def test_the_metrics_of_the_services_are_told_apart(running: Running) -> None:
    answer = httpx.get(f"{running.base_url}/metrics")
    assert (answer.status_code, answer.headers["Content-Type"].partition(";")[0]) == (200, "text/plain")
    families = list(text_string_to_metric_families(answer.text))
    assert len({family.name for family in families}) == len(families)
    assert {sample.labels.get("service") for family in families for sample in family.samples} == {
        "management",
        "token",
        "template",
        "console",
    }
    (requests,) = [family for family in families if family.name == "stead_http_requests"]
    assert {sample.labels["service"] for sample in requests.samples} >= {"management", "token"}


def test_the_log_says_version_address_and_changed_settings_but_no_secret(running: Running) -> None:
    log = (running.directory / "log" / "services.log").read_text()
    lines = [json.loads(line) for line in log.splitlines()]
    (start,) = [line for line in lines if line["event"] == "stack.starting"]
    assert start["address"] == running.base_url
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", start["version"])
    settings = {line["variable"]: line["message"] for line in lines if line["event"] == "stack.setting"}
    assert settings == {
        "ENVIRONMENT": "development",
        "ALLOW_HTTP_LOOPBACK_REDIRECTS": "True",
        "OUTGOING_NETWORKS": str(("127.0.0.0/8", "::1/128")),
        "CONSOLE_CREDENTIALS": str(running.directory / "console"),
        "MAIL_FOLDER": str(running.directory / "mail"),
        **SETTINGS,
    }
    secrets = json.loads((running.directory / "secrets.json").read_bytes())
    assert [secret for server in secrets.values() for secret in server.values() if secret in log] == []


def test_the_demo_follows_the_settings(
    running: Running, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["demo", "--directory", str(running.directory)])
    with ThreadPoolExecutor(1) as thread:  # it runs an event loop of its own
        status = thread.submit(demo).result(TIMEOUT_S)
    shown = capsys.readouterr()
    assert (status, shown.err) == (0, "")
    assert "urn:acme:organization:" in shown.out


def test_the_walk_through_works_as_it_is_pasted(running: Running) -> None:
    printed = subprocess.run(
        [sys.executable, "-m", "all_in_one.walkthrough", "--directory", ".local"],
        cwd=running.directory.parent,
        capture_output=True,
        check=False,
        text=True,
    )
    assert (printed.returncode, printed.stderr) == (0, "")
    commands = "".join(f"{line}\n" for line in printed.stdout.splitlines() if line.startswith("  "))
    pasted = subprocess.run(
        ["/bin/sh", "-eu"], cwd=running.directory.parent, input=commands, capture_output=True, check=False, text=True
    )
    assert (pasted.returncode, pasted.stderr) == (0, "")
    credentials = json.loads((running.directory / "credentials.json").read_bytes())
    claims, (agent, customer) = json.loads(pasted.stdout), credentials["demo"]["users"]
    assert (claims["sub"], claims["act"], claims["aud"], claims["scope"]) == (
        customer["id"],
        {"sub": agent["id"]},
        credentials["demo"]["resource"],
        " ".join(credentials["demo"]["scopes"]),
    )


def test_without_a_stack_the_walk_through_says_what_to_do(
    running: Running, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(running.directory.parent)
    monkeypatch.setattr(sys, "argv", ["walkthrough", "--directory", "elsewhere"])
    with pytest.raises(SystemExit) as ended:  # with a text as its code, the interpreter prints it and returns 1
        walkthrough()
    assert ended.value.code == (
        "error: there is no elsewhere/credentials.json; start the stack first, in another terminal: make run"
    )
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("target", ["run", "walkthrough", "demo", "example"])
def test_each_target_uses_the_directory_that_make_is_given(target: str) -> None:
    printed = subprocess.run(
        ["make", "--dry-run", target, "DIRECTORY=/elsewhere"],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith("MAKE")},
        capture_output=True,
        check=True,
        text=True,
    )
    assert printed.stdout.splitlines()[-1].count("--directory /elsewhere") == 1


@pytest.fixture
def default_interrupt() -> Iterator[None]:
    """Interrupts are not ignored, also if the tests run in a shell's background; a new process inherits that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("default_interrupt")
def test_an_interrupt_during_the_start_is_not_an_error(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    process = subprocess.Popen(
        [sys.executable, "-m", "all_in_one", "--port", str(free_port()), "--directory", directory],
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    eventually(directory.exists)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=TIMEOUT_S)
    assert errors == ""
    assert process.returncode in {130, 0}  # 0 if it was serving already


@pytest.fixture
def small_disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A disk of the size that the test names."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a disk")
    tmp_path.chmod(0o711)
    mounted = subprocess.run(
        ["/bin/mount", "-t", "tmpfs", "-o", f"size={request.param}", "tmpfs", tmp_path], check=False
    )
    if mounted.returncode:
        pytest.skip("this machine allows no mounts")
    yield tmp_path
    subprocess.run(["/bin/umount", tmp_path], check=True)


def full(directory: Path, *, free: str) -> str:
    """Return a pattern for the one line that a full disk is worth."""
    return (
        f"error: the disk that holds {re.escape(str(directory))} is full: {free} MiB are free, [0-9]+ are needed;"
        r" free some space and start again \(the data is kept\), or choose a directory on another disk:"
        r" make run DIRECTORY=/path/to/it\n"
    )


@pytest.mark.parametrize("small_disk", ["20m"], indirect=True)
def test_a_disk_that_is_too_small_is_named_before_anything_is_started(small_disk: Path) -> None:
    directory = small_disk / ".local"
    refused = failed(directory)
    assert re.fullmatch(full(directory, free="(19|20)"), refused)
    assert [path.name for path in directory.iterdir()] == ["lock"]


@pytest.mark.parametrize("small_disk", ["256m"], indirect=True)
def test_a_disk_that_becomes_full_ends_the_system_with_a_warning_and_one_line(small_disk: Path) -> None:
    directory = small_disk / ".local"
    running = Running(directory, small_disk, {}, stderr=subprocess.PIPE)
    warning = (
        rf"warning: the disk that holds {re.escape(str(directory))} is nearly full: \d+ MiB are free; free some space: "
    )
    with (small_disk / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while shutil.disk_usage(small_disk).free > 20 * _MIB:
            file.write(bytes(_MIB))
        assert running.process.stderr is not None
        assert re.match(warning, running.process.stderr.readline())
        while True:
            file.write(bytes(_MIB))
    printed = running.process.communicate(timeout=TIMEOUT_S)
    assert printed[0] == ""
    assert re.fullmatch(full(directory, free=r"\d+"), printed[1])  # it may notice before the disk is quite full
    assert running.process.returncode == 1
    assert re.fullmatch(full(directory, free=r"\d+"), failed(directory))


def failed(directory: Path) -> str:
    """Start the system, which fails; return what it says."""
    result = subprocess.run(
        [sys.executable, "-m", "all_in_one", "--port", str(free_port()), "--directory", directory],
        env=ENVIRONMENT,
        capture_output=True,
        check=False,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert (result.returncode, result.stdout) == (1, "")
    return result.stderr

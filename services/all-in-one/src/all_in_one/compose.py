"""``python -m all_in_one.compose``: seed the system that ``docker compose up`` started; see ``make up``.

Writes ``.local/credentials.json`` and ``.local/credentials.env``, as ``make run`` does.
"""

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from all_in_one.credentials import BusSubscriber, Credentials, ManagementApi, read_credentials, write_credentials
from all_in_one.home import shown
from all_in_one.seed import seed
from stead import IdentityError

_COMPOSE: Final = ("docker", "compose")
_TIMEOUT_S: Final = 120
_URN_NAMESPACE: Final = "service"
_PRINT_URL: Final = "print(open('/rendered/subscriber/nats-url').read())"

_WRITE_CONSOLE: Final = """
import json, pathlib, sys
for name, value in json.load(sys.stdin).items():
    new = pathlib.Path("/rendered/console", name + ".new")
    new.write_text(value)
    new.chmod(0o444)
    new.rename(new.with_suffix(""))
print("written")
"""  # management-service alone has this volume

_LINES: Final = """\
Stead is ready: {base_url}
  console       {base_url}/console, as the administrator of credentials.json
  credentials   {directory}/credentials.json, {directory}/credentials.env (readable by you alone)
  try it        make walkthrough (curl), make demo (the SDK), make example (a support desk)
  log           docker compose logs --follow
  stop          make down; the data stays in volumes
"""


class ComposeError(Exception):
    """A command in a container failed, or there is no Docker; ``str()`` is one line."""


def main() -> int:
    """Seed; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m all_in_one.compose")
    parser.add_argument("--base-url", default="http://localhost:3000")
    parser.add_argument("--nats-port", type=int, default=4222)
    parser.add_argument("--directory", type=Path, default=Path(".local"))
    options = parser.parse_args()
    options.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        credentials = seed(
            options.base_url,
            known=read_credentials(options.directory),
            bootstrap=_bootstrap,
            urn_namespace=_URN_NAMESPACE,
            nats=_subscriber(options.nats_port),
        )
        _give_to_console(credentials)
    except (ComposeError, IdentityError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    write_credentials(options.directory, credentials)
    sys.stdout.write(_LINES.format(base_url=options.base_url, directory=shown(options.directory.absolute())))
    return 0


def _bootstrap() -> ManagementApi:
    return msgspec.json.decode(_run("management-service", "bootstrap"), type=ManagementApi)


def _subscriber(port: int) -> BusSubscriber:
    """Return the read-only user of the bus, at the port that is published on this machine."""
    url = urlsplit(_run("--entrypoint", "python", "render", "-c", _PRINT_URL))
    return BusSubscriber(url=f"nats://127.0.0.1:{port}", user=url.username or "", password=url.password or "")


def _give_to_console(credentials: Credentials) -> None:
    """Write the files that the console reads its client from, as ``make run`` does."""
    client = credentials.console
    values = {"console_client_id": client.client_id, "console_client_secret": client.client_secret}
    _run("--entrypoint", "python", "render", "-c", _WRITE_CONSOLE, given=msgspec.json.encode(values).decode())


def _run(*words: str, given: str = "") -> str:
    """Run a command in a new container, with this input; return the last line of its output."""
    try:
        finished = subprocess.run(  # noqa: S603 - the words are ours
            [*_COMPOSE, "run", "--rm", "--no-deps", "--no-TTY", *words],
            input=given,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError:
        raise ComposeError("docker is not installed, or not in the PATH") from None
    except subprocess.TimeoutExpired:
        raise ComposeError(f"docker compose run {words[0]}: no end within {_TIMEOUT_S} s") from None
    lines = (finished.stderr if finished.returncode else finished.stdout).strip().splitlines()
    if finished.returncode or not lines:
        raise ComposeError(f"docker compose run {words[0]}: {''.join(lines[-1:])}")
    return lines[-1]


if __name__ == "__main__":
    sys.exit(main())

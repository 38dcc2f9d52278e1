"""Teams that read the public events, each as a user in a NATS account of its own (docs/decisions/0017)."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from provision.errors import ProvisionError
from provision.nats import REQUIRED_USERS, permissions_of, teams
from provision.passwords import stored_passwords
from provision.private_files import write_private

_UserName = Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9-]{0,31}$")]
_Password = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9._~-]+$")]  # NATS clients do not decode URLs


def nats_passwords(text: str) -> dict[str, str]:
    """Parse ``NATS_PASSWORDS``: a JSON object with the passwords of our users, and of the teams if there are any.

    Raises:
        ProvisionError: One of our users is missing, or a name or password is malformed.
    """
    try:
        passwords = msgspec.json.decode(text, type=dict[_UserName, _Password])
    except msgspec.DecodeError:
        passwords = {}
    if not passwords.keys() >= set(REQUIRED_USERS):
        raise ProvisionError(
            f"NATS_PASSWORDS must be a JSON object with a password for each of {', '.join(REQUIRED_USERS)}"
            " (letters, digits and -._~ only), and for each team (lower-case letters, digits and - only)"
        )
    return passwords


def add_subscriber(directory: Path, team: str) -> Path:
    """Create a team's user in the embedded NATS, from its next start on; return the file for its credentials.

    A no-op if the team has one. The file is written at each start, and now if the port is known.

    Raises:
        ProvisionError: The name is malformed or reserved, or the data directory is corrupt.
    """
    try:
        msgspec.convert(team, _UserName)
    except msgspec.ValidationError:
        raise ProvisionError(
            f"{team!r} cannot be the name of a team: a lower-case letter, then up to 31 of a-z, 0-9 and -"
        ) from None
    if permissions_of(team):
        raise ProvisionError(f"{team!r} cannot be the name of a team: it is a user of the services")
    passwords = stored_passwords(directory, added=[team])
    try:
        port = msgspec.json.decode((directory / "ports.json").read_bytes(), type=dict[str, int]).get("nats")
    except (FileNotFoundError, msgspec.DecodeError):
        port = None
    if port:
        write_subscribers(directory, passwords.nats, url=f"nats://127.0.0.1:{port}")
    return _file(directory, team)


def write_subscribers(directory: Path, passwords: Mapping[str, str], *, url: str) -> None:
    """Write the credentials of each team to ``subscribers/<team>.env``, readable only by the owner.

    Args:
        directory: The data directory.
        passwords: The password of each NATS user.
        url: The address of NATS, without a user.
    """
    for team in teams(passwords):
        file = _file(directory, team)
        file.parent.mkdir(mode=0o700, exist_ok=True)
        variables = {"NATS_URL": url, "NATS_USER": team, "NATS_PASSWORD": passwords[team]}
        write_private(file, "".join(f"{name}={shlex.quote(each)}\n" for name, each in variables.items()).encode())


def _file(directory: Path, team: str) -> Path:
    return directory / "subscribers" / f"{team}.env"

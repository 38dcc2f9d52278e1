"""The list of new members that is pasted: its lines, and which members and roles they name."""

import asyncio
import re
from collections.abc import Sequence
from typing import Final

import msgspec

from console.requests import ConsoleRequest
from identity_common.names import canonical_name
from stead.errors import InvalidInput, NotFound

_AT_ONCE: Final = 8

_SEPARATOR: Final = re.compile(r"[,;\t]")
_QUOTED: Final = re.compile(r'"[^"]*+"?+')
# The alternatives exclude each other, and nothing is tried twice: a line may have a megabyte.
_CELLS: Final = {
    separator: re.compile(
        rf'[^\S{separator}]*+(?:"((?:[^"]|"")*+)"[^\S{separator}]*+|([^"{separator}]*+))({separator}|\Z)'
    )
    for separator in (",", ";", "\t")
}


class Line(msgspec.Struct):
    """One line of a list of new members.

    Attributes:
        number: From 1; blank lines count.
        text: As it was typed.
        who: An id, or for users also a user name or an e-mail address.
        roles: Names of roles; in canonical form, but for roles from before names had one.
        member_id: Id of the member; empty if unknown.
        problem: ``quotes``, ``unknown``, ``ambiguous`` or ``role``; empty if the line can be used.
        detail: The name of an unknown role.
    """

    number: int
    text: str
    who: str
    roles: Sequence[str]
    member_id: str = ""
    problem: str = ""
    detail: str = ""


def read_lines(text: str) -> list[Line]:
    """Return the lines that are not blank; a file may begin with a byte order mark."""
    lines = enumerate(text.removeprefix("\ufeff").split("\n"), 1)
    return [_read_line(number, line.strip()) for number, line in lines if line.strip()]


def _read_line(number: int, text: str) -> Line:
    """Parse a line: a member and the names of roles, separated by what separates the first two of them."""
    try:
        who, *roles = _read_cells(text)
    except ValueError:
        return Line(number, text, "", [], problem="quotes")
    return Line(number, text, who, [role for role in roles if role])


def _read_cells(text: str) -> list[str]:
    """Split a line at its first separator outside of quotation marks: other ones may be part of a name.

    A cell is what its quotation marks enclose, as in RFC 4180, or else the text without blanks around it.

    Raises:
        ValueError: A quotation mark neither encloses a cell nor is doubled within one.
    """
    first = _SEPARATOR.search(_QUOTED.sub("", text))
    pattern, place = _CELLS[first[0] if first else ","], 0
    cells = []
    while found := pattern.match(text, place):
        quoted, bare, separator = found.groups()
        cells.append(bare.strip() if quoted is None else quoted.replace('""', '"'))
        if not separator:
            return cells
        place = found.end()
    raise ValueError("misplaced quotation mark")


async def find_members(request: ConsoleRequest, lines: Sequence[Line], kind: str, roles: dict[str, str]) -> None:
    """Resolve the member of each line; set the problem of each line that cannot be used."""
    limit = asyncio.Semaphore(_AT_ONCE)

    async def find(line: Line) -> None:
        if line.problem:
            return
        line.roles = [name if name in roles else canonical_name(name) for name in line.roles]
        unknown = [name for name in line.roles if name not in roles]
        if unknown:
            line.problem, line.detail = "role", unknown[0]
            return
        async with limit:
            found = await _find_ids(request, line.who, kind)
        line.member_id = found[0] if len(found) == 1 else ""
        line.problem = "" if line.member_id else "ambiguous" if found else "unknown"

    await asyncio.gather(*map(find, lines))


async def _find_ids(request: ConsoleRequest, who: str, kind: str) -> list[str]:
    """Return the ids of the users or applications that a text names."""
    if not who or len(who) > 128:
        return []
    if kind == "applications":
        try:
            application = await request.api.applications.get(who)
        except (NotFound, ValueError):  # ValueError: a path cannot contain the text
            return []
        return [application.id] if application.type == "MachineToMachine" else []
    named = {"id": who, "username": who, "primaryEmail": who}
    try:
        found = await request.api.users.list(exact=named, joint="or", page_size=2).page()  # type: ignore[arg-type]
    except InvalidInput:
        return []
    return [user.id for user in found.items]


def by_roles(lines: Sequence[Line]) -> dict[tuple[str, ...], list[str]]:
    """Group the members by the roles that they get, since one request can assign the same roles to many."""
    grouped: dict[tuple[str, ...], list[str]] = {}
    for line in lines:
        if line.roles:
            ids = grouped.setdefault(tuple(sorted(set(line.roles))), [])
            if line.member_id not in ids:
                ids.append(line.member_id)
    return grouped

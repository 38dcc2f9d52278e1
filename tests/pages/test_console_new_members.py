"""The console's list of new members: which member and which roles a line names."""

from __future__ import annotations

import re
import secrets
from concurrent.futures import ThreadPoolExecutor
from html import unescape

import httpx2 as httpx
import pytest

from tests.support.administrator import CONSOLE, Administrator
from tests.support.databases import locked
from tests.support.running_stack import RunningStack

ORGANIZATIONS = f"{CONSOLE}/organizations"


@pytest.fixture(scope="module")
def administrator(stack: RunningStack) -> Administrator:
    return Administrator(stack, "all")


@pytest.fixture
def organization(stack: RunningStack) -> str:
    return stack.management.organizations.create(f"Harbour {secrets.token_hex(4)}").id


@pytest.fixture
def user(stack: RunningStack) -> str:
    return stack.management.users.create(username=f"person_{secrets.token_hex(5)}", name="Katherine Johnson").id


def with_role(stack: RunningStack, *names: str) -> None:
    """Create roles, unless there are roles with these names."""
    known = {role.name for role in stack.management.organization_roles.list()}
    for name in names:
        if name not in known:
            stack.management.organization_roles.create(name)


def added(administrator: Administrator, organization: str, lines: str, kind: str = "users") -> httpx.Response:
    page = administrator.opens(f"{ORGANIZATIONS}/{organization}/{kind}/add")
    return administrator.sends(page, members=lines)


def roles_of(stack: RunningStack, organization: str) -> dict[str, list[str]]:
    """Return the names of the roles of each member."""
    members = stack.management.organizations.users(organization)
    return {member.id: sorted(role.name for role in member.organization_roles) for member in members}


def shown(page: httpx.Response) -> str:
    return " ".join(unescape(re.sub("<[^>]+>", "", page.text)).split())


@pytest.mark.parametrize(
    ("cells", "roles"),
    [
        (', "Sales; EMEA"', ["Sales; EMEA"]),
        (';"Sales; EMEA"', ["Sales; EMEA"]),
        (';"Sales, EMEA"', ["Sales, EMEA"]),
        (', "Sales, EMEA"', ["Sales, EMEA"]),
        (";Sales, EMEA", ["Sales, EMEA"]),
        (",Sales; EMEA", ["Sales; EMEA"]),
        ("\tSales, EMEA\tEMEA", ["EMEA", "Sales, EMEA"]),
        ("\tSales; EMEA\tEMEA", ["EMEA", "Sales; EMEA"]),
        ('\t"Sales\tEMEA"', ["Sales EMEA"]),
        (', Sales , EMEA,, "",', ["EMEA", "Sales"]),
        ('; "Sales" ; EMEA ', ["EMEA", "Sales"]),
        (', "Sales "', ["Sales"]),
        (', " Sales"', ["Sales"]),
        (', "say ""Sales"""', ['say "Sales"']),
        (', "Sales", "Sales"', ["Sales"]),
        ("", []),
    ],
)
def test_a_line_gives_exactly_the_roles_that_it_names(
    stack: RunningStack, administrator: Administrator, organization: str, user: str, cells: str, roles: list[str]
) -> None:
    with_role(
        stack,
        "Sales",
        "EMEA",
        "Sales, EMEA",
        "Sales; EMEA",
        "Sales EMEA",
        'say "Sales"',
        '"Sales"',
    )

    answer = added(administrator, organization, f"{user}{cells}")

    assert answer.status_code == 303, shown(answer)
    assert roles_of(stack, organization) == {user: roles}


@pytest.mark.parametrize(
    "cells",
    [
        ', "Sales',
        ', "Sales" EMEA',
        ', Sales "EMEA"',
        ', Sa"les',
        ', "Sales""',
        ', ""Sales""',
        ', """',
    ],
)
def test_quotation_marks_that_enclose_no_name_are_an_error_in_that_line(
    stack: RunningStack, administrator: Administrator, organization: str, user: str, cells: str
) -> None:
    with_role(stack, "Sales", "EMEA", '"Sales"', 'Sa"les')

    answer = added(administrator, organization, f"{user}\n\n{user}{cells}\n{user}, EMEA")

    assert answer.status_code == 422
    assert f"Line 3 {user}{cells}: a quotation mark is in the wrong place" in shown(answer)
    assert "1 member was added." in shown(answer)
    assert roles_of(stack, organization) == {user: ["EMEA"]}


@pytest.mark.parametrize("role", ["Sales; APAC", "sales", "Sal\u200bes", "Sal\0es", "x" * 140_000])
def test_a_role_that_is_not_there_is_an_error_in_that_line(
    stack: RunningStack, administrator: Administrator, organization: str, user: str, role: str
) -> None:
    with_role(stack, "Sales", "EMEA", "APAC")

    answer = added(administrator, organization, f'{user}, "{role}", EMEA')

    assert answer.status_code == 422
    assert "there is no role" in shown(answer)
    assert roles_of(stack, organization) == {}


def test_a_file_with_a_byte_order_mark_and_lines_of_windows_is_read(
    stack: RunningStack, administrator: Administrator, organization: str, user: str
) -> None:
    with_role(stack, "Sales", "Sales; EMEA")

    lines = f'\ufeff"{user}";"Sales; EMEA"\r\n\r\n  \r\n"{user}";"Sales"\r\nmissing person\r\n'
    answer = added(administrator, organization, lines)

    assert answer.status_code == 422
    assert "Line 5 missing person: no match" in shown(answer)
    assert roles_of(stack, organization) == {user: ["Sales", "Sales; EMEA"]}


def test_an_application_that_cannot_be_a_member_is_an_error_in_its_line(
    stack: RunningStack, administrator: Administrator, organization: str
) -> None:
    machine = stack.management.applications.create(name="Nightly", type="MachineToMachine").id
    page = stack.management.applications.create(name="Shop", type="SPA").id

    answer = added(administrator, organization, f"{machine}\n{page}", kind="applications")

    assert answer.status_code == 422
    assert f"Line 2 {page}: no match" in shown(answer)
    assert [member.id for member in stack.management.organizations.applications(organization)] == [machine]


def test_members_without_the_roles_of_their_lines_are_told(
    stack: RunningStack, administrator: Administrator, organization: str, user: str
) -> None:
    """The role is deleted after the page was read, and before the members are added."""
    role = stack.management.organization_roles.create(f"editor {secrets.token_hex(4)}")
    lock = "SELECT FROM organizations WHERE id = $1 FOR UPDATE"
    with ThreadPoolExecutor(1) as thread:
        with locked(stack.addresses.template_database_url, lock, organization) as until_waited_for:
            adding = thread.submit(added, administrator, organization, f"{user}, {role.name}")
            until_waited_for()
            stack.management.organization_roles.delete(role.id)
        answer = adding.result()

    assert answer.status_code == 422
    assert "1 member was added, but not every role was assigned. Send the lines again." in shown(answer)
    assert f"{user}, {role.name}" in unescape(answer.text)
    assert roles_of(stack, organization) == {user: []}

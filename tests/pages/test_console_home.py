"""The console's first page: what needs attention, and the last day in figures."""

from __future__ import annotations

import re
import secrets
from collections import Counter
from html import unescape

import pytest

from stead import AuditFigure, OAuthError
from tests.support.administrator import CONSOLE, Administrator
from tests.support.running_stack import RunningStack
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def administrator(stack: RunningStack) -> Administrator:
    return Administrator(stack, "all", name="Grace Hopper")


def totals(figures: list[AuditFigure]) -> Counter[str]:
    counts = Counter[str]()
    for figure in figures:
        counts[figure.key] += figure.entries
    return counts


def shown(page: str) -> tuple[list[int], list[list[int]]]:
    """Return the figures of the legend and the rows of the table."""
    legend = [int(count) for count in re.findall(r"</svg>[^<:]+: (\d+)</li>", page)]
    rows = re.findall(r'<th scope="row">[^<]+</th>((?:<td[^>]*>\d+</td>)+)', page)
    return legend, [[int(count) for count in re.findall(r">(\d+)<", row)] for row in rows]


@pytest.mark.heavy
def test_a_refused_exchange_needs_attention_and_is_counted(stack: RunningStack, administrator: Administrator) -> None:
    before = totals(stack.management.logs.figures())["token.exchange.refused"]
    with pytest.raises(OAuthError):
        stack.exchange(f"sub_{secrets.token_hex(8)}", scope=["openid"])
    user = stack.management.users.create(name="Ada").id
    token = stack.management.subject_tokens.create(user)
    stack.exchange(token.token, scope=["openid"])
    eventually(lambda: totals(stack.management.logs.figures())["token.exchange.refused"] > before)

    def is_told() -> bool:
        page = administrator.opens(CONSOLE).text
        refused = re.search(r'<a href="/console/audit\?logKey=token\.exchange\.refused">(\d+) exchange', page)
        legend, rows = shown(page)
        assert len(rows) == 24
        assert [sum(column) for column in zip(*rows, strict=True)] == legend
        return refused is not None and int(refused[1]) > before and legend[0] > 0 and legend[2] > before

    eventually(is_told)
    page = unescape(administrator.opens(CONSOLE).text)
    assert re.search(r"\d+ impersonations? (is|are) active", page)
    assert page.index("Active impersonations") < page.index("What needs attention") < page.index("The last 24 hours")
    assert "What happened lately" not in page
    assert set(re.findall(r'<rect class="([a-z-]+)" x=', page)) >= {"exchanges", "refusals"}


def test_a_failing_script_is_told_at_once(stack: RunningStack, administrator: Administrator) -> None:
    functions = stack.management.custom_claims
    saved = functions.save(
        "access-token", "const getCustomJwtClaims = async ({ context }) =>\n  context.user.none.plan;"
    )
    user = stack.management.users.create(name="Ada").id

    def has_failed() -> bool:
        stack.exchange(stack.management.subject_tokens.create(user).token, scope=["openid"])
        return any(each.version == saved.version for each in functions.failures("access-token"))

    try:
        eventually(has_failed)  # the first tokens may be issued before token-service knows of the function
        page = " ".join(re.sub("<[^>]+>", "", administrator.opens(CONSOLE).text).split())
        since = r"access-token failed \d+ times? since [-\d]{10} [\d:]{5} UTC"
        told = f"{since} last version {saved.version} in line 2: exception"
        assert re.search(told, page), page
    finally:
        functions.delete("access-token")


def test_each_part_is_shown_to_who_may_see_it(stack: RunningStack) -> None:
    page = Administrator(stack, "keys:read").opens(CONSOLE)
    assert re.findall("<h2[^>]*>([^<]+)", page.text.partition("<dialog")[0]) == ["What needs attention"]
    missing = {"impersonations:read", "claims:read", "audit:read"}
    assert set(re.findall("<li><code>([a-z:]+)</code></li>", page.text)) == missing


def test_who_only_reads_sees_the_figures_too(stack: RunningStack) -> None:
    assert len(shown(Administrator(stack, "read", name="Reader").opens(CONSOLE).text)[1]) == 24

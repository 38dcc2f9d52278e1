"""``/console``: what needs attention, the last day in figures, keyboard shortcuts, and signing out."""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, Literal

import msgspec
from litestar import Response

from console.areas.impersonations import named
from console.charts import HEIGHT, WIDTH, Chart, stacked_columns
from console.console import Area
from console.forms import Form
from console.page_parts import Part, part
from console.rendering import redirect
from console.requests import ConsoleRequest
from stead import AuditFigure, ClaimsFunctionFailure, Impersonation
from stead.errors import Unavailable
from stead.manage.lists import ListPage

_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS
_HOURS: Final = 24
_FIRST: Final = 5
_COUNTED: Final = 100
_KEY_AGE_DAYS: Final = 90
_TROUBLES: Final = ("token.exchange.refused", "token.sign-in.refused", "token.sign-in.throttled", "audit.gap")
_Kind = Literal["access-token", "client-credentials"]
_KINDS: Final[tuple[_Kind, ...]] = ("access-token", "client-credentials")

AREA: Final = Area()


class Hour(msgspec.Struct, frozen=True):
    """Counts of one hour.

    Attributes:
        begins_at: Milliseconds since the epoch.
        counts: Exchanges, sign-ins, and refusals of either or of any other token.
    """

    begins_at: int
    counts: tuple[int, int, int]


class Attention(msgspec.Struct, frozen=True):
    """Something that needs attention.

    Attributes:
        kind: Which text the page shows.
        count: How many.
        about: The kind of token that it concerns; empty for other kinds.
        since: The first time in the last day, milliseconds since the epoch; 0 where the page does not say it.
        last: The last failure of a script.
    """

    kind: str
    count: int
    about: str = ""
    since: int = 0
    last: ClaimsFunctionFailure | None = None


@AREA.page()
async def home(request: ConsoleRequest) -> Response[str]:
    now = int(time.time() * 1000)
    begin = now - (_HOURS - 1) * _HOUR_MS
    active, claims, figures, keys = await asyncio.gather(
        part(request, "ListImpersonations", partial(_active, request)),
        part(request, "ListClaimsFunctionFailures", partial(_failing, request, begin)),
        part(request, "ListLogFigures", partial(request.api.logs.figures, start_time=begin, end_time=now)),
        part(request, "ListPrivateKeys", partial(_keys, request, now)),
    )
    parts: dict[str, Part[Any]] = {"impersonations": active, "claims": claims, "figures": figures, "keys": keys}
    first = active.value.items[:_FIRST] if active.value else ()
    hours = [] if figures.value is None else _hours(figures.value, begin)
    return await request.page(
        "home.html",
        area="home",
        missing=[each.missing for each in parts.values() if each.missing],
        unread=[name for name, each in parts.items() if each.value is None and not each.missing],
        attention=[*(claims.value or ()), *_troubles(figures.value or ()), *(keys.value or ())],
        active=active.value,
        first=first,
        hours=hours,
        totals=[sum(counts) for counts in zip(*(hour.counts for hour in hours), strict=True)],
        chart=_chart(hours) if hours else None,
        width=WIDTH,
        height=HEIGHT,
        **await named(request, first),
    )


@AREA.page("/shortcuts")
async def shortcuts(request: ConsoleRequest) -> Response[str]:
    return await request.page("shortcuts/page.html", area="")


@AREA.action("/sign-out", scope="read")
async def sign_out(request: ConsoleRequest, form: Form) -> Response[str]:
    del form
    return redirect(await request.sign_out())


async def _active(request: ConsoleRequest) -> ListPage[Impersonation]:
    return await request.api.impersonations.list(active=True, page_size=_COUNTED).page()


async def _failing(request: ConsoleRequest, begin: int) -> list[Attention]:
    """Return what to report of the claims functions: their failures since a time, one for each function."""
    failures = await asyncio.gather(*(_failures(request, kind) for kind in _KINDS))
    found = []
    for kind, of_kind in zip(_KINDS, failures, strict=True):
        if of_kind is None:
            found.append(Attention("claims.unread", 0, kind))
        elif recent := [each for each in of_kind if each.time >= begin]:
            since, last = min(each.time for each in recent), max(recent, key=lambda each: each.time)
            found.append(Attention("claims", len(recent), kind, since, last))
    return found


async def _failures(request: ConsoleRequest, kind: _Kind) -> list[ClaimsFunctionFailure] | None:
    """Return the last failures of a custom-claims function; None while they cannot be read."""
    try:
        return await request.api.custom_claims.failures(kind)
    except Unavailable:
        return None


async def _keys(request: ConsoleRequest, now: int) -> list[Attention]:
    keys, feed_keys = await asyncio.gather(
        request.api.request("GET", "/api/configs/oidc/private-keys"),
        request.api.request("GET", "/api/configs/oidc/not-valid-keys"),
    )
    return [*old_keys("key", keys, now), *old_keys("feed-key", feed_keys, now)]


def _hours(figures: Sequence[AuditFigure], begin: int) -> list[Hour]:
    """Return the counts of every hour, including those without entries."""
    counts: dict[int, list[int]] = {begin - begin % _HOUR_MS + place * _HOUR_MS: [0, 0, 0] for place in range(_HOURS)}
    for figure in figures:
        series = _series(figure.key)
        if series is not None and figure.hour in counts:
            counts[figure.hour][series] += figure.entries
    return [Hour(hour, (exchanges, sign_ins, refusals)) for hour, (exchanges, sign_ins, refusals) in counts.items()]


def _series(key: str) -> int | None:
    if key == "token.exchange.succeeded":
        return 0
    if key == "token.sign-in.succeeded":
        return 1
    return 2 if key.startswith("token.") and key.endswith((".refused", ".throttled")) else None


def _chart(hours: Sequence[Hour]) -> Chart:
    return stacked_columns([hour.counts for hour in hours])


def _troubles(figures: Sequence[AuditFigure]) -> list[Attention]:
    counts = Counter[str]()
    for figure in figures:
        counts[figure.key] += figure.entries
    return [Attention(key, counts[key]) for key in _TROUBLES if counts[key]]


def old_keys(kind: str, keys: Sequence[dict[str, Any]], now: int) -> list[Attention]:
    """Return what to report of keys, as the API lists them: current ones that are older than 90 days."""
    ages = [(now - key["createdAt"]) // _DAY_MS for key in keys if key["status"] == "Current"]
    return [Attention(kind, age) for age in ages if age > _KEY_AGE_DAYS]

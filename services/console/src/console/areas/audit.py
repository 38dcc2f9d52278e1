"""``/console/audit``: the audit trail, and the verification that it is unaltered."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from litestar import MediaType, Response

from console.areas.audit_filters import BY_ID, RANGES, Filters, UnreadableFilters, as_entered, filters_of
from console.areas.names import template_names
from console.console import Area
from console.folding import Row, folded
from console.forms import Form
from console.requests import ConsoleRequest
from stead.audit import Head, InvalidHead, KeySet, is_consistent, is_included, read_head
from stead.audit.heads import decoded
from stead.errors import ApiError, Conflict, Forbidden, InvalidInput
from stead.models import AuditEntry, InclusionProof, SearchResult, SignedHead

_AREA: Final = "audit"
_PAGE_SIZE: Final = 50
_ROWS: Final = 25
_REQUESTS: Final = 5
"""A page with few rows, since many entries are folded, has those of further requests too."""
_SUGGESTED: Final = 10
_LEAST_TYPED: Final = 2
_GROUPS: Final = {"person": "users", "application": "applications", "organization": "organizations"}
_NOT_COVERED: Final = 409

AREA: Final = Area()


@AREA.page("/audit")
async def audit(request: ConsoleRequest) -> Response[str]:
    filters = filters_of(request)
    after = request.parameter("after") or None
    try:
        filters.require_readable()
        entries, following = await _entries(request, filters, after)
    except (InvalidInput, Conflict, Forbidden) as error:
        return await _refused(request, filters, error)
    except UnreadableFilters:
        return await _refused(request, filters)
    return await _list_page(request, filters, entries, following)


@AREA.page("/audit/export", scope="all")
async def export(request: ConsoleRequest) -> Response[Any]:
    filters = filters_of(request)
    try:
        filters.require_readable()
        await request.api.logs.list(page_size=1, **filters.wanted).page()
    except (InvalidInput, Conflict, Forbidden) as error:
        return await _refused(request, filters, error)
    except UnreadableFilters:
        return await _refused(request, filters)
    form = "csv" if request.parameter("format") == "csv" else "jsonl"
    parameters = {**filters.parameters, "format": form}
    return await request.download("/api/logs/export", name=f"audit-trail.{form}", parameters=parameters)


@AREA.page("/audit/suggestions")
async def suggestions(request: ConsoleRequest) -> Response[Any]:
    """Answer the script of the page with names that begin with what was typed, within the rights of the user."""
    text, group = request.parameter("q"), _GROUPS.get(request.parameter("for"))
    found: list[dict[str, str]] = []
    if group is not None and len(text) >= _LEAST_TYPED:
        answer = await request.api.search(text, limit=_SUGGESTED)
        results = [each for some in answer.groups if some.name == group for each in some.results]
        found = [_suggestion(each) for each in results]
    headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    return Response(found, media_type=MediaType.JSON, headers=headers)


@AREA.page("/audit/chain")
async def chain(request: ConsoleRequest) -> Response[str]:
    return await _chain_page(request, request.typed() or Form())


@AREA.action("/audit/chain", scope="read")
async def compare_heads(request: ConsoleRequest, form: Form) -> Response[str]:
    return await _chain_page(request, form, compare=True)


@AREA.page("/audit/{entry_id:str}")
async def entry(request: ConsoleRequest, entry_id: str) -> Response[str]:
    found = await request.api.logs.get(entry_id)
    proof = await _proof(request, entry_id)
    return await request.page(
        "audit/entry.html",
        area=_AREA,
        entry=found,
        proof=proof,
        is_proved=proof is not None and _is_proved(proof, await _keys(request)),
        known=await template_names(request, [found]),
    )


@AREA.page("/audit/{entry_id:str}/proof")
async def proof(request: ConsoleRequest, entry_id: str) -> Response[Any]:
    return await request.download(f"/api/logs/{entry_id}/proof", name=f"proof-{entry_id}.json")


async def _entries(request: ConsoleRequest, filters: Filters, after: str | None) -> tuple[list[AuditEntry], str | None]:
    """Return the entries of a page, and where the next one begins."""
    listed = request.api.logs.list(page_size=_PAGE_SIZE, **filters.wanted)
    entries: list[AuditEntry] = []
    for _ in range(_REQUESTS):
        found = await listed.page(after)
        entries += found.items
        after = found.following
        if after is None or len(_rows(filters, entries)) >= _ROWS:
            break
    return entries, after


def _rows(filters: Filters, entries: Sequence[AuditEntry]) -> list[Row]:
    return [Row([each]) for each in entries] if "unfolded" in filters.given else folded(entries)


async def _refused(request: ConsoleRequest, filters: Filters, error: ApiError | None = None) -> Response[str]:
    """Answer with the filters, what is wrong beside each, and no list."""
    if error is not None:
        filters.form.refuse(error)
    return await _list_page(request, filters, [], None, status=422 if error is None else error.status)


async def _list_page(
    request: ConsoleRequest,
    filters: Filters,
    entries: Sequence[AuditEntry],
    following: str | None,
    *,
    status: int = 200,
) -> Response[str]:
    return await request.page(
        "audit/list.html",
        area=_AREA,
        status=status,
        form=filters.form,
        given=filters.given,
        zone=filters.zone,
        ranges=RANGES,
        by_id=BY_ID,
        as_entered=as_entered,
        is_refused=status != 200,
        rows=_rows(filters, entries),
        known=await template_names(request, entries),
        following=following,
    )


def _suggestion(result: SearchResult) -> dict[str, str]:
    """Return what the API takes for an object, and what tells it apart."""
    detail = result.detail or ""
    if result.type == "user" and "@" in detail:
        return {"value": detail, "label": result.name}
    return {"value": result.name, "label": detail}


async def _keys(request: ConsoleRequest) -> KeySet:
    """Return the keys that verify heads; empty before the first head."""
    try:
        return KeySet.parse(msgspec.json.encode(await request.api.logs.keys()))
    except ValueError:
        return KeySet(())


async def _proof(request: ConsoleRequest, entry_id: str) -> InclusionProof | None:
    """Return the proof that an entry is in the tree; None until a head covers it."""
    try:
        return await request.api.logs.proof(entry_id)
    except ApiError as error:
        if error.status != _NOT_COVERED:
            raise
        return None


def _is_proved(proof: InclusionProof, keys: KeySet) -> bool:
    """Return whether the proof holds for the signed head that it names."""
    try:
        head = read_head(proof.head, keys)
        path = [decoded(each) for each in proof.audit_path]
        return is_included(decoded(proof.leaf_hash), proof.leaf_index, head.tree_size, path, head.root)
    except InvalidHead:
        return False


async def _chain_page(request: ConsoleRequest, form: Form, *, compare: bool = False) -> Response[str]:
    keys = await _keys(request)
    signed: SignedHead | None
    try:
        signed = await request.api.logs.head()
    except ApiError:
        signed = None
    head = None if signed is None else _accepted(signed.head, keys)
    continues: bool | None = None
    if compare and head is not None:
        earlier = _accepted(form.value("earlier").strip(), keys)
        if earlier is None:
            form.errors["earlier"] = "head"
        else:
            continues = await _continues(request, earlier, keys)
    return await request.page(
        "audit/chain.html",
        area=_AREA,
        status=422 if form.errors else 200,
        form=form,
        signed=signed,
        head=head,
        continues=continues,
    )


def _accepted(token: str, keys: KeySet) -> Head | None:
    """Return a head that one of these keys signed; None for any other text."""
    try:
        return read_head(token, keys)
    except InvalidHead:
        return None


async def _continues(request: ConsoleRequest, earlier: Head, keys: KeySet) -> bool:
    """Return whether the trail extends the tree of an earlier head."""
    try:
        proof = await request.api.logs.consistency(max(earlier.tree_size, 1))
        head = read_head(proof.head, keys)
        if head.log_id != earlier.log_id:
            return False
        if earlier.tree_size == 0:
            return True
        path = [decoded(each) for each in proof.path]
        return proof.second == head.tree_size and is_consistent(
            earlier.tree_size, earlier.root, head.tree_size, head.root, path
        )
    except (ApiError, InvalidHead):
        return False

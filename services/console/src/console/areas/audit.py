"""``/console/audit``: the audit trail, and the verification that it is unaltered."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from litestar import Response

from console.areas.names import application_names, user_names
from console.console import Area
from console.forms import Form
from console.requests import ConsoleRequest
from stead.audit import Head, InvalidHead, KeySet, is_consistent, is_included, read_head
from stead.audit.heads import decoded
from stead.errors import ApiError, Conflict, InvalidInput
from stead.models import InclusionProof, SignedHead

PATH: Final = "/console/audit"

_AREA: Final = "audit"
_PAGE_SIZE: Final = 50
_NOT_COVERED: Final = 409
_FILTERS: Final = {
    "person": "person",
    "targetId": "target_id",
    "actorId": "actor_id",
    "applicationId": "application_id",
    "organizationId": "organization_id",
    "subjectTokenId": "subject_token_id",
    "operation": "operation",
    "logKey": "key",
}
_DATES: Final = ("from", "until")

AREA: Final = Area()


@AREA.page("/audit")
async def audit(request: ConsoleRequest) -> Response[str]:
    given = {name: value for name in (*_FILTERS, *_DATES) if (value := request.parameter(name))}
    if "person" not in given and (user_id := request.parameter("userId")):  # in links from before
        given["person"] = user_id
    form = Form.of(**given)
    filters: dict[str, Any] = {member: given[name] for name, member in _FILTERS.items() if name in given}
    filters |= _period(form)
    listed = request.api.logs.list(page_size=_PAGE_SIZE, **filters)
    try:
        found = await listed.page(request.parameter("after") or None)
    except (InvalidInput, Conflict) as error:
        form.refuse(error)
        return await request.page(
            "audit/list.html", area=_AREA, status=error.status, form=form, given=given, found=None
        )
    return await request.page("audit/list.html", area=_AREA, form=form, given=given, found=found)


@AREA.page("/audit/export", scope="all")
async def export(request: ConsoleRequest) -> Response[Any]:
    return await request.download("/api/logs/export", name="audit-trail.jsonl")


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
        users=await user_names(request, [found.user_id, found.actor_id, found.requested_by]),
        applications=await application_names(request, [found.application_id]),
    )


@AREA.page("/audit/{entry_id:str}/proof")
async def proof(request: ConsoleRequest, entry_id: str) -> Response[Any]:
    return await request.download(f"/api/logs/{entry_id}/proof", name=f"proof-{entry_id}.json")


def _period(form: Form) -> dict[str, int]:
    """Return the bounds of two dates in UTC, both inclusive; a text that is not a date becomes an error of the form."""
    bounds = {}
    for name, member, days in (("from", "start_time", 0), ("until", "end_time", 1)):
        text = form.text(name)
        if text is None:
            continue
        try:
            day = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC) + timedelta(days=days)
            bounds[member] = int(day.timestamp() * 1000) - days
        except (ValueError, OverflowError):
            form.errors[name] = "date"
    return {member: bound for member, bound in bounds.items() if bound >= 0}


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

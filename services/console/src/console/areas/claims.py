"""``/console/claims``: the custom-claims function, its versions, tests, dry runs and failures."""

import asyncio
import difflib
import functools
import json
import re
import time
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec
from litestar import Response
from msgspec import UNSET

from console.areas.names import application_names, user_names
from console.confirmations import Deletion, ask, carry_out
from console.console import Area
from console.forms import Form, InvalidField
from console.requests import ConsoleRequest
from console.signed_in import NoSuchPage
from stead import ClaimsFunction, ClaimsFunctionFailure, DryRunReport, TestedClaims
from stead.errors import ApiError, Conflict, Forbidden, InvalidInput, NotFound, Unavailable, VersionMismatch
from stead.models import Recording

PATH: Final = "/console/claims"

_AREA: Final = "claims"
_VERSIONS: Final = 20
_CONTEXT_LINES: Final = 3
_VARIABLE: Final = re.compile(
    r"""^(?=.*\S)([^=\n]*)(?:=[^\S\n]*("(?:[^"\\]|\\.)*")[^\S\n]*$|(=.*)?$)""",
    re.MULTILINE,
)
"""``NAME=value``, or ``NAME="value"`` with the escapes of JSON, over several lines too; or a line that is neither."""

Kind = Literal["access-token", "client-credentials"]
KINDS: Final[tuple[Kind, ...]] = ("access-token", "client-credentials")

_EXAMPLES: Final[dict[Kind, str]] = {
    "access-token": """const getCustomJwtClaims = async ({ token, context, environmentVariables, api }) => {
  return { plan: context.user.customData.plan };
};
""",
    "client-credentials": """const getCustomJwtClaims = async ({ token, context, environmentVariables, api }) => {
  return { application: context.application.name };
};
""",
}
_TOKENS: Final[dict[Kind, dict[str, Any]]] = {
    "access-token": {"kind": "AccessToken", "aud": "https://api.example.com", "scope": "read:orders"},
    "client-credentials": {"kind": "ClientCredentials", "aud": "https://api.example.com", "scope": "read:orders"},
}
_CONTEXTS: Final[dict[Kind, dict[str, Any]]] = {
    "access-token": {
        "user": {
            "id": "8m4b7n1c5z9l",
            "name": "Ada",
            "customData": {"plan": "gold"},
            "profile": {},
            "roles": [
                {
                    "id": "c5z9l3jrx2kq0v8m4b7n1",
                    "name": "Support",
                    "description": "",
                    "scopes": [
                        {
                            "id": "n1c5z9l3jrx2kq0v8m4b7",
                            "name": "read:orders",
                            "description": None,
                            "resourceId": "b7n1c5z9l3jrx2kq0v8m4",
                            "resource": {
                                "id": "b7n1c5z9l3jrx2kq0v8m4",
                                "name": "Orders",
                                "indicator": "https://api.example.com",
                            },
                        }
                    ],
                }
            ],
            "organizations": [],
            "organizationRoles": [],
        },
        "application": {"id": "m4b7n1c5z9l3jrx2kq0v8", "name": "Shop", "customData": {}},
        "grant": {"type": "authorization_code"},
        "interaction": {
            "interactionEvent": "SignIn",
            "userId": "8m4b7n1c5z9l",
            "verificationRecords": [{"type": "Password", "verified": True}],
            "authTime": 1_790_000_000,
            "amr": ["pwd"],
            "acr": "urn:service:acr:password",
        },
    },
    "client-credentials": {"application": {"id": "m4b7n1c5z9l3jrx2kq0v8", "name": "Nightly export", "customData": {}}},
}

AREA: Final = Area()


class Problem(msgspec.Struct, frozen=True):
    """Why a script failed, and where.

    Attributes:
        message: What is wrong.
        line: From 1; None if unknown.
        column: From 1; None if unknown.
        text: The line itself.
    """

    message: str
    line: int | None
    column: int | None
    text: str


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome of a test or a dry run; exactly one attribute is set.

    Attributes:
        tested: The claims of a test.
        denied: The message with which it denied access.
        report: The report of a dry run over the recorded inputs.
        problem: Why it failed.
    """

    tested: TestedClaims | None = None
    denied: str | None = None
    report: DryRunReport | None = None
    problem: Problem | None = None


class Candidate(msgspec.Struct, frozen=True):
    """What to test or dry-run: a script, or a saved version.

    Attributes:
        script: What was typed, or that of the version.
        variables: Environment variables; None for those of the saved version, or for none.
        version: Number of a saved version; None for a script that is not saved.
    """

    script: str
    variables: dict[str, str] | None = None
    version: int | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """The candidate as arguments of the API."""
        if self.version is not None:
            return {"version": self.version}
        return {"script": self.script, "environment_variables": self.variables}


@AREA.page("/claims")
async def functions(request: ConsoleRequest) -> Response[str]:
    found = await asyncio.gather(*(_active(request, kind) for kind in KINDS))
    failures = await asyncio.gather(*(_failures(request, kind) for kind in KINDS))
    return await request.page("claims/list.html", area=_AREA, functions=list(zip(KINDS, found, failures, strict=True)))


@AREA.page("/claims/{kind:str}")
async def function(request: ConsoleRequest, kind: str) -> Response[str]:
    return await _page(request, _kind(kind))


@AREA.action("/claims/{kind:str}")
async def save_or_try(request: ConsoleRequest, kind: str, form: Form) -> Response[str]:
    token_kind = _kind(kind)
    step = form.value("step")
    try:
        variables, samples = _variables(form), _samples(form)
    except InvalidField:
        return await _page(request, token_kind, form=form, status=422)
    candidate = Candidate(form.value("script"), variables)
    try:
        if step == "test":
            return await _page(
                request, token_kind, form=form, trial=await _test(request, token_kind, candidate, samples)
            )
        if step == "dry-run":
            return await _page(request, token_kind, form=form, trial=await _dry_run(request, token_kind, candidate))
        before = await _active(request, token_kind)
        saved = await _save(request, token_kind, form, variables, samples)
    except Unavailable as error:
        form.problem = str(error)
        return await _page(request, token_kind, form=form, status=503)
    except Conflict as error:
        if error.data.get("reason") == "variables-needed":
            form.errors["environmentVariables"] = "needed"
            return await _page(request, token_kind, form=form, status=error.status)
        trial = Trial(problem=_problem(candidate.script, error))
        return await _page(request, token_kind, form=form, trial=trial, status=error.status)
    except NotFound:  # deactivated meanwhile
        form.is_overtaken = True
        return await _page(request, token_kind, form=form, status=412)
    except (InvalidInput, VersionMismatch) as error:
        form.refuse(error)
        return await _page(request, token_kind, form=form, status=error.status)
    if before is not None and saved.version == before.version:
        return await request.done(f"{PATH}/{token_kind}", "unchanged")
    return await request.done(
        f"{PATH}/{token_kind}", "claims.saved", name=str(saved.version), undo=_undo(token_kind, before)
    )


@AREA.action("/claims/{kind:str}/recording")
async def record(request: ConsoleRequest, kind: str, form: Form) -> Response[str]:
    token_kind = _kind(kind)
    try:
        recording = await request.api.custom_claims.record(token_kind, form.number("minutes"))
    except InvalidInput as error:
        form.refuse(error)
        return await _page(request, token_kind, to_record=form, status=error.status)
    if recording.expires_at is None:
        return await request.done(f"{PATH}/{token_kind}", "claims.recording_stopped")
    minutes = max(0, round((recording.expires_at - time.time() * 1000) / 60_000))
    return await request.done(f"{PATH}/{token_kind}", "claims.recording", name=str(minutes))


@AREA.page("/claims/{kind:str}/delete", scope="all")
async def deletion(request: ConsoleRequest, kind: str) -> Response[str]:
    return await ask(request, await _deletion(request, _kind(kind)))


@AREA.action("/claims/{kind:str}/delete")
async def deactivate(request: ConsoleRequest, kind: str, form: Form) -> Response[str]:
    return await carry_out(request, form, functools.partial(_deletion, request, _kind(kind)))


@AREA.page("/claims/{kind:str}/versions/{number:str}")
async def version(request: ConsoleRequest, kind: str, number: str) -> Response[str]:
    return await _version_page(request, _kind(kind), number)


@AREA.action("/claims/{kind:str}/versions/{number:str}")
async def activate_or_try(request: ConsoleRequest, kind: str, number: str, form: Form) -> Response[str]:
    token_kind, step = _kind(kind), form.value("step")
    saved = await _version(request, token_kind, number)
    if step in {"test", "dry-run"}:
        candidate = Candidate(saved.script, version=saved.version)
        samples = dict(saved.token_sample or _TOKENS[token_kind]), dict(saved.context_sample or _CONTEXTS[token_kind])
        try:
            trial = await (
                _test(request, token_kind, candidate, samples)
                if step == "test"
                else _dry_run(request, token_kind, candidate)
            )
        except Unavailable as error:
            form.problem = str(error)
            return await _version_page(request, token_kind, number, form=form, status=503)
        return await _version_page(request, token_kind, number, trial=trial)
    before = await _active(request, token_kind)
    activated = await request.api.custom_claims.activate(token_kind, saved.version)
    return await request.done(
        f"{PATH}/{token_kind}", "claims.activated", name=str(activated.version), undo=_undo(token_kind, before)
    )


def differences(before: str, after: str) -> list[tuple[str, str]]:
    """Return the unified diff of two scripts: the mark of each line, ``+``, ``-``, ``@`` or a blank, and its text."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=_CONTEXT_LINES)
    marked = ((line[0], line if line.startswith("@@") else line[1:]) for line in lines)
    return [*marked][2:]  # without the file header


def _kind(kind: str) -> Kind:
    """Return the kind of token in a path.

    Raises:
        NoSuchPage: There is no such kind.
    """
    for each in KINDS:
        if each == kind:
            return each
    raise NoSuchPage


def _undo(kind: Kind, before: ClaimsFunction | None) -> str:
    """Return the page that restores what was active before: a version, or no function."""
    return f"{PATH}/{kind}/delete" if before is None else f"{PATH}/{kind}/versions/{before.version}"


async def _active(request: ConsoleRequest, kind: Kind) -> ClaimsFunction | None:
    try:
        return await request.api.custom_claims.get(kind)
    except NotFound:
        return None


async def _deletion(request: ConsoleRequest, kind: Kind) -> Deletion:
    active = await request.api.custom_claims.get(kind)
    return Deletion(
        template="claims/delete.html",
        area=_AREA,
        values={"kind": kind, "number": active.version},
        etag=active.etag,
        delete=functools.partial(request.api.custom_claims.delete, kind),
        then=f"{PATH}/{kind}",
        notice="claims.deactivated",
        notice_values={"undo": _undo(kind, active)},
    )


async def _failures(request: ConsoleRequest, kind: Kind) -> list[ClaimsFunctionFailure] | None:
    """Return the last failures; None while they cannot be read."""
    try:
        return await request.api.custom_claims.failures(kind)
    except Unavailable:
        return None


async def _recording(request: ConsoleRequest, kind: Kind) -> Recording | None:
    """Return the state of the recording; None while it cannot be read."""
    try:
        return await request.api.custom_claims.recording(kind)
    except Unavailable:
        return None


async def _version(request: ConsoleRequest, kind: Kind, number: str) -> ClaimsFunction:
    """Return a version.

    Raises:
        NoSuchPage: It is not a number.
        NotFound: There is no such version.
    """
    if not (number.isascii() and number.isdecimal() and len(number) < 10):
        raise NoSuchPage
    return await request.api.custom_claims.get_version(kind, int(number))


def _variables(form: Form) -> dict[str, str] | None:
    """Return the environment variables that were typed; None to keep the stored ones.

    Raises:
        InvalidField: A line has no name or repeats one; the error is set.
    """
    if not form.is_checked("replace"):
        return None
    variables: dict[str, str] = {}
    for before, quoted, plain in _VARIABLE.findall(form.value("environmentVariables")):
        name = before.strip()
        try:
            value = json.loads(quoted, strict=False) if quoted else plain.removeprefix("=")
        except ValueError:
            value = None
        if value is None or not (quoted or plain) or not name or name in variables:
            form.errors["environmentVariables"] = "line"
            raise InvalidField
        variables[name] = value
    return variables


def _samples(form: Form) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the samples of a token and of a context."""
    return form.free_form("tokenSample"), form.free_form("contextSample")


async def _save(
    request: ConsoleRequest,
    kind: Kind,
    form: Form,
    variables: dict[str, str] | None,
    samples: tuple[dict[str, Any], dict[str, Any]],
) -> ClaimsFunction:
    """Save the form as a new version."""
    token, context = samples
    etag = form.etag()
    if etag is UNSET:
        return await request.api.custom_claims.save(
            kind,
            form.value("script"),
            environment_variables=variables,
            context_sample=context,
            token_sample=token,
            block_issuance_on_error=form.is_checked("blockIssuanceOnError"),
            if_none_match="*",
        )
    return await request.api.custom_claims.update(
        kind,
        script=form.changed("script", Form.value),
        environment_variables=UNSET if variables is None else variables,
        context_sample=form.changed("contextSample", Form.free_form),
        token_sample=form.changed("tokenSample", Form.free_form),
        block_issuance_on_error=form.changed("blockIssuanceOnError", Form.is_checked),
        if_match=etag,
    )


async def _test(
    request: ConsoleRequest,
    kind: Kind,
    candidate: Candidate,
    samples: tuple[dict[str, Any], dict[str, Any]],
) -> Trial:
    token, context = samples
    try:
        tested = await request.api.custom_claims.test(kind, token=token, context=context, **candidate.arguments)
    except Forbidden as error:
        return Trial(denied=error.message)
    except Conflict as error:
        return Trial(problem=_problem(candidate.script, error))
    return Trial(tested=tested)


async def _dry_run(request: ConsoleRequest, kind: Kind, candidate: Candidate) -> Trial:
    try:
        report = await request.api.custom_claims.dry_run(kind, **candidate.arguments)
    except Conflict as error:
        return Trial(problem=_problem(candidate.script, error))
    return Trial(report=report)


def _problem(script: str, error: ApiError) -> Problem:
    lines = script.split("\n")
    line = error.data.get("line")
    text = lines[line - 1] if isinstance(line, int) and 0 < line <= len(lines) else ""
    return Problem(str(error.data.get("message") or error.message), line, error.data.get("column"), text)


def _pretty(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value)).decode()


async def _page(
    request: ConsoleRequest,
    kind: Kind,
    *,
    form: Form | None = None,
    to_record: Form | None = None,
    trial: Trial | None = None,
    status: int = 200,
) -> Response[str]:
    active, versions, failures, recording = await asyncio.gather(
        _active(request, kind),
        request.page_of(request.api.custom_claims.versions(kind, page_size=_VERSIONS)),
        _failures(request, kind),
        _recording(request, kind),
    )
    current = Form.editing(
        active.etag if active else None,
        script=active.script if active else _EXAMPLES[kind],
        blockIssuanceOnError=active.block_issuance_on_error if active else False,
        tokenSample=_pretty((active.token_sample if active else None) or _TOKENS[kind]),
        contextSample=_pretty((active.context_sample if active else None) or _CONTEXTS[kind]),
    )
    values = form or request.typed() or current
    values.merge(current)
    return await request.page(
        "claims/function.html",
        area=_AREA,
        status=status,
        kind=kind,
        active=active,
        form=values,
        recording=recording,
        to_record=to_record or Form(),
        trial=trial,
        pretty=_pretty,
        versions=versions,
        number=request.page_number(),
        size=_VERSIONS,
        failures=failures,
        **await _authors(request, versions.items),
    )


async def _version_page(
    request: ConsoleRequest,
    kind: Kind,
    number: str,
    *,
    form: Form | None = None,
    trial: Trial | None = None,
    status: int = 200,
) -> Response[str]:
    found, active, newest = await asyncio.gather(
        _version(request, kind, number),
        _active(request, kind),
        request.api.custom_claims.versions(kind, page_size=1).page(),
    )
    other = await _compared(request, kind, found, active)
    return await request.page(
        "claims/version.html",
        area=_AREA,
        status=status,
        kind=kind,
        saved=found,
        other=other,
        newest=newest.total,
        differences=differences(other.script, found.script) if other else [],
        form=form or Form(),
        trial=trial,
        pretty=_pretty,
        **await _authors(request, [found]),
    )


async def _compared(
    request: ConsoleRequest, kind: Kind, shown: ClaimsFunction, active: ClaimsFunction | None
) -> ClaimsFunction | None:
    """Return the version to compare one with: the chosen one, the active one, or the one before the active one.

    Raises:
        NoSuchPage: The choice is not a number.
        NotFound: There is no such version.
    """
    if chosen := request.parameter("against"):
        return await _version(request, kind, chosen)
    if active is None or active.version != shown.version:
        return active
    return await _version(request, kind, str(shown.version - 1)) if shown.version > 1 else None


async def _authors(request: ConsoleRequest, versions: Sequence[Any]) -> dict[str, Any]:
    """Return the names of the users and applications that saved versions."""
    users, applications = await asyncio.gather(
        user_names(request, [each.created_by.user_id for each in versions]),
        application_names(request, [each.created_by.application_id for each in versions]),
    )
    return {"users": users, "applications": applications}

"""Forms of the pages: the submitted values, and their errors."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qsl

from litestar import Request
from msgspec import UNSET, UnsetType

from identity_common.http.request_body import read_whole
from stead.errors import ApiError, VersionMismatch

CSRF_FIELD: Final = "csrf_token"
ETAG_FIELD: Final = "etag"
"""Field of the version that the page of a form shows; empty for a relation that is too long to have one."""
MAX_BYTES: Final = 1024 * 1024
"""Size of a form at most; the largest is a pasted list of members."""

_MAX_FIELDS: Final = 5_000
_WAS: Final = "was."
"""Prefix of the hidden fields with the values that the page showed before anything was typed."""
_ETAG: Final = re.compile(r'"[\x21\x23-\x7e]{1,128}"')


class BadForm(Exception):  # noqa: N818 - the name is what happened
    """The body is not a form that one of our pages sends."""


class Form:
    """Entered values of a form, and their errors.

    Attributes:
        errors: The error of each field.
        problem: An error of no field in particular; empty if there is none.
        is_overtaken: Whether what the page showed was changed before the form was sent.
        saved: The current stored value of each field that was changed both here and meanwhile.
        adopted: What the page had shown in each field that was only changed meanwhile, and now has its stored value.
    """

    def __init__(self, fields: Mapping[str, Sequence[str]] | None = None) -> None:
        self._fields = fields or {}
        self.errors: dict[str, str] = {}
        self.problem = ""
        self.is_overtaken = False
        self.saved: dict[str, str] = {}
        self.adopted: dict[str, str] = {}

    @classmethod
    def of(cls, **values: object) -> "Form":
        """Return a form with these values of an entity; None is an empty field."""
        return cls({name: [_shown(value)] for name, value in values.items()})

    @classmethod
    def editing(cls, etag: str | None, **values: object) -> "Form":
        """Return the form that edits this version of an entity; a list has the values of checkboxes with one name."""
        shown = {
            name: [_shown(each) for each in (value if isinstance(value, list) else [value])]
            for name, value in values.items()
        }
        return cls({ETAG_FIELD: [etag or ""], **{_WAS + name: texts for name, texts in shown.items()}, **shown})

    @property
    def shown(self) -> dict[str, list[str]]:
        """The hidden fields with what the page showed."""
        return {name: list(values) for name, values in self._fields.items() if name.startswith(_WAS)}

    @property
    def fields(self) -> dict[str, list[str]]:
        """All fields except the CSRF token, in their order."""
        return {name: list(values) for name, values in self._fields.items() if name != CSRF_FIELD}

    def value(self, name: str) -> str:
        """Return the text of a field; empty if it was not sent."""
        values = self._fields.get(name)
        return values[-1] if values else ""

    def text(self, name: str) -> str | None:
        """Return the text of a field without blanks around it; None if nothing is left."""
        return self.value(name).strip() or None

    def changed(self, name: str) -> str | UnsetType:
        """Return the text of a field; UNSET if it is what the page showed, whatever its line endings were."""
        return UNSET if self.all(name) == self.all(_WAS + name) else self.value(name)

    def number(self, name: str) -> Any:
        """Return the number in a field, None if it is empty, and any other text unchanged: the API refuses it."""
        text = self.text(name)
        return int(text) if text and text.isascii() and text.isdecimal() and len(text) <= 15 else text

    def all(self, name: str) -> list[str]:
        """Return every value of a field, such as checkboxes with one name."""
        return list(self._fields.get(name, ()))

    def lines(self, name: str) -> list[str]:
        """Return the lines of a field that are not blank."""
        return [line.strip() for line in self.value(name).split("\n") if line.strip()]

    def is_checked(self, name: str) -> bool:
        """Return whether a checkbox is checked."""
        return bool(self.value(name))

    def etag(self) -> str | UnsetType:
        """Return the version that the page showed, for ``if_match``; UNSET if there is none.

        Raises:
            BadForm: None of our pages sends this.
        """
        text = self._fields.get(ETAG_FIELD, ("-",))[-1]
        if text and _ETAG.fullmatch(text) is None:
            raise BadForm
        return text or UNSET

    def version(self) -> str:
        """Return the version that the page showed, where there always is one.

        Raises:
            BadForm: None of our pages sends this.
        """
        return self.single(ETAG_FIELD, _ETAG)

    def single(self, name: str, pattern: re.Pattern[str]) -> str:
        """Return the value of a field that our pages send exactly once, in this format.

        Raises:
            BadForm: It is missing, repeated, or in another format.
        """
        values = self._fields.get(name, ())
        if len(values) != 1 or pattern.fullmatch(values[0]) is None:
            raise BadForm
        return values[0]

    def merge(self, current: "Form", *, choices: Collection[str] = ()) -> None:
        """Merge what was typed with what was saved meanwhile, if the form is overtaken.

        A field that was not changed here gets the stored value. One that was changed both here and meanwhile keeps what
        was typed, with the stored value beside it; sent again, the form replaces that value.

        Args:
            current: What is stored now.
            choices: Names of checkboxes: each of their values is changed or not.
        """
        if not self.is_overtaken:
            return
        after = {name: self.all(name) for name in self._fields}
        for name in (shown.removeprefix(_WAS) for shown in current.shown):
            if name in choices:
                was, mine = set(self.all(_WAS + name)), set(self.all(name))
                after[name] = sorted((set(current.all(name)) | (mine - was)) - (was - mine))
            elif current.text(name) in {self.text(_WAS + name), self.text(name)}:
                continue
            elif self.text(name) == self.text(_WAS + name):
                self.adopted[name] = self.value(_WAS + name)
                after[name] = current.all(name)
            else:
                self.saved[name] = current.value(name)
        self._fields = {**after, **current.shown, ETAG_FIELD: current.all(ETAG_FIELD)}

    def refuse(self, error: ApiError, fields: Mapping[str, str] | None = None) -> None:
        """Set the errors that the API reports.

        Args:
            error: The refusal.
            fields: The field of each error code.
        """
        if isinstance(error, VersionMismatch):
            self.is_overtaken = True
            return
        if field := (fields or {}).get(error.code):
            self.errors[field] = error.message
            return
        unplaced = []
        for issue in error.issues:
            path, message = str(issue.get("path", "")), str(issue.get("message", ""))
            name, _, place = path.partition("[")
            if name in self._fields:
                line = place.partition("]")[0]
                self.errors.setdefault(name, f"{int(line) + 1}: {message}" if line.isdecimal() else message)
            else:
                unplaced.append(f"{path}: {message}" if path else message)
        if unplaced or not self.errors:
            self.problem = "; ".join(unplaced) or error.message


async def read_form(request: Request) -> Form:  # type: ignore[type-arg]
    """Return the form that was sent.

    Raises:
        BadForm: The body is not a form, is too large, or incomplete.
    """
    content_type = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if content_type != "application/x-www-form-urlencoded":
        raise BadForm
    body = await read_whole(request.receive, at_most=MAX_BYTES)
    if body is None or len(body) > MAX_BYTES:
        raise BadForm
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_MAX_FIELDS, errors="strict")
    except ValueError:
        raise BadForm from None
    fields: dict[str, list[str]] = {}
    for name, value in pairs:
        fields.setdefault(name, []).append(value.replace("\r\n", "\n"))
    return Form(fields)


def _shown(value: object) -> str:
    if value is None or value is False:
        return ""
    return "yes" if value is True else str(value)

"""Forms of the pages: the submitted values, and their errors."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import parse_qsl

from litestar import Request
from msgspec import UNSET, UnsetType

from identity_common.failures import Invalid
from identity_common.http.json_body import parse_json
from identity_common.http.request_body import read_whole
from stead.errors import ApiError, VersionMismatch

T = TypeVar("T")

CSRF_FIELD: Final = "csrf_token"
WRITE_ONLY_FIELD: Final = "config.clientSecret"
"""Field of the secret of a connector's client, which no page shows."""
PASSWORD_FIELDS: Final = frozenset({"currentPassword", "password", "repeated", WRITE_ONLY_FIELD})
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


class InvalidField(Exception):  # noqa: N818
    """A field cannot be read; the form has the error."""


class Choices(NamedTuple):
    """Values of checkboxes with one name that were checked, and those that were cleared."""

    added: list[str]
    removed: list[str]


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
        self._fields = dict(fields or {})
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
        """All fields that may be stored, in their order: those except the CSRF token and passwords."""
        left_out = {CSRF_FIELD, *PASSWORD_FIELDS}
        return {name: list(values) for name, values in self._fields.items() if name not in left_out}

    def add(self, name: str, value: str) -> None:
        """Add a field that was not entered."""
        self._fields[name] = [value]

    def value(self, name: str) -> str:
        """Return the text of a field; empty if it was not sent."""
        values = self._fields.get(name)
        return values[-1] if values else ""

    def optional(self, name: str) -> str | None:
        """Return the text of a field as it was typed; None if it is empty."""
        return self.value(name) or None

    def text(self, name: str) -> str | None:
        """Return the text of a field whose values have no blanks around them; None if nothing is left."""
        return self.value(name).strip() or None

    def is_changed(self, name: str) -> bool:
        """Return whether a field differs from what the page showed."""
        return self.entered(name) != self.entered(_WAS + name)

    def changed(self, name: str, read: Callable[["Form", str], T]) -> T | UnsetType:
        """Return what ``read`` reads from a field; UNSET if the page showed the same, so that it stays as it is stored.

        A browser sends something else than what is stored: it normalizes line breaks.
        """
        return read(self, name) if self.is_changed(name) else UNSET

    def number(self, name: str) -> Any:
        """Return the number in a field, None if it is empty, and any other text unchanged: the API refuses it."""
        text = self.text(name)
        return int(text) if text and text.isascii() and text.isdecimal() and len(text) <= 15 else text

    def all(self, name: str) -> list[str]:
        """Return every value of a field, such as checkboxes with one name."""
        return list(self._fields.get(name, ()))

    def entered(self, name: str) -> list[str]:
        """Return the values of a field that are not empty: a browser does not send an unchecked checkbox."""
        return [value for value in self.all(name) if value]

    def lines(self, name: str) -> list[str]:
        """Return the lines of a field that are not blank."""
        return [line.strip() for line in self.value(name).split("\n") if line.strip()]

    def choices(self, name: str) -> Choices:
        """Return what was checked and what was cleared, compared with what the page showed as held."""
        was, now = dict.fromkeys(self.all(_WAS + name)), dict.fromkeys(self.all(name))
        return Choices([each for each in now if each not in was], [each for each in was if each not in now])

    def json_object(self, name: str) -> dict[str, Any]:
        """Return the JSON object in a field.

        The API's own parser reads it: another one would drop a repeated member before the API could refuse it.

        Raises:
            InvalidField: The API would refuse the text; the error is set.
        """
        try:
            value = parse_json(self.value(name).encode())
        except Invalid as invalid:
            issues = invalid.data.issues if invalid.data else []
            self.errors[name] = "; ".join(issue.message for issue in issues)
            raise InvalidField from None
        if not isinstance(value, dict):
            self.errors[name] = "must be an object"
            raise InvalidField
        return value

    def free_form(self, name: str) -> dict[str, Any]:
        """Return the free-form object in a field; a blank text is an empty one.

        Raises:
            InvalidField: The API would refuse the text; the error is set.
        """
        return self.json_object(name) if self.text(name) else {}

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
            elif current.entered(name) in (self.entered(_WAS + name), self.entered(name)):
                continue
            elif not self.is_changed(name):
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
        fields.setdefault(name, []).append(_with_line_feeds(value))
    return Form(fields)


def _shown(value: object) -> str:
    if value is None or value is False:
        return ""
    return "yes" if value is True else _with_line_feeds(str(value))


def _with_line_feeds(text: str) -> str:
    """Return a text with the line breaks of a page; a browser sends CR LF for each of them."""
    return text.replace("\r\n", "\n").replace("\r", "\n")

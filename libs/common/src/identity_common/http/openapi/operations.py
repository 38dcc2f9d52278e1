"""Renders operations: what all routes of a kind have in common is defined here, once."""

import re
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, Final

from identity_common.http.openapi.declarations import (
    JSON,
    MAX_VALUES,
    Filter,
    Json,
    Operation,
    header,
    optional_parameter,
)
from identity_common.http.openapi.examples import Schemas
from identity_common.http.openapi.texts import EXAMPLES, HEADERS, REFUSALS
from identity_common.http.pagination import MAX_NUMBER, MAX_SEARCH_CHARACTERS, MAX_SIZE
from identity_common.http.problems import ErrorBody
from identity_common.paging import DEFAULT_SIZE

_PARAMETER: Final = re.compile(r"\{(\w+)\}")
_IF_MATCH: Final = (
    "Entity tags from the GET of this path, or *: the current version must be one of these. A list has an entity tag if"
    " one page holds all of it, so one of more than 100 items has none."
)
_IF_NONE_MATCH: Final = "*: the object must not exist yet."
_PATH_PARAMETERS: Final = {"kind": "Kind of the tokens that the function is for.", "log_id": "Id of the entry."}
"""Parameters whose name does not describe them."""
_NO_NUL: Final = "^[^\\u0000]*$"


class OperationRenderer:
    """Renders the operation of one path.

    Args:
        path: The path.
        operation: The operation.
        is_readable: Whether the path has a GET.
    """

    def __init__(self, path: str, operation: Operation, *, is_readable: bool) -> None:
        self.path = path
        self._is_versioned = is_readable and operation.is_revised and operation.method in {"PUT", "PATCH", "DELETE"}
        self.method = operation.method
        self._operation = operation
        self._more = operation.more

    @property
    def types(self) -> list[Any]:
        """The types that need a schema."""
        return [kind for kind in (self._operation.body, self._operation.answer) if kind not in {None, bytes, str}]

    def describe(self, schemas: Schemas) -> Json:
        """Return the Operation Object."""
        described: Json = {
            "operationId": self._operation.operation_id,
            "summary": self._operation.summary,
            "description": self._operation.description,
            "tags": list(self._operation.tags),
            "parameters": list(self._parameters()),
            "responses": {str(status): value for status, value in sorted(self._responses(schemas).items())},
        }
        if self._operation.body is not None:
            described["requestBody"] = {
                "required": self._more.body_required,
                "content": schemas.content(self._operation.body),
            }
            if self._more.body_example is not None:
                described["requestBody"]["content"]["application/json"]["example"] = self._more.body_example
        if not self._operation.is_guarded:
            described["security"] = []
        elif self._more.takes_userinfo_token:
            described["security"] = [{"bearer": []}]
        return {name: value for name, value in described.items() if value or name == "security"}

    def _parameters(self) -> Iterator[Json]:
        for name in _PARAMETER.findall(self.path):
            example = EXAMPLES[re.sub(r"_(\w)", lambda match: match[1].upper(), name)]
            schema = {"type": "string", "minLength": 1, "pattern": "^[^\\u0000/]+$"}
            noun, _, kind = name.rpartition("_")
            yield {
                "name": name,
                "in": "path",
                "description": _PATH_PARAMETERS.get(name) or f"{kind.capitalize()} of the {noun.replace('_', ' ')}.",
                "required": True,
                "schema": schema,
                "example": example,
            }
        if self._operation.is_list:
            bounds = (("page", MAX_NUMBER, "Number of the page, from 1."), ("page_size", MAX_SIZE, "Items per page."))
            for name, maximum, description in bounds:
                schema = {"type": "integer", "minimum": 1, "maximum": maximum}
                if name == "page_size":
                    schema["default"] = DEFAULT_SIZE
                yield _query(name, schema, description)
            text = {"type": "string", "maxLength": MAX_SEARCH_CHARACTERS, "pattern": _NO_NUL}
            yield _query("q", text, "Return only items whose name or description contains this text, ignoring case.")
            yield _query("search", text, "Same as q; a leading or trailing % is ignored.")
        for each in self._more.filters:
            yield _query(each.name, _filter_schema(each), each.description)
        for flag in self._more.flags:
            schema = {"type": "boolean", "default": False}
            yield optional_parameter(flag.name, "query", flag.description, schema, True)
        for sent in self._more.request_headers:
            yield optional_parameter(sent.name, "header", sent.description, {"type": "string"}, sent.example)
        yield from self._conditions()

    def _conditions(self) -> Iterator[Json]:
        example = HEADERS["ETag"]["example"]
        if self._is_conditional:
            description = "Entity tags that the client already has, or *."
            yield optional_parameter("If-None-Match", "header", description, {"type": "string"}, example)
        if self._is_versioned:
            yield optional_parameter("If-Match", "header", _IF_MATCH, {"type": "string"}, example)
            if self._more.may_create:
                schema = {"type": "string", "enum": ["*"]}
                yield optional_parameter("If-None-Match", "header", _IF_NONE_MATCH, schema, "*")

    def _responses(self, schemas: Schemas) -> dict[int, Json]:
        status = self._operation.status
        success: Json = {"description": HTTPStatus(status).phrase, "headers": _headers(*self._success_headers())}
        if self._operation.answer is not None:
            success["content"] = schemas.content(self._operation.answer, self._more.media_type)
            if self._more.example is not None:
                success["content"][self._more.media_type]["example"] = self._more.example
        responses = {status: success}
        if self._more.may_create:
            responses[201] = {**success, "description": HTTPStatus(201).phrase}
        if self._is_conditional:
            responses[304] = {
                "description": "Not modified: the client already has this response.",
                "headers": _headers(*self._cached_headers()),
            }
        for refusal in self._refusals():
            responses[refusal] = _refusal(refusal, schemas)
        return responses

    def _cached_headers(self) -> tuple[str, ...]:
        return ("ETag", "Cache-Control") if self.path.startswith("/api/") else ("ETag",)

    @property
    def _is_conditional(self) -> bool:
        return self.method == "GET" and self._operation.answer is not None and self._more.media_type == JSON

    def _success_headers(self) -> Iterator[str]:
        if self._is_conditional:
            yield from self._cached_headers()
        if self._operation.is_list:
            yield from ("Total-Number", "Link")
        if self._operation.is_revised and self.method != "GET":
            yield "Identity-Revision"
        yield from self._more.headers

    def _refusals(self) -> Iterator[int]:
        """Yield the error statuses that follow from what the operation takes."""
        found = {500, *self._more.refuses}
        if self._operation.is_guarded:
            found |= {400, 401, 403, 503}
        if "{" in self.path:
            found.add(404)
        if self._is_versioned:
            found |= {400, 412}
        if self._operation.body is not None:
            found |= {400, 413, 415, 422}
        return (status for status in sorted(found) if status not in self._more.never)


def _filter_schema(declared: Filter) -> Json:
    value: Json = {"type": "string"}
    if declared.bounds is not None:
        minimum, maximum = declared.bounds
        return {"type": "integer", "minimum": minimum, "maximum": maximum}
    if declared.values:
        value["enum"] = list(declared.values)
    else:
        value |= {"minLength": 1, "maxLength": declared.max_length, "pattern": _NO_NUL}
    return {"type": "array", "items": value, "maxItems": MAX_VALUES} if declared.is_repeatable else value


def _query(name: str, schema: Json, description: str) -> Json:
    return optional_parameter(name, "query", description, schema, _query_example(name, schema))


def _query_example(name: str, schema: Json) -> Any:
    if schema["type"] == "array":
        return [_query_example(name, schema["items"])]
    # ``search.username`` and ``excludeUserId`` have the examples of ``username`` and ``userId``.
    member = re.sub(r"^exclude(\w)", lambda match: match[1].lower(), name).rpartition(".")[2]
    return schema["enum"][0] if "enum" in schema else EXAMPLES[member]


def _refusal(status: int, schemas: Schemas) -> Json:
    code, message, description = REFUSALS[status]
    names = {401: ("WWW-Authenticate",), 403: ("WWW-Authenticate",), 503: ("Retry-After",)}.get(status, ())
    example: Json = {"code": code, "message": message}
    if status == 400:
        example["data"] = {"issues": [{"path": "name", "message": "Expected `str`, got `int`"}]}
    content = schemas.content(ErrorBody)
    content["application/json"]["example"] = example
    return {"description": description, "headers": _headers(*names), "content": content}


def _headers(*names: str) -> Json:
    return header("X-Request-Id", *names)

"""Renders operations: what all routes of a kind have in common is defined here, once."""

import re
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, Final

from identity_common.http.openapi.declarations import BEARER, JSON, MAX_VALUES, Answer, Content, Filter, Json, Operation
from identity_common.http.openapi.examples import Schemas
from identity_common.http.openapi.texts import EXAMPLES, HEADERS, REFUSALS
from identity_common.http.pagination import MAX_NUMBER, MAX_SEARCH_CHARACTERS, MAX_SIZE
from identity_common.http.problems import ErrorBody
from identity_common.paging import DEFAULT_SIZE
from identity_common.rights.operations import PARAMETERS, REQUIREMENTS

OAUTH2: Final = "oauth2"
"""The security scheme whose scopes are those of the Management API."""

_PARAMETER: Final = re.compile(r"\{(\w+)\}")
_IF_MATCH: Final = (
    "Entity tags from the GET of this path, or *: the current version must be one of these. A list has an entity tag if"
    " one page holds all of it, so one of more than 100 items has none."
)
_IF_NONE_MATCH: Final = "*: the object must not exist yet."
_PATH_PARAMETERS: Final = {"kind": "Kind of the tokens that the function is for.", "log_id": "Id of the entry."}
"""Parameters whose name does not describe them."""
_REFUSAL_HEADERS: Final = {
    401: ("WWW-Authenticate",),
    403: ("WWW-Authenticate",),
    429: ("Retry-After",),
    503: ("Retry-After",),
}
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
        self._answers = operation.answers or self._usual_answers()

    @property
    def types(self) -> Iterator[Any]:
        """The types that need a schema."""
        for content in (self._operation.body, *(answer.content for answer in self._answers.values())):
            if content is not None and content.kind is not bytes:
                yield content.kind

    def describe(self, schemas: Schemas) -> Json:
        """Return the Operation Object."""
        operation = self._operation
        described: Json = {
            "operationId": operation.operation_id,
            "summary": operation.summary,
            "description": operation.description,
            "tags": list(operation.tags),
            "parameters": list(self._parameters()),
            "responses": {str(status): _response(answer, schemas) for status, answer in sorted(self._answers.items())},
        }
        if operation.body is not None:
            described["requestBody"] = {"required": operation.body_required, "content": schemas.content(operation.body)}
        if operation.credentials is None:
            needed = REQUIREMENTS[operation.operation_id]
            described["description"] += f"\n\nNeeds {needed}."
            described["security"] = [{BEARER.name: []}, *({OAUTH2: [*names]} for names in needed.narrowest)]
        else:
            schemes: list[Json] = [{scheme.name: []} for scheme in operation.credentials]
            described["security"] = schemes if operation.credentials_required else [*schemes, {}]
            if self._more.own_sign_in is not None:
                described["description"] += f"\n\nNeeds {self._more.own_sign_in}."
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
            needed = PARAMETERS.get(self._operation.operation_id, {}).get(each.name)
            description = f"{each.description} Needs {needed}." if needed else each.description
            yield _query(each.name, _filter_schema(each), description)
        for flag in self._more.flags:
            schema = {"type": "boolean", "default": False}
            yield _optional(flag.name, "query", flag.description, schema, True)
        for sent in self._operation.request_headers:
            schema = {"type": "string", **({"pattern": sent.pattern} if sent.pattern else {})}
            yield _optional(sent.name, "header", sent.description, schema, sent.example)
        yield from self._conditions()

    def _conditions(self) -> Iterator[Json]:
        example = HEADERS["ETag"]["example"]
        if self._is_conditional:
            description = "Entity tags that the client already has, or *."
            yield _optional("If-None-Match", "header", description, {"type": "string"}, example)
        if self._is_versioned:
            yield _optional("If-Match", "header", _IF_MATCH, {"type": "string"}, example)
            if self._more.may_create:
                schema = {"type": "string", "enum": ["*"]}
                yield _optional("If-None-Match", "header", _IF_NONE_MATCH, schema, "*")

    def _usual_answers(self) -> dict[int, Answer]:
        """Return the responses that follow from what the operation takes and returns."""
        status = self._operation.status
        content, headers = self._operation.answer, tuple(self._success_headers())
        answers = {status: Answer(HTTPStatus(status).phrase, content, headers)}
        if self._more.may_create:
            answers[201] = Answer(HTTPStatus(201).phrase, content, headers)
        if self._is_conditional:
            not_modified = "Not modified: the client already has this response."
            answers[304] = Answer(not_modified, headers=self._cached_headers())
        return answers | {refusal: _refusal(refusal) for refusal in self._refusals()}

    def _cached_headers(self) -> tuple[str, ...]:
        return ("ETag", "Cache-Control") if self.path.startswith("/api/") else ("ETag",)

    @property
    def _is_conditional(self) -> bool:
        answer = self._operation.answer
        return self.method == "GET" and answer is not None and answer.media_type == JSON

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
        if self._operation.credentials != ():
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
    return _optional(name, "query", description, schema, _query_example(name, schema))


def _query_example(name: str, schema: Json) -> Any:
    if schema["type"] == "array":
        return [_query_example(name, schema["items"])]
    # ``search.username`` and ``excludeUserId`` have the examples of ``username`` and ``userId``.
    member = re.sub(r"^exclude(\w)", lambda match: match[1].lower(), name).rpartition(".")[2]
    return schema["enum"][0] if "enum" in schema else EXAMPLES[member]


def _optional(name: str, where: str, description: str, schema: Json, example: Any) -> Json:
    """Return a parameter whose example is in its schema: "Try it out" would send a separate example."""
    return {"name": name, "in": where, "description": description, "schema": {**schema, "examples": [example]}}


def _refusal(status: int) -> Answer:
    code, message, description = REFUSALS[status]
    headers = _REFUSAL_HEADERS.get(status, ())
    example: Json = {"code": code, "message": message}
    if status == 400:
        example["data"] = {"issues": [{"path": "name", "message": "Expected `str`, got `int`"}]}
    return Answer(description, Content(ErrorBody, example=example), headers)


def _response(answer: Answer, schemas: Schemas) -> Json:
    """Return the Response Object."""
    headers: Json = {name: {"$ref": f"#/components/headers/{name}"} for name in ("X-Request-Id", *answer.headers)}
    for name, value in answer.constants.items():
        headers[name] = {"required": True, "schema": {"const": value}, "example": value}
    described: Json = {"description": answer.description, "headers": headers}
    if answer.content is not None:
        described["content"] = schemas.content(answer.content)
    return described

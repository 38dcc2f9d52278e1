"""The public events as other teams receive them, checked against docs/events/asyncapi.yaml and CloudEvents."""

import asyncio
import re
from pathlib import Path
from typing import Any, Final, NamedTuple

import jsonschema_rs
import msgspec
import nats
import yaml
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

DOCUMENT: Final[dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parents[2] / "docs" / "events" / "asyncapi.yaml").read_text()
)
LARGEST: Final = 512 * 1024
_WITHIN_S: Final = 30


class Captured(NamedTuple):
    """A message as read from the stream."""

    subject: str
    headers: dict[str, str]
    data: bytes


async def captured(subscriber_nats_url: str, tenant_id: str, *, until: int) -> list[Captured]:
    """Return every message of a tenant up to the watermark of a revision, read with a plain NATS client."""
    client = await nats.connect(subscriber_nats_url)
    try:
        reading = await client.jetstream().pull_subscribe(f"identity.{tenant_id}.>", stream="IDENTITY_EVENTS")
        found: list[Captured] = []
        async with asyncio.timeout(_WITHIN_S):
            while not found or _watermark(found[-1]) < until:
                (message,) = await reading.fetch(1, timeout=_WITHIN_S)
                found.append(Captured(message.subject, dict(message.headers or {}), message.data))
        return found
    finally:
        await client.close()


def _watermark(message: Captured) -> int:
    event = msgspec.json.decode(message.data)
    return int(event["revision"]) if event["type"] == "revision.published" else -1


def channel_of(subject: str) -> str | None:
    """Return the name of the channel of a subject; None if it is not described."""
    for name, channel in DOCUMENT["channels"].items():
        address = re.escape(channel["address"]).replace(r"\{", "{").replace(r"\}", "}")
        if re.fullmatch(re.sub(r"\{\w+\}", r"[0-9A-Za-z_-]+", address), subject):
            return str(name)
    return None


def problems(message: Captured) -> list[str]:
    """Return the deviations from the description: subject, headers, envelope, data, size, CloudEvent."""
    channel = channel_of(message.subject)
    if channel is None:
        return [f"{message.subject}: no channel"]
    described = DOCUMENT["components"]["messages"][channel]
    event = msgspec.json.decode(message.data)
    found = [
        f"{message.subject}: {problem.message}"
        for schema, instance in (
            (described["payload"], event),
            (_closed("CloudEvent"), event),
            (_closed(_data_schema(described)), event["data"]),
        )
        for problem in jsonschema_rs.validator_for(_whole(schema)).iter_errors(instance)
    ]
    if not message.headers.get("Nats-Msg-Id", "").startswith(event["id"]):
        found.append(f"{message.subject}: Nats-Msg-Id {message.headers.get('Nats-Msg-Id')}")
    if len(message.data) > LARGEST:
        found.append(f"{message.subject}: {len(message.data)} bytes")
    read = JSONFormat().read(CloudEvent, message.data)  # raises if it is not a CloudEvent
    if (read.get_id(), read.get_type(), read.get_data()) != (event["id"], event["type"], event["data"]):
        found.append(f"{message.subject}: the CloudEvent differs")
    return found


def _data_schema(message: dict[str, Any]) -> str:
    reference: str = message["payload"]["allOf"][1]["properties"]["data"]["$ref"]
    return reference.rpartition("/")[2]


def _closed(schema: str) -> dict[str, Any]:
    """Return a schema without additional properties: everything that we publish is described."""
    return {"$ref": f"#/components/schemas/{schema}", "unevaluatedProperties": False}


def _whole(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with the schemas that it may refer to."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "components": DOCUMENT["components"]}

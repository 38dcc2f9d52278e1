"""Metrics that answer an operator's questions, read as a scrape reads them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from identity_common.version import VERSION
from tests.support.at_a_browser import Person, application
from tests.support.captured_logs import lines_of
from tests.support.running_stack import RunningStack
from tests.support.waiting import eventually
from tests.support.world import World

Series = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


LOGS = (
    ("management", "management"),
    ("management", "subject-tokens"),
    ("template", "template"),
    ("token", "token"),
    ("token", "exchanges"),
)


def scraped(stack: RunningStack) -> Series:
    """Return the value of every series of the three services."""
    answer = stack.http.get("/metrics")
    assert answer.status_code == 200
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def of(series: Series, name: str, **labels: str) -> float:
    return series[f"stead_{name}", frozenset(labels.items())]


def increase(before: Series, after: Series, name: str, **labels: str) -> float:
    """Return by how much a counter has grown; its series may begin with its first event."""
    return of(after, name, **labels) - before.get((f"stead_{name}", frozenset(labels.items())), 0.0)


@pytest.mark.heavy
def test_the_state_of_every_service_can_be_read(world: World) -> None:
    series = scraped(world.stack)
    for service in ("management", "token", "template"):
        for store in ("postgresql", "redis", "nats"):
            assert of(series, "store_reachable", service=service, store=store) == 1
        assert of(series, "build_info", service=service, version=VERSION) == 1
        assert of(series, "database_pool_connections", service=service) >= 1
        assert ("stead_database_pool_waits_total", frozenset({("service", service)})) in series
    for service in ("management", "template"):
        for name in ("outbox_events", "outbox_oldest_seconds"):
            assert of(series, name, service=service) >= 0
    for service, log in LOGS:
        assert of(series, "audit_backlog_entries", service=service, log=log) >= 0
        assert of(series, "audit_backlog_oldest_seconds", service=service, log=log) >= 0
    for service, log in (("management", "subject-tokens"), ("token", "exchanges")):
        assert of(series, "audit_backlog_limit_entries", service=service, log=log) == 100_000
    assert of(series, "audit_ingestion_lag_seconds", service="management") >= 0
    assert of(series, "fan_out_backlog", service="template") >= 0
    assert of(series, "directory_lag_revisions", service="template", store="postgresql", source="management") >= 0
    for source in ("management", "template"):
        for store in ("memory", "redis"):
            assert of(series, "directory_lag_revisions", service="token", store=store, source=source) >= 0
    assert of(series, "redis_memory_used_bytes", service="token") > 0
    assert of(series, "redis_memory_used_bytes", service="token") < of(
        series, "redis_memory_limit_bytes", service="token"
    )
    assert of(series, "bus_storage_used_bytes", service="token") > 0
    assert of(series, "bus_storage_used_bytes", service="token") < of(
        series, "bus_storage_limit_bytes", service="token"
    )
    assert of(series, "not_valid_feed_sequence", service="token") >= 0
    assert 0 <= of(series, "not_valid_feed_silence_seconds", service="token") < 60
    assert of(series, "not_valid_feed_readers", service="token") >= 0
    for status in ("Next", "Current"):
        # Whatever other tests did to the keys of the tenant that they share.
        assert 0 < of(series, "signing_key_age_seconds", service="token", status=status) < 24 * 3600
    assert [name for name, _ in series if name.endswith("_created")] == []


@pytest.mark.heavy
def test_the_time_until_changes_are_enforced_is_measured(world: World) -> None:
    before = scraped(world.stack)
    world.user()
    world.client("MachineToMachine")

    def are_measured() -> bool:
        after, name = scraped(world.stack), "change_enforced_seconds_count"
        return all(increase(before, after, name, service="token", store=store) > 0 for store in ("memory", "redis"))

    eventually(are_measured)


@pytest.mark.heavy
def test_token_requests_are_counted_by_grant_and_outcome(world: World, logs: Path) -> None:
    before, stack = scraped(world.stack), world.stack
    form = {"grant_type": "client_credentials", "resource": world.resource, "scope": "read:things"}
    assert stack.token_request(form, auth=world.machine.basic).status_code == 200
    for scope, auth in (("nothing else", world.machine), ("purge:things", world.machine), ("", world.machine)):
        assert stack.token_request(form | {"scope": scope}, auth=auth.basic).json()["scope"] == ""
    assert stack.token_request(form, auth=(world.machine.id, "wrong")).status_code == 401
    assert stack.token_request(form | {"resource": "https://x"}, auth=world.machine.basic).status_code == 400
    for grant_type in ("x", "y"):
        assert stack.token_request({"grant_type": grant_type}, auth=world.machine.basic).status_code == 400
    after = scraped(stack)

    def requests(grant_type: str, outcome: str) -> float:
        labels = {"service": "token", "grant_type": grant_type, "outcome": outcome}
        return increase(before, after, "token_requests_total", **labels)

    assert requests("client_credentials", "issued") == 4
    assert requests("client_credentials", "invalid_client") == 1
    assert requests("client_credentials", "invalid_target") == 1
    assert requests("other", "unsupported_grant_type") == 2
    labels = {"service": "token", "grant_type": "client_credentials"}
    assert increase(before, after, "unknown_scopes_total", **labels) == 1
    lines = [line for line in lines_of(logs) if line["event"] == "scopes.unknown"]
    assert [(line["client_id"], line["count"]) for line in lines[-1:]] == [(world.machine.id, 2)]


@pytest.mark.heavy
def test_sign_ins_are_counted_by_outcome_and_a_refused_one_logs_account_and_address(world: World, logs: Path) -> None:
    spa, person = application(world, "SPA"), Person(world)
    before = scraped(world.stack)
    page = person.follow(person.authorize(spa))
    assert person.send(page, identifier=person.username, password="wrong").status_code == 200
    person.sign_in(person.follow(person.authorize(spa)))
    after = scraped(world.stack)
    for outcome in ("wrong-password", "succeeded"):
        assert increase(before, after, "sign_ins_total", service="token", outcome=outcome) == 1
    lines = [line for line in lines_of(logs) if line.get("address")]
    refused: list[Any] = [(line["event"], line.get("user_id"), line["address"]) for line in lines[-2:]]
    assert len({line["request_id"] for line in lines[-2:]}) == 1  # of both services, over the bus
    assert refused == [
        ("password-check.refused", person.user_id, "127.0.0.1"),
        ("sign-in.refused", None, "127.0.0.1"),
    ]

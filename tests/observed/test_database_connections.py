"""The connections that a replica keeps to PostgreSQL besides its pools, as docs/operations/sizing.md has them."""

import asyncio

import asyncpg
import pytest

from tests.support.database_connections import documented_connections
from tests.support.processes import Deployment
from tests.support.waiting import eventually

pytestmark = [pytest.mark.observed, pytest.mark.heavy]

BY_DATABASE = """
    SELECT datname, count(*) FROM pg_stat_activity
    WHERE backend_type = 'client backend' AND application_name = '' AND datname <> current_database() GROUP BY datname
"""
"""Connections of pools carry the name of the service."""


async def held(address: str) -> dict[str, int]:
    administrator = await asyncpg.connect(address)
    try:
        return {row["datname"]: row["count"] for row in await administrator.fetch(BY_DATABASE)}
    finally:
        await administrator.close()


def test_workers_and_listeners_hold_as_many_connections_as_the_page_on_sizing_says(deployment: Deployment) -> None:
    background = {service.removesuffix("-service"): row.background for service, row in documented_connections().items()}
    eventually(lambda: asyncio.run(held(deployment.addresses.admin_postgres_url)) == background)

"""The custom-claims function at the Management API: its paths, a script, and what is stored of it."""

from typing import Any

from tests.support.management_api import Management

USERS = "/api/configs/jwt-customizer/access-token"
MACHINES = "/api/configs/jwt-customizer/client-credentials"
TEST = "/api/configs/jwt-customizer/test"
SCRIPT = "const getCustomJwtClaims = async ({ context }) => ({ plan: context.user.customData.plan });"
VARIABLES = {"API_KEY": "correct-horse-battery", "REGION": "eu"}
GENERAL = (422, "jwt_customizer.general")


async def saved(own: Management, path: str = USERS, **members: Any) -> Any:
    """Save a version and return the answer's body."""
    answer = await own.client.put(path, json={"script": SCRIPT, **members})
    assert answer.status_code in {200, 201}, answer.text
    return answer.json()


async def counter(own: Management, kind: str) -> tuple[int, int | None, list[int]]:
    """Return the last and the active version as stored, and the numbers of all versions."""
    row = await own.database.fetchrow(
        "SELECT last_version, active_version FROM claims_functions WHERE tenant_id = $1 AND kind = $2",
        own.tenant_id,
        kind,
    )
    numbers = await own.database.fetch(
        "SELECT version FROM claims_function_versions WHERE tenant_id = $1 AND kind = $2 ORDER BY version",
        own.tenant_id,
        kind,
    )
    return row["last_version"], row["active_version"], [number["version"] for number in numbers]

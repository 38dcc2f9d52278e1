"""Operations on the custom-claims function."""

from __future__ import annotations

from stead import (
    ClaimsFunctionFailure,
    ClaimsFunctionVersion,
    DryRunReport,
    TestedClaims,
)
from stead.models import (
    DryRunOfInput,
    Recording,
    ScriptProblem,
)
from tests.unit.sdk.operations.entities import (
    FUNCTION,
    FUNCTION_JSON,
    FUNCTION_PATH,
    VERSION_JSON,
    VERSION_MEMBERS,
)
from tests.unit.sdk.operations.rows import Row

ROWS: list[Row] = [
    (
        lambda c: c.custom_claims.save("access-token", "s"),
        "PUT",
        FUNCTION_PATH,
        {"script": "s"},
        FUNCTION_JSON,
        FUNCTION,
    ),
    (
        lambda c: c.custom_claims.save(
            "access-token",
            "s",
            environment_variables={"KEY": "v"},
            context_sample={"a": 1},
            token_sample={},
            block_issuance_on_error=True,
        ),
        "PUT",
        FUNCTION_PATH,
        {
            "script": "s",
            "environmentVariables": {"KEY": "v"},
            "contextSample": {"a": 1},
            "tokenSample": {},
            "blockIssuanceOnError": True,
        },
        FUNCTION_JSON,
        FUNCTION,
    ),
    (lambda c: c.custom_claims.get("access-token"), "GET", FUNCTION_PATH, None, FUNCTION_JSON, FUNCTION),
    (
        lambda c: c.custom_claims.update("access-token", environment_variables=None, block_issuance_on_error=True),
        "PATCH",
        FUNCTION_PATH,
        {"environmentVariables": None, "blockIssuanceOnError": True},
        FUNCTION_JSON,
        FUNCTION,
    ),
    (lambda c: c.custom_claims.delete("access-token"), "DELETE", FUNCTION_PATH, None, None, None),
    (
        lambda c: c.custom_claims.versions("access-token"),
        "GET",
        f"{FUNCTION_PATH}/versions",
        None,
        [VERSION_JSON],
        [ClaimsFunctionVersion(**VERSION_MEMBERS)],
    ),
    (
        lambda c: c.custom_claims.get_version("access-token", 3),
        "GET",
        f"{FUNCTION_PATH}/versions/3",
        None,
        FUNCTION_JSON,
        FUNCTION,
    ),
    (
        lambda c: c.custom_claims.activate("access-token", 3),
        "POST",
        f"{FUNCTION_PATH}/versions/3/activate",
        None,
        FUNCTION_JSON,
        FUNCTION,
    ),
    (
        lambda c: c.custom_claims.test("access-token", version=3, token={}, context={}),
        "POST",
        "/api/configs/jwt-customizer/test",
        {"tokenType": "access-token", "version": 3, "token": {}, "context": {}},
        {},
        TestedClaims(claims={}),
    ),
    (
        lambda c: c.custom_claims.dry_run("access-token", version=3),
        "POST",
        f"{FUNCTION_PATH}/dry-run",
        {"version": 3},
        {"runs": []},
        DryRunReport(runs=[]),
    ),
    (
        lambda c: c.custom_claims.test("access-token", "s", token={"aud": "a"}, context={}),
        "POST",
        "/api/configs/jwt-customizer/test",
        {"tokenType": "access-token", "script": "s", "token": {"aud": "a"}, "context": {}},
        {"plan": "gold"},
        TestedClaims(claims={"plan": "gold"}),
    ),
    (
        lambda c: c.custom_claims.dry_run("access-token", "s", environment_variables={}),
        "POST",
        f"{FUNCTION_PATH}/dry-run",
        {"script": "s", "environmentVariables": {}},
        {
            "runs": [
                {
                    "recordedAt": 1,
                    "added": {"a": 1},
                    "changed": {},
                    "removed": ["b"],
                    "dropped": ["sub"],
                    "activeDenied": "no",
                    "activeProblem": {"reason": "memory", "message": "n", "line": 2, "column": 3},
                    "denied": None,
                    "problem": {"reason": "time", "message": "m", "line": None, "column": None},
                }
            ],
            "omitted": 2,
        },
        DryRunReport(
            runs=[
                DryRunOfInput(
                    recorded_at=1,
                    added={"a": 1},
                    removed=["b"],
                    dropped=["sub"],
                    problem=ScriptProblem(reason="time", message="m"),
                    active_denied="no",
                    active_problem=ScriptProblem(reason="memory", message="n", line=2, column=3),
                )
            ],
            omitted=2,
        ),
    ),
    (
        lambda c: c.custom_claims.record("access-token", 60),
        "POST",
        f"{FUNCTION_PATH}/recording",
        {"minutes": 60},
        {"expiresAt": 5, "inputCount": 0},
        Recording(expires_at=5),
    ),
    (
        lambda c: c.custom_claims.recording("access-token"),
        "GET",
        f"{FUNCTION_PATH}/recording",
        None,
        {"expiresAt": 5, "inputCount": 7},
        Recording(expires_at=5, input_count=7),
    ),
    (
        lambda c: c.custom_claims.failures("access-token"),
        "GET",
        f"{FUNCTION_PATH}/failures",
        None,
        ({"time": 1, "version": 3, "reason": "exception", "line": 2, "column": None},),  # answered whole
        [ClaimsFunctionFailure(time=1, version=3, reason="exception", line=2)],
    ),
]

"""A pool of workers for the custom-claims function: scripts, and calls of one worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

import token_service.claims_function.sandbox
from tests.support.waiting import WAIT_S
from token_service.claims_function.sandbox import ClaimsWorkers, Outcome

SANDBOX: Final = Path(token_service.claims_function.sandbox.__file__).parent
ECHO: Final = "const getCustomJwtClaims = ({ context }) => context;"
LOOP: Final = "const getCustomJwtClaims = () => { for (;;); };"


async def run(workers: ClaimsWorkers, script: str, context: Any = None) -> Outcome:
    async with await workers.reserve(within_s=WAIT_S) as slot:
        return await slot.run(script, data(context))


def data(context: Any) -> bytes:
    return msgspec.json.encode({"token": {}, "context": context, "environmentVariables": {}})

"""The custom-claims function: its workers for tokens, and others for the Management API."""

import os

from identity_common.lifetime import Lifetime
from identity_common.sealing import SealingKeys
from identity_common.wire.claims_function import ClaimsFunctionRequests, SealedVariables
from token_service.claims_function import CustomClaims
from token_service.claims_function.answers import ClaimsFunctionAnswers
from token_service.claims_function.failures import FailedCalls
from token_service.claims_function.on_demand import WorkersOnDemand
from token_service.claims_function.recordings import Recordings
from token_service.claims_function.sandbox import ClaimsWorkers, Limits
from token_service.directory import InMemoryDirectory
from token_service.parts.connections import Connections
from token_service.settings import Settings


class ClaimsFunction:
    """The function in use, and the responder to management-service's requests about it."""

    def __init__(self, settings: Settings, connections: Connections, in_memory: InMemoryDirectory) -> None:
        commands, tenant_id = connections.commands, settings.tenant_id
        keys = SealingKeys(settings.environment_variable_keys)
        limits = Limits(
            time_ms=settings.claims_time_ms,
            memory_mib=settings.claims_memory_mib,
            result_bytes=settings.claims_result_bytes,
        )
        count, for_tests = settings.claims_workers or len(os.sched_getaffinity(0)), settings.claims_test_workers
        is_needed = in_memory.has_claims_function.is_set
        self._workers = WorkersOnDemand(ClaimsWorkers(limits, count), count=count, is_needed=is_needed)
        self._test_workers = WorkersOnDemand(ClaimsWorkers(limits, for_tests), count=for_tests)
        self._recordings = Recordings(commands, keys, tenant_id=tenant_id)
        self.failures = FailedCalls(commands, tenant_id=tenant_id)
        self.custom_claims = CustomClaims(
            in_memory,
            self._workers,
            SealedVariables(keys, tenant_id=tenant_id),
            self._recordings,
            self.failures,
        )
        self._responder = ClaimsFunctionAnswers(
            ClaimsFunctionRequests(keys, tenant_id=tenant_id),
            self._test_workers,
            self._recordings,
            self.failures,
            worker_count=for_tests,
        ).responder(connections.bus)

    def start(self, lifetime: Lifetime) -> None:
        """Start what runs in the background; workers start when they are needed."""
        lifetime.at_end(self._workers.stop)
        lifetime.at_end(self._test_workers.stop)
        lifetime.start(self.custom_claims, self._recordings.loop, self._responder)

"""Argon2id in a few threads of its own, so that hashing neither blocks the event loop nor exhausts the memory."""

import asyncio
import unicodedata
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from identity_common.http.api_errors import store_unavailable
from identity_common.identifiers import new_secret

P = ParamSpec("P")
R = TypeVar("R")

MEMORY_KIB: Final = 19 * 1024
ITERATIONS: Final = 2


class Passwords:
    """Hashes and verifies passwords in composed form (NFC), as keyboards differ in how they encode a character.

    Args:
        threads: Passwords hashed concurrently.
        max_waiting: Requests that may queue for a thread; further ones get a 503.
    """

    def __init__(self, *, threads: int, max_waiting: int) -> None:
        self._hasher = PasswordHasher(time_cost=ITERATIONS, memory_cost=MEMORY_KIB, parallelism=1)
        self._dummy_hash = self._hasher.hash(new_secret())
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="argon2")
        self._max_present = threads + max_waiting
        self._present = 0

    async def hash(self, password: str) -> str:
        """Return the hash of a password, with its parameters and a random salt.

        Raises:
            ApiError: 503 when the queue is full.
        """
        return await self._in_thread(self._hasher.hash, _composed(password))

    async def verify(self, password_hash: str | None, password: str) -> bool:
        """Return whether the password matches; False without a hash, after the same time.

        Raises:
            ApiError: 503 when the queue is full.
        """
        typed = _composed(password)
        return await self._in_thread(self._verify, password_hash or self._dummy_hash, typed) and bool(password_hash)

    def is_outdated(self, password_hash: str) -> bool:
        """Return whether a hash has other parameters than the current ones."""
        return self._hasher.check_needs_rehash(password_hash)

    def close(self) -> None:
        """Stop the threads."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _verify(self, password_hash: str, password: str) -> bool:
        try:
            return self._hasher.verify(password_hash, password)
        except (VerificationError, InvalidHashError):
            return False

    async def _in_thread(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        if self._present >= self._max_present:
            raise store_unavailable()
        self._present += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, lambda: work(*args, **kwargs))
        finally:
            self._present -= 1


def _composed(password: str) -> str:
    """Return a password as it is hashed; case and spaces are significant.

    Source:
        RFC 8265 section 4.2.2 (OpaqueString: Normalization Form C).
    """
    return unicodedata.normalize("NFC", password)

"""Argon2id, and digests made elsewhere, in dedicated threads: hashing blocks no event loop and takes little memory."""

import asyncio
import base64
import math
import os
import time
import unicodedata
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, ParamSpec, TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from identity_common.failures import TemporarilyUnavailable
from management_service.passwords import digests

P = ParamSpec("P")
R = TypeVar("R")

MEMORY_KIB: Final = 19 * 1024
ITERATIONS: Final = 2
MAX_WAIT_S: Final = 5.0
"""How long a caller of the Management API waits for a password to be hashed."""

_WEIGHT: Final = 0.2  # of the last hash in the moving average of their durations
_ASSUMED_S: Final = 0.1  # the duration of a hash before any was measured


class Busy(TemporarilyUnavailable):
    """The password cannot be hashed before the caller's deadline; the queue may be empty after the retry time."""

    def __init__(self, retry_after_s: int) -> None:
        super().__init__("Too many passwords are being checked. Try again later.", retry_after_s=retry_after_s)


class Passwords:
    """Hashes passwords in composed form (NFC), as keyboards differ in how they encode a character.

    The queue admits only what can be hashed before the callers' deadlines, judging by recent hashing times. Any other
    request is refused at once, and one whose deadline has passed is dropped: hashing for callers that have given up
    would delay the next ones until they give up too.

    Args:
        threads: Passwords hashed concurrently.
    """

    def __init__(self, *, threads: int) -> None:
        self._hasher = PasswordHasher(time_cost=ITERATIONS, memory_cost=MEMORY_KIB, parallelism=1)
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="argon2")
        self._threads = threads
        self._admitted = 0
        self._dummy_hash = _unmatched_hash()
        self._typical_s = _ASSUMED_S

    @contextmanager
    def admitted(self, deadline: float) -> Iterator[None]:
        """Occupy a place in the queue, for one password that is hashed before a deadline.

        Args:
            deadline: In seconds of the monotonic clock.

        Raises:
            Busy: The queue is too long.
        """
        ahead_s = self._typical_s * self._admitted / self._threads
        has_free_thread = self._admitted < self._threads
        if time.monotonic() + (0 if has_free_thread else ahead_s + self._typical_s) >= deadline:
            raise self._busy()
        self._admitted += 1
        try:
            yield
        finally:
            self._admitted -= 1

    async def hash(self, password: str) -> str:
        """Return the hash of a password, with its parameters and a random salt.

        Raises:
            Busy: The queue is too long.
        """
        deadline = time.monotonic() + MAX_WAIT_S
        with self.admitted(deadline):
            return await self._in_thread(deadline, self._hasher.hash, _composed(password))

    async def verify(self, password_hash: str | None, password: str, *, deadline: float) -> bool:
        """Return whether the password matches; False without a hash, in the same time. The caller is ``admitted``.

        Raises:
            Busy: The deadline has passed.
        """
        matches = await self._in_thread(deadline, self._verify, password_hash or self._dummy_hash, password)
        return matches and bool(password_hash)

    def is_outdated(self, password_hash: str) -> bool:
        """Return whether a hash has another function or other parameters than the current ones."""
        return not digests.is_argon2(password_hash) or self._hasher.check_needs_rehash(password_hash)

    def close(self) -> None:
        """Stop the threads."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _verify(self, password_hash: str, password: str) -> bool:
        # Other systems hash what was typed, as it was encoded; to try that for every hash tells nothing about any.
        return any(self._matches(password_hash, each) for each in dict.fromkeys((_composed(password), password)))

    def _matches(self, password_hash: str, password: str) -> bool:
        if not digests.is_argon2(password_hash):
            return digests.matches(password_hash, password)
        try:
            return self._hasher.verify(password_hash, password)
        except (VerificationError, InvalidHashError):
            return False

    async def _in_thread(self, deadline: float, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        def timed() -> tuple[R, float]:
            began = time.monotonic()
            if began >= deadline:
                raise self._busy()
            return work(*args, **kwargs), time.monotonic() - began

        result, took_s = await asyncio.get_running_loop().run_in_executor(self._executor, timed)
        self._typical_s += (took_s - self._typical_s) * _WEIGHT
        return result

    def _busy(self) -> Busy:
        return Busy(max(1, math.ceil(self._typical_s * self._admitted / self._threads)))


def _unmatched_hash() -> str:
    """Return a hash that no known password has; verifying one takes as long as with any other.

    Written rather than computed: at the start of the service, that would be its longest step.
    """
    salt, digest = (base64.b64encode(os.urandom(size)).rstrip(b"=").decode() for size in (16, 32))
    return f"$argon2id$v=19$m={MEMORY_KIB},t={ITERATIONS},p=1${salt}${digest}"


def _composed(password: str) -> str:
    """Return a password as it is hashed; case and spaces are significant.

    Source:
        RFC 8265 section 4.2.2 (OpaqueString: Normalization Form C).
    """
    return unicodedata.normalize("NFC", password)

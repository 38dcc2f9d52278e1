"""Verifies passwords within the limits of attempts."""

from identity_common.failures import TooManyAttempts
from management_service.passwords.attempts import SignInAttempts
from management_service.passwords.hashing import Busy, Passwords


class CountedPasswords:
    """Counts an attempt before its password is verified, so that concurrent attempts all count.

    Args:
        passwords: Verifies them.
        attempts: Counts them.
    """

    def __init__(self, passwords: Passwords, attempts: SignInAttempts) -> None:
        self._passwords = passwords
        self._attempts = attempts

    async def verify(
        self, account: str, source: str, password_hash: str | None, password: str, *, deadline: float
    ) -> bool:
        """Return whether the password matches, which resets the count; see ``Passwords.verify``.

        Args:
            account: Key of the account, from ``SignInAttempts.account``.
            source: Which of the account's counts the attempt belongs to.
            password_hash: None without a password: the attempt counts, and fails in the same time.
            password: As typed.
            deadline: In seconds of the monotonic clock.

        Raises:
            TooManyAttempts: The count is at its limit.
            Busy: The deadline has passed; the attempt is not counted.
            StoreUnavailable: Redis does not answer.
        """
        wait_s = await self._attempts.count(account, source)
        if wait_s:
            raise _too_many(wait_s)
        try:
            is_correct = await self._passwords.verify(password_hash, password, deadline=deadline)
        except Busy:
            await self._attempts.uncount(account, source)
            raise
        if is_correct:
            await self._attempts.reset(account, source)
        return is_correct


def _too_many(retry_after_s: int) -> TooManyAttempts:
    """Return the failure of an attempt beyond the limit of its account."""
    message = "Too many attempts in a short time. Try again later."
    return TooManyAttempts("session.verification_blocked_too_many_attempts", message, retry_after_s=retry_after_s)

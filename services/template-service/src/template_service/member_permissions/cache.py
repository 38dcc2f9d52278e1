"""Glances: what decides about a member's permissions, asked for many requests at once, and not again while it holds.

While our database stands where it stood, what was found there still holds: one row tells, for all the polls of a turn
of the event loop. What was found at another mark than the latest that was read is looked up at once: a busy tenant pays
for that row in vain once after a change, and not once a poll.
"""

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from identity_common.http.api_errors import ApiError
from identity_common.stores.coalescing import Coalescer
from identity_common.stores.lookups import Lookups
from template_service.member_permissions import store
from template_service.member_permissions.store import Glance, Mark, Question

MOST_REMEMBERED: Final = 10_000
# After a failover to an older copy the same mark may come to mean something else: a look-up that fails empties the
# memory, and who asked nothing meanwhile believes it no longer than this.
BELIEVED_S: Final = 300.0
# A thousand requests that are woken together take neither all connections to the database nor one of them for long.
_TOGETHER: Final = 250


class Glances:
    """Asks the database, or remembers."""

    def __init__(self, lookups: Lookups, *, tenant_id: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._lookups = lookups
        self._tenant_id = tenant_id
        self._clock = clock
        self._coalescer = Coalescer(self._answer_all, max_concurrent=1, max_batch=_TOGETHER)
        self._remembered: OrderedDict[Question, tuple[Glance, float]] = OrderedDict()  # with the time of asking
        self._latest: Mark | None = None

    def ask(self, question: Question) -> Awaitable[Glance]:
        """Return what holds now; it is on its way from now on.

        Raises:
            ApiError: 503 when the database does not answer.
        """
        return self._coalescer.submit(question)

    async def _answer_all(self, asked: Sequence[Question]) -> Sequence[Glance]:
        try:
            holding = await self._that_still_hold(asked)
            found = await self._look_up([question for question in dict.fromkeys(asked) if question not in holding])
        except ApiError:
            self._remembered.clear()
            raise
        answers = {**holding, **found}
        return [answers[question] for question in asked]

    async def _that_still_hold(self, asked: Sequence[Question]) -> Mapping[Question, Glance]:
        """Return what is remembered and still holds."""
        latest, not_before = self._latest, self._clock() - BELIEVED_S
        remembered = {}
        for question in asked:
            glance, asked_at = self._remembered.get(question, (None, 0.0))
            if glance is not None and glance.mark == latest and asked_at >= not_before:
                remembered[question] = glance
                self._remembered.move_to_end(question)
        if not remembered:
            return {}
        self._latest = await store.mark(self._lookups, self._tenant_id)
        return remembered if self._latest == latest else {}

    async def _look_up(self, questions: Sequence[Question]) -> Mapping[Question, Glance]:
        """Return what the database says, and remember it."""
        if not questions:
            return {}
        asked_at = self._clock()
        found = dict(zip(questions, await store.glance(self._lookups, self._tenant_id, questions), strict=True))
        for question, glance in found.items():
            self._latest = glance.mark
            self._remembered[question] = glance, asked_at
            self._remembered.move_to_end(question)
        while len(self._remembered) > MOST_REMEMBERED:
            self._remembered.popitem(last=False)
        return found

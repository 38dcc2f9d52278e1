"""Glances: what decides about a member's permissions, asked for many requests at once, and not again while it holds.

While our database stands where it stood, what was found there still holds: one row tells, for all the polls of a turn
of the event loop. Where it stands by now is known from the latest answer; what was found before that is looked up at
once, so that a busy tenant pays for no row in vain.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final

from identity_common.api_errors import ApiError
from identity_common.coalescing import Coalescer
from identity_common.lookups import AT_ONCE, Lookups
from template_service.effective_permissions import store
from template_service.effective_permissions.store import Glance, Mark, Question

MOST_REMEMBERED: Final = 10_000
# A thousand requests that are woken together take neither all connections to the database nor one of them for long.
_TOGETHER: Final = 250


class Glances:
    """Asks the database, or remembers."""

    def __init__(self, lookups: Lookups, *, tenant_id: str) -> None:
        self._lookups = lookups
        self._tenant_id = tenant_id
        self._together = Coalescer(self._answer_all, at_once=AT_ONCE, together=_TOGETHER)
        self._remembered: OrderedDict[Question, Glance] = OrderedDict()
        self._latest: Mark | None = None

    async def ask(self, question: Question) -> Glance:
        """Return what holds now.

        Raises:
            ApiError: 503 when the database does not answer.
        """
        return await self._together.ask(question)

    async def _answer_all(self, asked: Sequence[Question]) -> Sequence[Glance]:
        different = dict.fromkeys(asked)
        try:
            answers = dict(await self._that_still_hold(different))
            others = [question for question in different if question not in answers]
            if others:
                answers.update(zip(others, await store.glance(self._lookups, self._tenant_id, others), strict=True))
        except ApiError:
            # Another database may answer next: an older copy, that comes to stand at the same mark in another way.
            self._remembered.clear()
            raise
        self._remember(answers)
        return [answers[question] for question in asked]

    async def _that_still_hold(self, asked: Mapping[Question, None]) -> Mapping[Question, Glance]:
        """Return what is remembered and still holds."""
        latest = self._latest
        remembered = {
            question: glance
            for question in asked
            if (glance := self._remembered.get(question)) is not None and glance.mark == latest
        }
        if not remembered:
            return {}
        self._latest = await store.mark(self._lookups, self._tenant_id)
        return remembered if self._latest == latest else {}

    def _remember(self, answers: Mapping[Question, Glance]) -> None:
        for question, glance in answers.items():
            self._latest = glance.mark
            self._remembered[question] = glance
            self._remembered.move_to_end(question)
        while len(self._remembered) > MOST_REMEMBERED:
            self._remembered.popitem(last=False)

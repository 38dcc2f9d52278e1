"""Confirmation pages: an action does what its page showed, or nothing.

The form of a confirmation carries the version of what it changes, which the API compares, and a digest of everything
that its page says, since some of it is part of no version: how many members lose something, for example. The API has no
version of a secret, a permission of an API resource, a membership or a consent; for these there is only the digest.
"""

import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec
from litestar import Response
from msgspec import UNSET, UnsetType

from console.forms import ETAG_FIELD, Form
from console.signed_in import SignedInRequest
from identity_common.pages.bidi_isolation import displayed
from stead.errors import Conflict, InvalidInput, VersionMismatch

SHOWN_FIELD: Final = "shown"
_DIGEST: Final = re.compile("[0-9a-f]{32}")


class Deletion(msgspec.Struct, frozen=True, kw_only=True):
    """A deletion, and its confirmation page.

    Attributes:
        template: Template of the page.
        area: Marked in the navigation.
        values: For the template; all of them are in the digest.
        etag: The version of what is deleted; UNSET if the API has no version of it.
        name: What must be typed to confirm, as the page shows it or as it is; None if the button suffices.
        delete: The operation of the API; takes ``if_match`` if there is a version.
        then: Path of the next page.
        notice: Which text of ``notices.html`` that page shows.
        notice_values: Values of that text.
    """

    template: str
    area: str
    values: Mapping[str, Any]
    etag: str | UnsetType | None = UNSET
    name: str | None = None
    delete: Callable[..., Awaitable[object]]
    then: str
    notice: str
    notice_values: Mapping[str, str] = {}


def digest(values: object) -> str:
    """Return a digest of everything that a page says."""
    return hashlib.sha256(msgspec.json.encode(values, order="deterministic")).hexdigest()[:32]


def is_as_shown(form: Form, values: object) -> bool:
    """Return whether the page of a form said what it would say now.

    Raises:
        BadForm: The form does not say what its page showed.
    """
    return form.single(SHOWN_FIELD, _DIGEST) == digest(values)


async def ask(
    request: SignedInRequest, deletion: Deletion, form: Form | None = None, *, status: int = 200
) -> Response[str]:
    """Answer with a confirmation page.

    Args:
        request: The user's request.
        deletion: What would be deleted.
        form: The form that was sent before, for its errors; its values are not filled in again.
        status: HTTP status.
    """
    carried = {SHOWN_FIELD: digest(deletion.values)}
    if deletion.etag is not UNSET:
        carried[ETAG_FIELD] = deletion.etag or ""
    return await request.page(
        deletion.template, area=deletion.area, status=status, form=form or Form(), carried=carried, **deletion.values
    )


async def carry_out(request: SignedInRequest, form: Form, look: Callable[[], Awaitable[Deletion]]) -> Response[str]:
    """Delete what a confirmation page showed; show the page again if that has changed, or was not confirmed.

    Args:
        request: The user's request.
        form: The form of the page.
        look: Finds out what would be deleted now.

    Raises:
        BadForm: The form does not say what its page showed.
        NotFound: There is nothing to delete any more.
    """
    deletion = await look()
    condition = {} if deletion.etag is UNSET else {"if_match": form.version()}
    form.is_overtaken = not is_as_shown(form, deletion.values) or condition.get("if_match", UNSET) != deletion.etag
    if form.is_overtaken:
        return await ask(request, deletion, form, status=412)
    if deletion.name is not None and not is_same(form.value("confirmation"), deletion.name):
        form.errors["confirmation"] = "mismatch"
        return await ask(request, deletion, form, status=422)
    try:
        await deletion.delete(**condition)
    except VersionMismatch as error:  # changed a moment ago
        form.refuse(error)
        return await ask(request, await look(), form, status=error.status)
    except (InvalidInput, Conflict) as error:
        form.refuse(error)
        return await ask(request, deletion, form, status=error.status)
    return await request.done(deletion.then, deletion.notice, **deletion.notice_values)


def is_same(typed: str, name: str) -> bool:
    """Return whether a typed name is one that a page shows."""
    return displayed(typed).strip() == displayed(name).strip()

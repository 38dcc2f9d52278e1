"""Mail."""

from __future__ import annotations

from stead._transport.api import api_path
from stead.manage.lists import MAX_PAGE_SIZE, ListRequest
from stead.models import MailFailure


def list_mail_failures(*, search: str | None = None, page_size: int = MAX_PAGE_SIZE) -> ListRequest[MailFailure]:
    """Iterate over the mail that was given up, the newest first; the last 200 of 30 days.

    Args:
        search: Only mail with this text in its address or kind.
        page_size: Items per request, 1 to 100.

    Raises:
        InvalidInput: The text is empty or longer than 128 characters.
    """
    return ListRequest(api_path("mail", "failures"), MailFailure, page_size=page_size, params={"q": search})

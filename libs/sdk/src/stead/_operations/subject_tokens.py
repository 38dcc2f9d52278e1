"""Subject tokens."""

from __future__ import annotations

from stead._http import Operation, api_path, decode, json_request
from stead._operations._bodies import FreeForm, create_body
from stead.models import SubjectToken


def create_subject_token(user_id: str, context: FreeForm | None = None) -> Operation[SubjectToken]:
    """Get a one-time token that stands for a user; whether the caller's own user may do so is the caller's to decide.

    Args:
        user_id: Whom the access token will represent.
        context: Kept with the token, as long as it is there; at most 16 KiB of JSON. No access token shows it.

    Raises:
        NotFound: There is no such user.
        Conflict: ``user.suspended``.
    """
    body = create_body(userId=user_id, context=context)
    return decode((yield json_request("POST", api_path("subject-tokens"), body)), SubjectToken)

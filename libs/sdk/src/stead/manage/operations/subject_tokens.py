"""Subject tokens."""

from __future__ import annotations

import msgspec

from stead._transport.api import api_path, decode, json_request
from stead._transport.operations import Operation
from stead.manage.operations._bodies import FreeForm, create_body
from stead.models import SubjectToken


def create_subject_token(user_id: str, context: FreeForm | None = None) -> Operation[SubjectToken]:
    """Create a one-time token with which an application can act on behalf of a user.

    Check first whether the person who asks may impersonate this user: the service cannot know.

    ::

        subject_token = client.subject_tokens.create(user.id, {"ticket": "4711"}).token
        # in the application, within expires_in seconds
        tokens = exchange_subject_token(base_url, client_id=..., subject_token=subject_token, resource=...)

    Args:
        user_id: The user that the access token will represent.
        context: Passed to the custom-claims function at the exchange; at most 16 KiB of JSON. It is not put into the
            access token.

    Raises:
        NotFound: The user does not exist.
        Conflict: ``user.suspended``; or by the policy of impersonations ``user.excluded_from_impersonation``, or
            ``subject_token.context_required``, and ``data`` names the missing members.
    """
    body = create_body(userId=user_id, context=context)
    answer = yield json_request("POST", api_path("subject-tokens"), body)
    subject_token = decode(answer, SubjectToken)
    return msgspec.structs.replace(subject_token, impersonation_id=answer.headers.get("Impersonation-Id", ""))

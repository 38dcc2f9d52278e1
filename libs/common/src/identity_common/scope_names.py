"""Valid names of resource scopes and organization permissions: both become scope tokens."""

import re
from typing import Annotated, Final

import msgspec

from identity_common.oauth import OIDC_SCOPES

ScopeName = Annotated[str, msgspec.Meta(max_length=4096)]
"""A name in a body. Only its length is checked there (400); ``is_scope_name`` checks the rest (422)."""

_SCOPE_TOKEN: Final = re.compile(r"[\x21\x23-\x5B\x5D-\x7E]{1,128}")


def is_scope_name(name: str, *, urn_namespace: str) -> bool:
    """Return whether a scope may have this name.

    Source:
        RFC 6749 section 3.3 (scope-token). Names defined by OpenID Connect or by this service are reserved; the
        namespace of a URN has no case (RFC 8141 section 3.1).
    """
    return (
        _SCOPE_TOKEN.fullmatch(name) is not None
        and name not in OIDC_SCOPES
        and not name.lower().startswith(f"urn:{urn_namespace}:".lower())
    )

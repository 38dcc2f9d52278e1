"""What scopes of resources and organization permissions may be called: both become scope tokens."""

import re
from typing import Annotated, Final

import msgspec

from identity_common.oauth import OIDC_SCOPES

ScopeName = Annotated[str, msgspec.Meta(max_length=4096)]
"""A name in a body, which is only bounded there: what it must look like is a rule, whose refusal is a 422."""

_SCOPE_TOKEN: Final = re.compile(r"[\x21\x23-\x5B\x5D-\x7E]{1,128}")


def is_scope_name(name: str, *, urn_namespace: str) -> bool:
    """Whether a scope may be called this.

    Source:
        RFC 6749 section 3.3 (scope-token). The names of OpenID Connect and of this service keep their meaning.
    """
    return (
        _SCOPE_TOKEN.fullmatch(name) is not None
        and name not in OIDC_SCOPES
        and not name.startswith(f"urn:{urn_namespace}:")
    )

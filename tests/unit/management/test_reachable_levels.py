"""A demand that no sign-in could meet is refused where it would be set."""

import pytest
from msgspec import UNSET

from identity_common.failures import Conflict
from management_service.reachable_levels import require_reachable


def test_a_passkey_is_not_demanded_where_there_are_none() -> None:
    with pytest.raises(Conflict) as refused:
        require_reachable("phr", offers_passkeys=False)
    assert refused.value.code == "factor.no_passkeys"
    require_reachable("phr", offers_passkeys=True)
    for level in ("mfa", None, UNSET):
        require_reachable(level, offers_passkeys=False)

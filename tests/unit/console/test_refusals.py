"""What the API says to programs is told to people in the language of the page, as long as the API says it so."""

import pytest

from console.rendering import TEMPLATES
from identity_common.failures import AnyFailure, Conflict
from management_service.factors.service import _has_factor, _last_credential, _last_factor, _off, _own
from management_service.reachable_levels import require_reachable


def _no_passkeys() -> AnyFailure:
    with pytest.raises(Conflict) as refused:
        require_reachable("phr", offers_passkeys=False)
    return refused.value


@pytest.mark.parametrize("refusal", [_last_credential, _last_factor, _has_factor, _own, _off, _no_passkeys])
def test_the_refusals_of_factors_have_a_translation(refusal: object) -> None:
    assert callable(refusal)
    assert f'gettext("{refusal().message}")' in (TEMPLATES / "parts.html").read_text()

"""What the API says to programs is told to people in the language of the page, as long as the API says it so."""

import pytest

from console.rendering import TEMPLATES
from management_service.factors.service import _last_credential, _last_factor


@pytest.mark.parametrize("message", [_last_credential().message, _last_factor().message])
def test_the_refusals_of_factors_have_a_translation(message: str) -> None:
    assert f'gettext("{message}")' in (TEMPLATES / "parts.html").read_text()

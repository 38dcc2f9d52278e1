"""The stylesheet of an application's colour can be read in both colour schemes."""

import re

from hypothesis import assume, given
from hypothesis import strategies as st

from identity_common.colors import contrast
from identity_common.pages.design import accent_style
from token_service.sign_in.pages.assets import STYLE


@given(st.integers(0, 0xFFFFFF))
def test_every_accepted_colour_is_legible_in_both_schemes(number: int) -> None:
    color = f"#{number:06x}"
    assume(contrast(color, "#ffffff") >= 4.5)
    cards = re.findall(r"--card: (#[0-9a-f]{6})", STYLE.content.decode())
    schemes = re.findall(r"--accent: (#[0-9a-f]{6}); --accent-text: (#[0-9a-f]{6})", accent_style(color))
    assert schemes[0] == (color, "#ffffff")
    for (accent, text), card in zip(schemes, cards, strict=True):
        assert min(contrast(accent, text), contrast(accent, card)) >= 4.5

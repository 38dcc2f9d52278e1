"""The output of the demo."""

import json
import sys
from typing import Final

from stead import AccessToken

_WIDTH: Final = 14


def act(title: str) -> None:
    """Print the title of an act."""
    _write(f"\n{title}\n{'=' * len(title)}")


def step(text: str) -> None:
    """Print the description of a step."""
    _write(f"\n{text}")


def show(name: str, value: object) -> None:
    """Print a name and its value."""
    _write(f"   {name:>{_WIDTH}}  {value}")


def show_claims(token: AccessToken, *names: str, notes: dict[str, str] | None = None) -> None:
    """Print claims of a verified token, with notes on what they mean."""
    for name in names:
        value = token.claims.get(name, "(none)")
        text = value if isinstance(value, str | int) else json.dumps(value)
        note = (notes or {}).get(name)
        show(name, f"{text or '(nothing)'}{f'   <- {note}' if note else ''}")


def _write(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()

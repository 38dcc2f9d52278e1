"""What a row says of an operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Call = Callable[[Any], Any]
Row = tuple[Call, str, str, Any, Any, Any]
"""The call on a client, method, path, body sent, answer, and result."""

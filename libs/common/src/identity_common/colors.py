"""Colours, ``#rrggbb``: their contrast and mixtures. Pure."""

_LINEAR_BELOW = 0.04045
_FLARE = 0.05
_WEIGHTS = (0.2126, 0.7152, 0.0722)


def contrast(first: str, second: str) -> float:
    """Return the contrast ratio of two colours, from 1 to 21.

    Source:
        WCAG 2.2, "contrast ratio" and "relative luminance".
    """
    darker, lighter = sorted((_luminance(first), _luminance(second)))
    return (lighter + _FLARE) / (darker + _FLARE)


def mixed(color: str, other: str, percent: int) -> str:
    """Return a colour mixed with this percentage of another one."""
    pairs = zip(_channels(color), _channels(other), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * percent / 100):02x}" for a, b in pairs)


def _luminance(color: str) -> float:
    return sum(weight * _linear(channel / 255) for weight, channel in zip(_WEIGHTS, _channels(color), strict=True))


def _linear(channel: float) -> float:
    return channel / 12.92 if channel <= _LINEAR_BELOW else ((channel + 0.055) / 1.055) ** 2.4


def _channels(color: str) -> bytes:
    return bytes.fromhex(color.removeprefix("#"))

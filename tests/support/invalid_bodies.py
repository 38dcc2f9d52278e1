"""Request bodies that every operation with a JSON object refuses."""


def invalid_bodies(good: bytes) -> tuple[bytes, ...]:
    """Return bodies that are not JSON, not an object, or an object that is changed for the worse.

    Args:
        good: An object that the operation accepts, and that has no member ``more``.
    """
    first_member, start = good.partition(b":")[0].removeprefix(b"{"), good[:-1]
    return (
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"\xff\xfe{}",
        start + b',"\xc3":1}',
        start + b"," + first_member + b":1}",
        start + b',"more":"\\u0000"}',
        start + b',"more":"\0"}',
        start + b',"more":"\\ud800"}',
        start + b',"more":123456789012345678901234567890}',
        start + b',"more":1e999}',
        start + b',"more":' + b"[" * 10_000 + b"]" * 10_000 + b"}",
        start + b',"more":1}',
    )

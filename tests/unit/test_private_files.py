"""Files with passwords and keys: whole or not there, and readable by their owner alone."""

from pathlib import Path

import pytest

from provision.private_files import create_private


def interrupted() -> bytes:
    raise KeyboardInterrupt


def test_a_creation_that_is_interrupted_leaves_no_file(tmp_path: Path) -> None:
    """An empty one would be taken for the key from then on."""
    path = tmp_path / "key"
    with pytest.raises(KeyboardInterrupt):
        create_private(path, interrupted)
    assert list(tmp_path.iterdir()) == []


def test_the_first_creation_stands(tmp_path: Path) -> None:
    path = tmp_path / "key"
    create_private(path, lambda: b"first")
    create_private(path, interrupted)
    assert path.read_bytes() == b"first"
    assert path.stat().st_mode & 0o777 == 0o600

    def late() -> bytes:
        path.with_name("other").write_bytes(b"another process")
        return b"late"

    other = tmp_path / "other"
    create_private(other, late)
    assert other.read_bytes() == b"another process"
    assert {each.name for each in tmp_path.iterdir()} == {"key", "other"}

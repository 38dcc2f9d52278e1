"""``python -m provision seed``: what it reports of unusable files."""

from pathlib import Path

import pytest

from provision.__main__ import main


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b"[1]"])
def test_a_first_client_that_is_no_client_is_an_error_that_names_the_file(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "subscriber").mkdir()
    (tmp_path / "subscriber/nats-url").write_text("nats://subscriber:x@nats:4222")
    first_client = tmp_path / "bootstrap.json"
    first_client.write_bytes(content)
    unreachable = "http://127.0.0.1:9"
    options = {
        "base-url": unreachable,
        "management": unreachable,
        "token": unreachable,
        "nats": "127.0.0.1:9",
        "first-client": first_client,
        "rendered": tmp_path,
        "output": tmp_path / "credentials",
    }
    assert main(["seed", *(f"--{name}={value}" for name, value in options.items())]) == 1
    assert capsys.readouterr().err.startswith(f"error: {first_client}: ")

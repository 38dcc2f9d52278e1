"""``python -m stead.audit verify`` with files as people have them."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Final

import pytest

from stead.audit.__main__ import main
from stead.audit.leaves import leaf_of, personal_hash
from stead.audit.tree import root_of
from tests.unit.sdk.issuer import SigningKey, compact, jwks

KEY: Final = SigningKey("heads", "EdDSA")
SALT: Final = bytes(16)
ENTRIES: Final = [{"id": f"e{number}", "userId": "u1", "address": "192.0.2.1"} for number in range(3)]
LEAVES: Final = [leaf_of(entry, personal_hash(entry, SALT)) for entry in ENTRIES]


def encoded(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def exported(*, erased: int | None = None) -> str:
    lines = []
    for index, entry in enumerate(ENTRIES):
        salted = {**entry, "leaf": {"index": index, "salt": encoded(SALT)}}
        clear = {"id": entry["id"], "userId": entry["userId"]}
        hashed = {"index": index, "personalHash": encoded(personal_hash(entry, SALT))}
        lines.append(json.dumps({**clear, "leaf": hashed} if index == erased else salted))
    return "\n".join(lines)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    size, root = len(LEAVES), encoded(root_of(LEAVES))
    claims = {"iss": "i", "tenantId": "t", "logId": "l", "treeSize": size, "rootHash": root, "time": 1}
    head = compact({"alg": KEY.alg, "typ": "audit-head+jwt", "kid": KEY.kid}, claims, KEY)
    Path("jwks").write_bytes(jwks(KEY))
    Path("head").write_text(json.dumps({"head": head, "treeSize": size}))
    Path("leaves").write_text("".join(f"{encoded(leaf)}\n" for leaf in LEAVES))
    Path("export").write_text(exported())
    return tmp_path


def verify(*more: str) -> int:
    return main(["verify", "export", "--jwks", "jwks", "--head", "head", "--leaves", "leaves", *more])


def test_files_may_have_a_byte_order_mark_and_lines_that_end_as_on_windows(files: Path) -> None:
    for name in ("head", "leaves", "export"):
        path = files / name
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert verify() == 0


def test_a_head_that_is_no_text_is_named(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (files / "head").write_bytes(b"\x1f\x8b\x08")
    assert verify() == 2
    assert capsys.readouterr().err == "cannot verify: head: not a head\n"


@pytest.mark.parametrize(("begin", "code"), [("0", 1), ("-1", 1), ("1", 0)])
def test_an_erasure_is_excused_only_by_entries_that_are_missing(files: Path, begin: str, code: int) -> None:
    (files / "export").write_text(exported(erased=1))
    assert verify("--from-index", begin) == code

"""``python -m stead.audit verify``: verify an export of the audit trail.

Exits with 0 if everything was verified, 1 if something is wrong with the trail, 2 if it could not be verified.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from urllib.request import urlopen

from stead.audit.export import Finding, verify_export
from stead.audit.heads import Head, InvalidHead, decoded, read_head
from stead.verify.keys import KeySet

_TIMEOUT_S: Final = 10
_MAX_BYTES: Final = 1_000_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    given = _parser().parse_args(arguments)
    try:
        keys = KeySet.parse(_read(given.jwks))
        head = _head(given.head, keys)
        earlier = _head(given.earlier, keys) if given.earlier else None
        path = _path(given.consistency) if given.consistency else None
        with ExitStack() as opened:
            lines = sys.stdin.buffer if given.export == "-" else opened.enter_context(Path(given.export).open("rb"))
            leaves = opened.enter_context(Path(given.leaves).open(encoding="utf-8-sig")) if given.leaves else None
            report = verify_export(
                lines, head, leaves=leaves, earlier=earlier, consistency=path, begin=given.from_index
            )
    except (OSError, ValueError) as error:
        print(f"cannot verify: {error}", file=sys.stderr)
        return 2
    if report.finding is not None:
        print(_line(report.finding))
        return 1
    if report.warning is not None:
        print(f"warning: {_line(report.warning)}")
    print(
        f"verified: {report.verified} entries of a tree of {head.tree_size}, {report.erased} without personal part;"
        f" {report.newer} are later than the head"
    )
    return 0


def _line(finding: Finding) -> str:
    entry = f" (entry {finding.entry_id})" if finding.entry_id else ""
    return f"{finding.kind}: {finding.message}{entry}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m stead.audit", description="Verify the audit trail.")
    verify = parser.add_subparsers(required=True, metavar="verify").add_parser(
        "verify", help="verify an export against a signed head"
    )
    verify.add_argument("export", help="file from GET /api/logs/export; - for standard input")
    verify.add_argument("--jwks", required=True, help="public keys of heads: file, or URL of /api/logs/jwks")
    verify.add_argument(
        "--head",
        required=True,
        help="file with the head, read before the export: the JWS, or the response of /api/logs/head",
    )
    verify.add_argument("--leaves", help="file from GET /api/logs/leaves: to find the entry that was changed")
    verify.add_argument("--earlier", help="file with an earlier head, which the trail must still continue")
    verify.add_argument("--consistency", help="file with the response of GET /api/logs/consistency for the two heads")
    verify.add_argument(
        "--from-index", type=int, default=0, help="leaf index before which entries may be missing (retention)"
    )
    return parser


def _read(place: str) -> bytes:
    scheme = urlsplit(place).scheme
    if scheme in ("http", "https"):
        with urlopen(place, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - the scheme was checked
            return bytes(answer.read(_MAX_BYTES))
    return Path(place).read_bytes()


def _head(path: str, keys: KeySet) -> Head:
    try:
        text = Path(path).read_text("utf-8-sig").strip()
        token = json.loads(text)["head"] if text.startswith("{") else text
    except (KeyError, ValueError, RecursionError):
        raise InvalidHead(f"{path}: not a head") from None
    try:
        return read_head(token, keys)
    except InvalidHead as invalid:
        raise InvalidHead(f"{path}: the head is not accepted ({invalid})") from None


def _path(path: str) -> list[bytes]:
    try:
        return [decoded(each) for each in json.loads(Path(path).read_bytes())["path"]]
    except (KeyError, TypeError, ValueError, RecursionError):
        raise InvalidHead(f"{path}: not a proof of consistency") from None


if __name__ == "__main__":
    sys.exit(main())

"""Facts about a token request for the audit trail are noted by its methods, which say what they mean together."""

import ast
from pathlib import Path

from token_service.audit import AuditedTokenRequest

SOURCES = Path(__file__).parents[2] / "services/token-service/src/token_service"
FIELDS = set(AuditedTokenRequest.__struct_fields__)
HOLDERS = {"audited", "request"}
"""What the struct is called wherever it is passed."""


def name_of(expression: ast.expr) -> str | None:
    match expression:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return None


def test_no_module_sets_an_attribute_of_an_audited_request() -> None:
    trees = {path: ast.parse(path.read_text()) for path in SOURCES.rglob("*.py")}
    attributes = [
        (path, node) for path, tree in trees.items() for node in ast.walk(tree) if isinstance(node, ast.Attribute)
    ]
    held = [(path, node) for path, node in attributes if node.attr in FIELDS and name_of(node.value) in HOLDERS]

    assert len(held) >= 10  # read
    assert [(path.name, node.lineno) for path, node in held if isinstance(node.ctx, ast.Store)] == []

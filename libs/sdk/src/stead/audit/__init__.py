"""Verification of the audit trail: signed heads of its Merkle tree, proofs, and exports.

``python -m stead.audit verify`` checks an export against a head; ``verify_export`` is the same in Python. Nothing here
trusts the service: every hash is computed from the export.
"""

from stead.audit.export import Finding, Report, verify_export
from stead.audit.heads import Head, InvalidHead, read_head
from stead.audit.leaves import PERSONAL_MEMBERS, leaf_of
from stead.audit.tree import is_consistent, is_included, root_of
from stead.verify.keys import KeySet

__all__ = [
    "PERSONAL_MEMBERS",
    "Finding",
    "Head",
    "InvalidHead",
    "KeySet",
    "Report",
    "is_consistent",
    "is_included",
    "leaf_of",
    "read_head",
    "root_of",
    "verify_export",
]

"""What the console says about a dry run."""

import re

from console.rendering import Look, Pages
from stead import DryRunReport

LACKS = "No inputs are recorded."


def said(report: DryRunReport) -> str:
    parts = Pages(Look("Stead"))._environments["en"].get_template("claims/parts.html")
    return " ".join(re.sub(r"<[^>]*>", " ", str(parts.module.runs(report))).split())  # type: ignore[attr-defined]


def test_inputs_that_were_not_reached_are_not_told_as_none() -> None:
    assert said(DryRunReport(runs=[], omitted=0)) == LACKS
    assert said(DryRunReport(runs=[], omitted=2)) == "2 inputs were left out, for lack of time."

"""How the console tells what entries of the audit trail say: in sentences, with the names of today."""

from __future__ import annotations

import json
import re
from datetime import UTC
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from console.areas.audit_filters import BY_ID, RANGES, as_entered
from console.folding import folded
from console.forms import Form
from console.rendering import Look, Pages
from identity_common.wire.audit import BEGINNINGS, GAP_KEY
from stead.models import AuditContext, AuditEntry, AuditGap, ImpersonationParties
from tests.unit.console.test_look import FRAME
from token_service.audit.token_requests import OBJECTS

DOCUMENT = Path(__file__).parents[3] / "services/management-service/src/management_service/openapi.json"
NOT_RECORDED = {"PostUserinfo", "Token", "Introspect", "Revoke", "ListAffectedMembers", "ExportAffectedMembers"}
"""Operations that are no writes of the Management API; what they do with tokens is told by the keys of tokens."""
KEYS = {
    *BEGINNINGS,
    *("subject-token.refused", "token.exchange.unknown", "token.other.refused", GAP_KEY),
    *(f"token.{each}.{verb}" for each in OBJECTS.values() for verb in ("succeeded", "refused")),
    *(f"token.sign-in.{verb}" for verb in ("succeeded", "refused", "throttled")),
    *("token.factor.succeeded", "token.session.ended", "token.session.left"),
    *(f"token.consent.{verb}" for verb in ("create", "update", "imply", "delete")),
    "template.provider-groups.apply",
    *(f"token.{key}-key.{verb}" for key in ("signing", "not-valid") for verb in ("rotate", "delete")),
}
"""Keys of entries without an operation, and of those of subject tokens."""
BY_PAGES = {
    *("RecoverPassword", "ConfirmEmailAddress", "JoinOrganization", "Register"),
    *("SignInAtProvider", "LinkIdentity"),
    *("AddPasskey", "VerifyPasskey", "SendEnrolmentCode", "AddAuthenticator", "RenewRecoveryCodes", "UseRecoveryCode"),
}
"""What people do on pages for signing in and through links in mails, without the API."""
NAMES = {"u1": "Ada", "u2": "Kim", "u3": "Customer", "a1": "Console", "a2": "Support desk", "r1": "Auditor"}


def entry(**values: Any) -> AuditEntry:
    return AuditEntry(**{"id": "1", "occurred_at": 1, "key": "management.any.update", "names": NAMES, **values})


def page_of(entries: list[AuditEntry], language: str = "en", **frame: Any) -> str:
    """Return the page of the trail."""
    values = {
        "form": Form.of(),
        "given": {},
        "zone": UTC,
        "ranges": RANGES,
        "by_id": BY_ID,
        "as_entered": as_entered,
        "is_refused": False,
        "rows": folded(entries),
        "known": {"o1": "Acme"},
        "following": None,
    }
    page = Pages(Look("Stead")).render("audit/list.html", language, **{**FRAME, **values, **frame})
    return str(page.content)


def shown(entries: list[AuditEntry], language: str = "en", **frame: Any) -> str:
    """Return the list of entries on the page of the trail."""
    return page_of(entries, language, **frame).partition('<ol class="events">')[2].partition("</ol>")[0]


def sentences(html: str) -> list[str]:
    """Return the first line of each entry."""
    lines = re.findall(r"<li>\s*<p>(.*?)</p>", html, re.DOTALL)
    return [" ".join(unescape(re.sub(r"<[^>]*>", "", line)).split()) for line in lines]


def words(language: str) -> Any:
    return Pages(Look("Stead"))._environments[language].get_template("sentences.html").module


@pytest.mark.parametrize("language", ["en", "de"])
def test_every_operation_and_every_key_has_a_sentence(language: str) -> None:
    paths = json.loads(DOCUMENT.read_text())["paths"].values()
    writes = {each["operationId"] for methods in paths for method, each in methods.items() if method != "get"}
    told = words(language).sentences
    assert told.keys() == (writes - NOT_RECORDED - {"CreateSubjectToken"}) | BY_PAGES | KEYS
    every = [entry(operation=each) if "." not in each else entry(key=each) for each in told]
    lines = sentences(shown(every, language))
    assert len(lines) == len(every)
    assert not [line for line in lines if "no words" in line or "keine Worte" in line or "%(" in line]
    assert len({re.sub("refused|abgelehnt", "", line) for line in lines}) >= len(every) - 2  # rotations of keys alike


def test_a_log_that_is_numbered_anew_misses_no_numbers() -> None:
    gaps = [AuditGap(first=1, last=2), AuditGap(first=1, last=2, previous_epoch="e1"), AuditGap(previous_epoch="e1")]
    missing = "The system did not receive some entries: their numbers are missing"
    anew = "Redis was restarted, so a log is numbered anew: its last entries may be missing"
    assert sentences(shown([entry(key=GAP_KEY, gap=each) for each in gaps])) == [missing, missing, anew]


def test_sentences_name_who_did_what_to_whom() -> None:
    story = [
        entry(
            key="subject-token.issued",
            operation="CreateSubjectToken",
            application_id="a2",
            requested_by="u2",
            user_id="u3",
        ),
        entry(key="token.exchange.succeeded", application_id="a2", actor_id="u2", user_id="u3"),
        entry(key="token.exchange.succeeded", application_id="a2", user_id="u3"),
        entry(
            operation="EndImpersonation",
            user_id="u1",
            application_id="a1",
            ids={"impersonation_id": "i1"},
            impersonation=ImpersonationParties(user_id="u3", actor_id="u2"),
        ),
        entry(
            operation="AddUserRoles", user_id="u1", ids={"user_id": "u2"}, given={"roleIds": ("r1", "r2", "r3", "r4")}
        ),
        entry(operation="CreateUser", application_id="a2", aggregates=("user/u2",)),
        entry(operation="ReplaceClaimsFunction", user_id="u1", aggregates=("claims-function/access-token",)),
        entry(operation="UpdateOrganizationRole", user_id="u1", ids={"role_id": "o1"}),
        entry(
            operation="AddOrganizationUsers", user_id="gone", ids={"organization_id": "o1"}, given={"userIds": ("u2",)}
        ),
        entry(operation="ComesWithTheNextRelease", user_id="u1"),
        entry(key="token.sign-in.refused", outcome="refused", reason="wrong-password", application_id="a1", count=3),
        entry(key="token.exchange.refused", outcome="refused", reason="new.code", application_id="a2", user_id="u3"),
    ]
    assert sentences(shown(story)) == [
        "Kim got a subject token to act as Customer",
        "Kim began to act as Customer",
        "Support desk began to act as Customer",
        "Ada ended Kim's impersonation of Customer",
        "Ada gave Kim the API role Auditor, r2, r3 (+1)",
        "Support desk created the user Kim",
        "Ada saved the claims function access-token",
        "Ada changed the organization role Acme",
        "gone added Kim to the organization Acme",
        "Ada did something that this console has no words for",
        "an unknown user could not sign in to Console refused 3 times wrong password",
        "Support desk was refused an exchange so that Support desk may act as Customer refused new.code",
    ]


def test_the_reason_the_ticket_the_client_and_the_key_are_below() -> None:
    html = shown(
        [entry(operation="UpdateUser", user_id="u1", application_id="a1", ids={"user_id": "u2"}, address="192.0.2.1")]
    )
    assert 'via <bdi><a href="/console/applications/a1">Console</a></bdi>' in html
    assert "<code>UpdateUser</code>" in html
    assert "192.0.2.1" in html
    issued = shown([entry(key="subject-token.issued", context=AuditContext(reason="<b>No & yes", ticket_id="TCK 1&2"))])
    assert "<q><bdi>&lt;b&gt;No &amp; yes</bdi></q>" in issued
    assert '<a href="/console/audit?ticketId=TCK+1%262"><bdi>TCK 1&amp;2</bdi></a>' in issued


def test_names_are_isolated_and_linked_only_for_those_who_may_open_the_page() -> None:
    hostile = '"><img src=x>\u202e\u2069'
    of = entry(operation="UpdateUser", user_id="../u", ids={"user_id": "u2"}, names={"../u": hostile, "u2": "Kim"})
    assert '<bdi><a href="/console/users/..%2Fu">&#34;&gt;&lt;img src=x&gt;\u202e</a></bdi> changed' in shown([of])
    alone = shown([of], may=lambda path: not path.startswith("/console/users"))
    assert "<bdi>&#34;&gt;&lt;img src=x&gt;\u202e</bdi> changed the user <bdi>Kim</bdi>" in alone


def test_consecutive_tokens_of_one_application_and_user_are_one_row() -> None:
    token = {"key": "token.refresh-token.succeeded", "application_id": "a1", "user_id": "u1"}
    entries = [
        entry(**token, occurred_at=9000),
        entry(**token, occurred_at=8000),
        entry(**{**token, "key": "token.authorization-code.succeeded"}, occurred_at=7000),
        entry(**{**token, "user_id": "u2"}, occurred_at=6000),
        entry(key="token.client-credentials.succeeded", application_id="a2", occurred_at=5000),
        entry(key="token.client-credentials.succeeded", application_id="a2", occurred_at=4000),
        entry(key="token.exchange.succeeded", application_id="a2", actor_id="u2", user_id="u3", occurred_at=3000),
        entry(key="token.exchange.succeeded", application_id="a2", actor_id="u2", user_id="u3", occurred_at=2000),
        entry(**{**token, "key": "token.refresh-token.refused"}, outcome="refused", occurred_at=1000),
    ]
    html = shown(entries)
    assert sentences(html) == [
        "Console got 3 tokens for Ada",
        "Console renewed its tokens for Kim",
        "Support desk got 2 tokens",
        "Kim began to act as Customer",
        "Kim began to act as Customer",
        "Console was refused new tokens for Ada refused",
    ]
    each = "applicationId=a1&amp;userId=u1&amp;from=1970-01-01T00%3A00%3A07&amp;until=1970-01-01T00%3A00%3A09"
    assert f"{each}&amp;last=&amp;zone=UTC&amp;unfolded=yes" in html
    goes_on = "The last row counts the tokens of this page"
    assert goes_on in page_of(entries[:2], following="8000.1")
    assert goes_on not in page_of(entries[:2])
    assert goes_on not in page_of(entries, following="1000.1")

"""Impersonations and the audit trail in the console, as a browser without scripts sees them."""

from __future__ import annotations

import csv
import io
import json
import re
import secrets
from collections.abc import Iterator
from datetime import datetime
from html import unescape
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

import pytest
import redis

from stead import ImpersonationPolicy, NotFound
from stead.errors import OAuthError
from tests.support.administrator import CONSOLE, ENDED, Administrator, errors, heading, notices
from tests.support.running_stack import RunningStack
from tests.support.waiting import eventually

IMPERSONATIONS = f"{CONSOLE}/impersonations"
POLICY = f"{IMPERSONATIONS}/policy"
AUDIT = f"{CONSOLE}/audit"
REASON = '<b>order</b> & "invoice" عبد الله'


@pytest.fixture(scope="module")
def administrator(stack: RunningStack) -> Administrator:
    return Administrator(stack, "all", name="Grace Hopper")


def begun(stack: RunningStack, user_id: str | None = None, *, ticket: str = "T-<1>") -> str:
    """Return the id of an impersonation that has begun and is in the trail."""
    user = user_id or stack.management.users.create(name=f"<i>{secrets.token_hex(3)}</i>").id
    subject_token = stack.management.subject_tokens.create(user, {"reason": REASON, "ticketId": ticket})
    stack.exchange(subject_token.token, scope=["openid"])
    impersonation_id = subject_token.impersonation_id

    def is_told() -> bool:
        try:
            told = stack.management.impersonations.get(impersonation_id)
        except NotFound:
            return False
        return told.client_id is not None and told.issued_to != ""

    eventually(is_told)
    return impersonation_id


@pytest.mark.heavy
def test_an_impersonation_is_seen_told_and_ended(stack: RunningStack, administrator: Administrator) -> None:
    user = stack.management.users.create(name="<i>Katherine</i>").id
    impersonation_id = begun(stack, user)
    page = administrator.opens(f"{IMPERSONATIONS}?userId={user}")
    assert re.findall(rf'href="({IMPERSONATIONS}/[0-9a-z]{{21}})"', page.text) == [
        f"{IMPERSONATIONS}/{impersonation_id}"
    ]
    assert "<i>Katherine" not in page.text
    assert REASON in unescape(page.text)
    assert 'data-until="' in page.text

    told = stack.management.impersonations.get
    eventually(lambda: "token.exchange.succeeded" in [event.key for event in told(impersonation_id).events])
    story = administrator.opens(f"{IMPERSONATIONS}/{impersonation_id}")
    assert heading(story) == "As <bdi><i>Katherine</i></bdi>"
    events = told(impersonation_id).events
    entries = story.text.partition('<ol class="events">')[2].partition("</ol>")[0]
    assert re.findall(r"<code>([A-Za-z.-]+)</code>", entries) == [event.operation or event.key for event in events]
    assert entries.count("<i>Katherine") == 0
    assert entries.count(f"{CONSOLE}/users/{user}") == len(events)

    asked = administrator.opens(f"{IMPERSONATIONS}/{impersonation_id}/end")
    assert re.search(r"(?s)This one expires at .* UTC</bdi>\.", asked.text)
    refused = administrator.sends(asked, reason="x" * 257)
    assert (refused.status_code, list(errors(refused))) == (400, ["reason"])
    assert administrator.form(refused)[1]["reason"] == ["x" * 257]
    administrator.sends(asked, reason=f" {REASON} ")
    story = administrator.opens(f"{IMPERSONATIONS}/{impersonation_id}")
    assert notices(story) == [f"Ended. {ENDED}"]
    eventually(lambda: "this one was ended" in administrator.opens(f"{IMPERSONATIONS}/{impersonation_id}").text)
    eventually(lambda: stack.management.impersonations.get(impersonation_id).end_reason == REASON)
    ended = administrator.opens(f"{IMPERSONATIONS}/{impersonation_id}")
    assert f"Reason: \u2068{REASON}" in unescape(re.sub("</?bdi>", "\u2068", ended.text))
    assert re.search(r"(?s)nor introspect accept the token until .* UTC</bdi>\.", ended.text)
    assert "Grace Hopper" in administrator.opens(f"{IMPERSONATIONS}/{impersonation_id}").text
    over = administrator.opens(f"{IMPERSONATIONS}?userId={user}&state=over")
    assert impersonation_id in over.text
    assert impersonation_id not in administrator.opens(f"{IMPERSONATIONS}?userId={user}").text


@pytest.mark.heavy
def test_each_filter_of_the_list_finds_it_and_an_unknown_name_is_no_empty_list(
    stack: RunningStack, administrator: Administrator
) -> None:
    name, ticket = (f"Ada {secrets.token_hex(5)}" for _ in range(2))
    user = stack.management.users.create(name=name).id
    token = stack.management.subject_tokens.create(user, {"reason": "A lost invoice", "ticketId": ticket})
    stack.exchange(token.token, scope=["openid"])
    told = stack.management.impersonations.list
    eventually(lambda: any(each.issued_to and each.client_id for each in told(user_id=user)))
    (begun_one,) = stack.management.impersonations.list(user_id=user)
    assert begun_one.client_id is not None
    application = stack.management.applications.get(begun_one.client_id).name

    def found(**given: str) -> list[str]:
        page = administrator.opens(f"{IMPERSONATIONS}?{urlencode({'state': 'all', 'person': user, **given})}")
        assert page.status_code == 200, given
        return re.findall(rf'href="{IMPERSONATIONS}/([0-9a-z]{{21}})"', page.text)

    for given in (
        {"person": name},
        {"person": user},
        {"ticketId": ticket.upper()},
        {"q": "INV lo"},
        {"application": application},
        {"application": begun_one.client_id, "q": "lost", "ticketId": ticket, "state": "active"},
    ):
        assert found(**given) == [begun_one.id], given
    assert found(q="found") == found(ticketId="T") == found(state="over") == []
    for field, value, status in (
        ("person", f"x{name}", 422),
        ("application", "<b>none</b>", 422),
        ("q", "--", 400),
        ("q", "x" * 257, 400),
        ("ticketId", "x" * 257, 400),
        ("person", "x" * 257, 400),
    ):
        page = administrator.opens(f"{IMPERSONATIONS}?{urlencode({field: value, 'state': 'over'})}")
        assert (page.status_code, list(errors(page))) == (status, [field])
        assert "<b>none" not in page.text
        assert re.search('<option value="over" selected>', page.text)
    assert administrator.opens(f"{IMPERSONATIONS}?state=x&after=y&userId=%00").status_code == 400


@pytest.mark.heavy
def test_who_may_end_them_ends_one_in_its_row_and_is_offered_nothing_else(stack: RunningStack) -> None:
    lead, user = Administrator(stack, "impersonations:end"), stack.management.users.create().id
    ended, other = begun(stack, user), begun(stack, user)
    page = lead.opens(f"{IMPERSONATIONS}?person={user}&q=order")
    assert not re.search("/new|/policy|/console/users", page.text)
    back = lead.sends(page, f"{IMPERSONATIONS}/{ended}/end", reason="found")
    assert back.headers["Location"] == f"{IMPERSONATIONS}?person={user}&q=order"
    listed = lead.follows(back)
    assert notices(listed) == [f"Ended. {ENDED}"]
    eventually(lambda: stack.management.impersonations.get(ended).end_reason == "found")
    assert re.findall(r'id="end-([0-9a-z]{21})"', lead.opens(f"{IMPERSONATIONS}?person={user}").text) == [other]
    home = lead.opens(CONSOLE)
    assert {"audit:read", "claims:read", "keys:read"} == set(re.findall("<li><code>([a-z:]+)</code></li>", home.text))
    assert f"{IMPERSONATIONS}/{other}/end" in home.text
    assert "Users, Organizations" in lead.opens(f"{CONSOLE}/search?q=order").text


def test_a_page_that_refreshes_itself_does_not_keep_the_session_or_take_its_notices(stack: RunningStack) -> None:
    lead = Administrator(stack, "all")
    user = stack.management.users.create(name="Ada").id
    lead.sends(lead.opens(f"{IMPERSONATIONS}/end?userId={user}"), confirmation="Ada")
    session_id = lead.browser.cookies["identity-console"].partition(".")[0]
    with redis.Redis.from_url(stack.addresses.admin_redis_url) as store:
        key = f"identity:{stack.tenant_id}:console-session:{session_id}"
        store.expire(key, 500)
        refreshed = lead.browser.get(IMPERSONATIONS, headers={"X-Refresh": "1"})
        assert (refreshed.status_code, notices(refreshed), store.ttl(key) <= 500) == (200, [], True)
        assert notices(lead.opens(IMPERSONATIONS)) == [f"Ended. {ENDED}"]
        assert store.ttl(key) > 500
    lead.session_expires()
    assert lead.browser.get(IMPERSONATIONS, headers={"X-Refresh": "1"}).status_code == 401


@pytest.mark.heavy
def test_all_of_a_user_are_ended_after_the_name_was_typed(stack: RunningStack, administrator: Administrator) -> None:
    user = stack.management.users.create(name="Mary Jackson").id
    impersonation_id = begun(stack, user)
    page = administrator.opens(f"{IMPERSONATIONS}/end?userId={user}")
    assert heading(page) == "End all impersonations of this user?"
    assert "1 is active." in page.text
    refused = administrator.sends(page, confirmation="Mary")
    assert (refused.status_code, errors(refused)) == (422, {"confirmation": "This is not the name."})
    assert stack.management.impersonations.get(impersonation_id).ended_at is None
    listed = administrator.follows(administrator.sends(page, confirmation="Mary Jackson"))
    assert notices(listed) == [f"Ended. {ENDED}"]
    eventually(lambda: stack.management.impersonations.get(impersonation_id).reason == "user")


def test_the_end_of_many_survives_an_expired_session(stack: RunningStack) -> None:
    administrator = Administrator(stack, "all")
    user = stack.management.users.create(name="Dorothy Vaughan").id
    page = administrator.opens(f"{IMPERSONATIONS}/end?userId={user}")
    administrator.session_expires()
    again = administrator.follows(administrator.sends(page, confirmation="Dorothy Vaughan"))
    assert heading(again) == "End all impersonations of this user?"
    assert administrator.form(again)[1]["userId"] == [user]


@pytest.mark.heavy
def test_who_may_only_read_sees_it_all_and_ends_nothing(stack: RunningStack) -> None:
    reader = Administrator(stack, "read")
    impersonation_id = begun(stack)
    entry = stack.management.impersonations.get(impersonation_id).events[0].id
    eventually(lambda: "Verified: leaf" in reader.opens(f"{AUDIT}/{entry}").text)
    for path in (
        IMPERSONATIONS,
        f"{IMPERSONATIONS}/{impersonation_id}",
        AUDIT,
        f"{AUDIT}/{entry}",
        f"{AUDIT}/chain",
        f"{AUDIT}/{entry}/proof",
    ):
        page = reader.opens(path)
        assert page.status_code == 200, path
        assert re.findall(r'href="[^"]*/(?:end|export)"', page.text) == [], path
    for path in (f"{IMPERSONATIONS}/end", f"{IMPERSONATIONS}/{impersonation_id}/end", f"{AUDIT}/export"):
        assert reader.opens(path).status_code == 403, path
    sent = reader.form(reader.opens(f"{AUDIT}/chain"))[1]
    for path in (f"{IMPERSONATIONS}/end", f"{IMPERSONATIONS}/{impersonation_id}/end"):
        assert reader.browser.post(path, data={**sent, "confirmation": "all"}).status_code == 403, path
    assert stack.management.impersonations.get(impersonation_id).ended_at is None


@pytest.mark.heavy
def test_a_subject_token_is_shown_once_and_exchanged(stack: RunningStack, administrator: Administrator) -> None:
    user = stack.management.users.create(name="Ada").id
    form = administrator.opens(f"{IMPERSONATIONS}/new?userId={user}")
    shown = administrator.follows(administrator.sends(form, reason=REASON, ticketId="T-1"))
    (token,) = re.findall(r'<code id="secret">([^<]+)</code>', shown.text)
    assert token not in administrator.opens(IMPERSONATIONS).text
    stack.exchange(token, scope=["openid"])
    # The exchange may be in the trail before the subject token.
    eventually(lambda: any(each.issued_to for each in stack.management.impersonations.list(user_id=user)))
    (found,) = stack.management.impersonations.list(user_id=user)
    assert (found.context.reason, found.context.ticket_id) == (REASON, "T-1")
    issued = next(each for each in stack.management.impersonations.get(found.id).events if each.requested_by)
    entry = administrator.opens(f"{AUDIT}/{issued.id}").text
    assert re.search(r"<dt>Requested by</dt><dd><bdi>Grace Hopper</bdi>", entry)

    for wrong in ("unknown", "../x", ""):
        refused = administrator.sends(form, userId=wrong)
        assert (refused.status_code, list(errors(refused))) == (422, ["userId"])
    stack.management.users.suspend(user)
    assert list(errors(administrator.sends(form))) == ["userId"]
    reader = Administrator(stack, "read", name="Reader")
    assert reader.opens(f"{IMPERSONATIONS}/new").status_code == 403
    assert "/new" not in reader.opens(IMPERSONATIONS).text


@pytest.fixture
def off(stack: RunningStack) -> Iterator[None]:
    """All worlds share one policy: it is off again after the test."""
    yield
    stack.management.impersonation_policy.update(
        require_actor=None, require_context=None, excluded_roles=None, actor_max_age_s=None, actor_acr=None
    )


@pytest.mark.usefixtures("off")
def test_the_policy_is_shown_changed_and_obeyed(stack: RunningStack, administrator: Administrator) -> None:
    policy = stack.management.impersonation_policy
    excluded, other = (stack.management.roles.create(f"<b>{secrets.token_hex(4)}</b>", "") for _ in range(2))
    user = stack.management.users.create(name="Ada").id
    stack.management.users.assign_roles(user, [excluded.id])
    page = administrator.opens(f"{POLICY}?search={excluded.name}")
    refused = administrator.sends(page, POLICY, requireContext="reason\n" + "x" * 65)
    assert (refused.status_code, list(errors(refused))) == (400, ["requireContext"])
    for field in ("actorMaxAgeS", "actorAcr"):
        refused = administrator.sends(page, POLICY, **{field: "<b>"})
        assert (refused.status_code, list(errors(refused))) == (400, [field])
    typed = {"requireActor": "yes", "requireContext": "reason\nteam", "actorMaxAgeS": " 600 ", "actorAcr": "phr"}
    shown = administrator.follows(administrator.sends(page, POLICY, **typed, excludedRoles=[excluded.id]))
    assert notices(shown) == ["Saved the policy. It applies from the next request on."]
    assert administrator.form(shown)[1]["excludedRoles"] == [excluded.id]
    assert excluded.name not in shown.text
    assert policy.get() == ImpersonationPolicy(
        require_actor=True,
        require_context=("reason", "team"),
        excluded_roles=(excluded.id,),
        actor_max_age_s=600,
        actor_acr="phr",
    )

    new = administrator.opens(f"{IMPERSONATIONS}/new?userId={user}")
    assert "actor_token_type" in new.text
    refused = administrator.sends(new, reason="x")
    assert (refused.status_code, errors(refused)) == (422, {"context.team": "The policy requires it."})
    refused = administrator.sends(new, **{"reason": "x", "context.team": "second line"})
    assert (refused.status_code, list(errors(refused))) == (422, ["userId"])
    assert "The policy excludes its holders" in administrator.opens(f"{CONSOLE}/roles/{excluded.id}/delete").text

    policy.update(require_context=["ticketId"], excluded_roles=[excluded.id, other.id])
    overtaken = administrator.sends(shown, POLICY, excludedRoles=[])
    assert overtaken.status_code == 412
    assert administrator.form(overtaken, POLICY)[1]["excludedRoles"] == [other.id]
    assert administrator.sends(overtaken, POLICY).is_redirect
    assert (policy.get().require_context, policy.get().excluded_roles) == (("ticketId",), (other.id,))
    assert administrator.sends(administrator.opens(POLICY), POLICY, actorMaxAgeS="", actorAcr="").is_redirect
    assert (policy.get().actor_max_age_s, policy.get().actor_acr) == (None, None)


@pytest.mark.usefixtures("off")
def test_the_policy_is_read_but_not_changed_without_the_right(stack: RunningStack) -> None:
    reader = Administrator(stack, "read")
    page = reader.opens(POLICY)
    assert (page.status_code, "Save" in page.text) == (200, False)
    assert reader.sends(page, POLICY, requireActor="yes").status_code == 403
    assert not stack.management.impersonation_policy.get().require_actor


@pytest.mark.usefixtures("off")
def test_the_policy_is_changed_without_seeing_roles(stack: RunningStack) -> None:
    """The excluded ones, of which only the ids are known, stay; the others are not offered."""
    policy, role = (
        stack.management.impersonation_policy,
        stack.management.roles.create(f"Kept {secrets.token_hex(4)}", ""),
    )
    policy.update(excluded_roles=[role.id])
    keeper = Administrator(stack, "config", "impersonations:read")
    page = keeper.opens(POLICY)
    assert page.status_code == 200
    assert role.name not in page.text
    assert "roles:read" in page.text
    assert keeper.form(page)[1]["excludedRoles"] == [role.id]
    refused = keeper.sends(page, requireContext="x" * 65)
    assert (refused.status_code, keeper.form(refused)[1]["excludedRoles"]) == (400, [role.id])
    assert keeper.sends(page, requireActor="yes").is_redirect
    assert policy.get() == ImpersonationPolicy(require_actor=True, require_context=(), excluded_roles=(role.id,))
    assert keeper.sends(keeper.opens(POLICY), excludedRoles=[]).is_redirect
    assert policy.get().excluded_roles == ()


@pytest.mark.parametrize("path", ["impersonations/none", "impersonations/none/end", "audit/none", "audit/none/proof"])
def test_what_is_not_there_is_a_page(administrator: Administrator, path: str) -> None:
    assert administrator.opens(f"{CONSOLE}/{path}").status_code == 404


@pytest.mark.heavy
def test_the_trail_is_searched_and_leads_to_an_entry_with_its_proof(
    stack: RunningStack, administrator: Administrator
) -> None:
    impersonation_id = begun(stack)
    page = administrator.opens(f"{AUDIT}?subjectTokenId={impersonation_id}&from=2020-01-01&until=2100-01-01")
    listed = re.findall(rf'href="{AUDIT}/([0-9a-z]{{21}})"', page.text)
    assert len(listed) == len(stack.management.impersonations.get(impersonation_id).events)
    before = administrator.opens(f"{AUDIT}?subjectTokenId={impersonation_id}&until=2020-01-01")
    assert "No entry matches." in before.text
    assert 'value="2020-01-01T23:59"' in before.text

    eventually(lambda: "Verified: leaf" in administrator.opens(f"{AUDIT}/{listed[0]}").text)
    proof = administrator.opens(f"{AUDIT}/{listed[0]}/proof")
    assert proof.headers["Content-Disposition"] == f'attachment; filename="proof-{listed[0]}.json"'
    assert set(json.loads(proof.content)) == {"leafIndex", "leafHash", "treeSize", "auditPath", "head"}

    found = administrator.opens(f"{CONSOLE}/search?q={impersonation_id}")
    assert found.url.path == f"{IMPERSONATIONS}/{impersonation_id}"
    assert administrator.opens(f"{CONSOLE}/search?q={listed[0]}").url.path == f"{AUDIT}/{listed[0]}"


def test_the_trail_is_asked_for_a_person_by_address_and_does_not_take_an_unknown_one_for_nothing(
    stack: RunningStack, administrator: Administrator
) -> None:
    address = f"{secrets.token_hex(6)}@example.com"
    user = stack.management.users.create(primary_email=address)
    for query in (f"person={address}", f"person={user.id}", f"userId={user.id}"):
        eventually(lambda query=query: "created the user" in entries(administrator.opens(f"{AUDIT}?{query}").text))
    for field, error in {
        "person": "No user has this id or name. Names are compared with case.",
        "application": "No application has this id or name. Names are compared with case.",
        "organization": "No organization has this id or name. Names are compared with case.",
        "ticketId": "No impersonation has this ticket.",
    }.items():
        for path in (AUDIT, f"{AUDIT}/export"):
            page = administrator.opens(f"{path}?{field}=x{address}")
            assert (page.status_code, "No entry matches." in page.text, errors(page)) == (422, False, {field: error})
            assert f'value="x{address}"' in page.text
            assert f"{AUDIT}/export" not in page.text


def entries(page: str) -> str:
    """Return what the list of a page says."""
    told = page.partition('<ol class="events">')[2].partition("</ol>")[0]
    return " ".join(unescape(re.sub(r"<[^>]*>", "", told)).split())


@pytest.mark.heavy
def test_an_investigator_is_told_who_acted_as_a_customer_and_why(
    stack: RunningStack, administrator: Administrator
) -> None:
    """By the customer, the ticket, the application, the kind of event and the time, and as a file."""
    customer, ticket = f"Customer {secrets.token_hex(4)}", f"TCK-{secrets.token_hex(4)}"
    user = stack.management.users.create(name=customer).id
    impersonation_id = begun(stack, user, ticket=ticket)
    administrator.sends(administrator.opens(f"{IMPERSONATIONS}/{impersonation_id}/end"))
    ended = f"Grace Hopper ended .*'s impersonation of {customer}"
    queries = [f"ticketId={ticket.lower()}", f"person={customer}", f"subjectTokenId={impersonation_id}"]
    for query in queries:
        eventually(lambda query=query: re.search(ended, entries(administrator.opens(f"{AUDIT}?{query}").text)))
        told = entries(administrator.opens(f"{AUDIT}?{query}&last=week").text)
        assert re.search(f"got a subject token to act as {customer} {re.escape(REASON)} {ticket}", told)
        assert f"began to act as {customer}" in told
        only = entries(administrator.opens(f"{AUDIT}?{query}&event=EndImpersonation&outcome=success").text)
        assert re.search(ended, only)
        assert "subject token" not in only
        assert entries(administrator.opens(f"{AUDIT}?{query}&outcome=refused").text) == ""

    (issued,) = stack.management.logs.list(ticket_id=ticket, key="subject-token.issued")
    tokyo = datetime.fromtimestamp(issued.occurred_at / 1000, ZoneInfo("Asia/Tokyo")).strftime("%Y-%m-%dT%H:%M")
    of_key = f"{AUDIT}?ticketId={ticket}&logKey=subject-token.issued&from={tokyo}"
    there = administrator.opens(f"{of_key}&until={tokyo}&zone=Asia/Tokyo")
    assert customer in entries(there.text)
    assert tokyo.replace("T", " ") in there.text
    assert (there.text.count(f'value="{tokyo}"'), 'value="Asia/Tokyo"' in there.text) == (2, True)
    assert customer not in administrator.opens(of_key).text  # nine hours ahead

    export = unescape(re.findall(rf'href="({AUDIT}/export[^"]*format=csv)"', there.text)[0])
    rows = list(csv.DictReader(io.StringIO(administrator.opens(export).text)))
    assert [(row["ticketId"], row["user"]) for row in rows] == [(ticket, customer)]
    lines = administrator.opens(f"{AUDIT}/export?person={customer}").content.splitlines()
    listed = [each.id for each in stack.management.logs.list(person=user)]
    assert [json.loads(line)["id"] for line in lines] == listed[::-1]


@pytest.mark.heavy
def test_the_outcome_of_each_entry_is_that_of_its_key(stack: RunningStack, administrator: Administrator) -> None:
    """The filter selects by the key: what any test of this run has recorded agrees."""
    begun(stack)
    with pytest.raises(OAuthError):
        stack.exchange("sub_" + "x" * 43, scope=["openid"])
    eventually(lambda: any(stack.management.logs.list(key="token.exchange.refused")))
    counted = {}
    for outcome in ("success", "refused", "unknown"):
        found = list(stack.management.logs.list(outcome=outcome))
        assert {each.outcome for each in found} <= {outcome}
        counted[outcome] = len(found)
    assert min(counted["success"], counted["refused"]) > 0


_BY_NAME = {"person": "users", "application": "applications", "organization": "organizations"}


def test_suggestions_are_names_that_begin_so_and_only_those_that_one_may_see(
    stack: RunningStack, administrator: Administrator
) -> None:
    name = f"Suggested{secrets.token_hex(4)}"
    address = f"{name.lower()}@example.com"
    stack.management.users.create(name=name, primary_email=address)
    stack.management.organizations.create(name)
    stack.management.applications.create(name=name, type="SPA", description='"><b>')
    path = f"{AUDIT}/suggestions?q={name[:-1]}&for="
    expected = {
        "person": [{"value": address, "label": name}],
        "organization": [{"value": name, "label": ""}],
        "application": [{"value": name, "label": '"><b>'}],
        "role": [],
    }
    eventually(lambda: {kind: administrator.opens(path + kind).json() for kind in expected} == expected)
    for query in (f"q={name[0]}&for=person", "q=&for=person", f"q={name}", "q=%00%00%00&for=person"):
        assert administrator.opens(f"{AUDIT}/suggestions?{query}").json() == [], query
    assert administrator.opens(f"{AUDIT}/suggestions?for=person&q={'x' * 300}").status_code in {200, 400}
    narrow = Administrator(stack, "audit:read", name="Narrow")
    assert {kind: narrow.opens(path + kind).json() for kind in expected} == {kind: [] for kind in expected}
    assert Administrator(stack, "users:read", name="Other").opens(path + "person").status_code == 403

    page = narrow.opens(AUDIT).text  # without the rights for names, only ids are asked for
    assert [field for field in (*_BY_NAME, "userId") if f'id="{field}"' in page] == ["userId"]
    for field, area in _BY_NAME.items():
        refused = narrow.opens(f"{AUDIT}?{field}={name}&ticketId=T-{name}")
        assert refused.status_code == 403
        assert (f"{area}:read" in refused.text, f'value="T-{name}"' in refused.text) == (True, True)


@pytest.mark.parametrize(
    ("query", "status", "wrong"),
    [
        ("from=yesterday", 422, {"from"}),
        ("until=99999-01-01", 422, {"until"}),
        ("from=0001-01-01", 200, set()),
        ("until=9999-12-31&zone=Pacific/Apia", 200, set()),
        ("zone=../../etc/passwd", 422, {"zone"}),
        ("zone=Europe&from=2026-01-01", 422, {"zone"}),
        ("last=century", 200, set()),
        ("after=x", 400, set()),
        ("userId=%00", 200, set()),
        (f"logKey={'x' * 300}", 400, {"logKey"}),
        (f"person={'x' * 300}", 400, {"person"}),
        ("outcome=failure", 400, {"outcome"}),
        ("event=EndImpersonation&operation=UpdateUser", 422, {"event"}),
        ("event=<script>", 200, set()),
    ],
)
def test_a_filter_that_makes_no_sense_is_said_beside_its_field(
    administrator: Administrator, query: str, status: int, wrong: set[str]
) -> None:
    for path in (AUDIT, f"{AUDIT}/export") if wrong else (AUDIT,):
        page = administrator.opens(f"{path}?{query}")
        assert (page.status_code, errors(page).keys()) == (status, wrong), path
        assert "<script>" not in page.text


@pytest.mark.heavy
def test_the_trail_continues_a_head_that_was_kept(stack: RunningStack, administrator: Administrator) -> None:
    begun(stack)
    eventually(lambda: "The signature is valid" in administrator.opens(f"{AUDIT}/chain").text)
    page = administrator.opens(f"{AUDIT}/chain")
    kept = re.findall(r"<textarea id=\"head\"[^>]*>([^<]+)</textarea>", page.text)[0]
    begun(stack)
    answer = administrator.sends(page, earlier=kept)
    assert "The trail still begins with everything that this head covers." in " ".join(answer.text.split())
    for forged in ("", "x", kept[:-4] + "AAAA", "<script>"):
        answer = administrator.sends(page, earlier=forged)
        assert (answer.status_code, errors(answer)) == (422, {"earlier": "This head was not signed here."})


@pytest.mark.heavy
def test_the_whole_trail_is_exported_as_it_comes(stack: RunningStack, administrator: Administrator) -> None:
    impersonation_id = begun(stack)
    answer = administrator.opens(f"{AUDIT}/export")
    assert answer.headers["Content-Disposition"] == 'attachment; filename="audit-trail.jsonl"'
    lines = [json.loads(line) for line in answer.content.splitlines()]
    assert impersonation_id in {line.get("subjectTokenId") for line in lines}

"""The custom-claims function in the console: saved, tried, rolled back, and what is wrong with it."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from html import unescape
from urllib.parse import urlsplit

import httpx2 as httpx
import pytest
import redis

from stead import NotFound
from tests.support.administrator import CONSOLE, Administrator, errors, notices
from tests.support.running_stack import RunningStack
from tests.support.waiting import eventually

CLAIMS = f"{CONSOLE}/claims"
KIND = "access-token"
HERE = f"{CLAIMS}/{KIND}"
SCRIPT = """const getCustomJwtClaims = async ({ context, environmentVariables }) =>
  ({ plan: context.user.plan, region: environmentVariables.REGION });
"""
ATTACK = 'const getCustomJwtClaims = async () => ({ html: "</textarea><script>alert(1)</script>" }); // عبد'


@pytest.fixture(scope="module")
def administrator(stack: RunningStack) -> Administrator:
    return Administrator(stack, "all", name="Grace Hopper")


@pytest.fixture(autouse=True)
def without_function(stack: RunningStack) -> Iterator[None]:
    yield
    with contextlib.suppress(NotFound):
        stack.management.custom_claims.delete(KIND)


def text(page: httpx.Response) -> str:
    return " ".join(unescape(re.sub("<[^>]+>", " ", page.text)).split())


def saved(administrator: Administrator, script: str, **values: str) -> int:
    answer = administrator.sends(administrator.opens(HERE), script=script, **values)
    assert answer.status_code == 303, answer.text
    (notice,) = notices(administrator.follows(answer))
    found = re.fullmatch(r"Saved as version (\d+), which new tokens use\. Undo", notice)
    assert found, notice
    return int(found[1])


def test_a_script_is_saved_with_variables_that_are_never_shown(
    stack: RunningStack, administrator: Administrator
) -> None:
    secret = "eu-central-unlike-any-text"
    version = saved(administrator, SCRIPT, replace="yes", environmentVariables=f"REGION={secret}\nEMPTY=")
    active = stack.management.custom_claims.get(KIND)
    assert (active.version, active.script, active.environment_variables) == (version, SCRIPT, ["EMPTY", "REGION"])
    page = administrator.opens(HERE)
    assert secret not in page.text
    assert "<code><bdi>REGION</bdi></code>" in page.text
    again = saved(administrator, SCRIPT, blockIssuanceOnError="yes")
    active = stack.management.custom_claims.get(KIND)
    assert (active.version, active.environment_variables) == (again, ["EMPTY", "REGION"])
    assert active.block_issuance_on_error
    saved(administrator, SCRIPT, replace="yes", environmentVariables="")
    assert stack.management.custom_claims.get(KIND).environment_variables == []


def test_a_changed_script_asks_for_its_variables(stack: RunningStack, administrator: Administrator) -> None:
    version = saved(administrator, SCRIPT, replace="yes", environmentVariables="REGION=eu\nKEY=unlike-any-text")
    changed = SCRIPT + "// changed\n"

    refused = administrator.sends(administrator.opens(HERE), script=changed, blockIssuanceOnError="yes")

    assert refused.status_code == 422
    assert errors(refused) == {
        "environmentVariables": "A changed script could return the stored values, so they are not passed to it: type"
        " the variables that it needs, and check the box above. Stored are "
        "<bdi><bdi>KEY</bdi>, <bdi>REGION</bdi></bdi>."
    }
    assert changed in unescape(refused.text)
    assert stack.management.custom_claims.get(KIND).version == version
    answer = administrator.sends(refused, replace="yes", environmentVariables="REGION=us")
    assert answer.status_code == 303, answer.text
    active = stack.management.custom_claims.get(KIND)
    assert (active.script, active.environment_variables) == (changed, ["REGION"])
    assert active.block_issuance_on_error


def test_a_script_with_other_line_endings_is_not_changed_by_the_page(
    stack: RunningStack, administrator: Administrator
) -> None:
    """A form has one kind of line endings; the script keeps those that it was saved with, and its variables."""
    script = SCRIPT.replace("\n", "\r\n")
    stack.management.custom_claims.save(KIND, script, environment_variables={"REGION": "eu"})

    saved(administrator, SCRIPT, blockIssuanceOnError="yes")

    active = stack.management.custom_claims.get(KIND)
    assert (active.script, active.environment_variables) == (script, ["REGION"])


def test_a_test_shows_the_claims_and_saves_nothing(stack: RunningStack, administrator: Administrator) -> None:
    page = administrator.opens(HERE)
    sample = {
        "contextSample": '{"user": {"plan": "<b>gold</b>"}}',
        "replace": "yes",
        "environmentVariables": "REGION=eu",
    }
    shown = administrator.sends(page, script=SCRIPT, step="test", **sample)
    assert shown.status_code == 200
    assert '{ "plan": "<b>gold</b>", "region": "eu" }' in text(shown)
    assert "<b>gold" not in shown.text
    denied = "const getCustomJwtClaims = async ({ api }) => api.denyAccess('not <i>today</i>');"
    assert "It denies access: not <i>today</i>" in text(administrator.sends(page, script=denied, step="test"))
    dropped = "const getCustomJwtClaims = async () => ({ sub: 'x', plan: 1 });"
    assert "Dropped, because the names are reserved: sub" in text(
        administrator.sends(page, script=dropped, step="test")
    )
    thrown = "const getCustomJwtClaims = async () => {\n  throw new Error('no <i>');\n};"
    failed = administrator.sends(page, script=thrown, step="test")
    assert "Line 2, column" in text(failed)
    assert "no <i>" in text(failed)
    with pytest.raises(NotFound):
        stack.management.custom_claims.get(KIND)


@pytest.mark.heavy
def test_a_variable_may_have_several_lines(administrator: Administrator) -> None:
    script = "const getCustomJwtClaims = async ({ environmentVariables }) => ({ given: environmentVariables });"
    typed = 'KEY="-----BEGIN\nab=c\n"\n\n QUOTED = "a \\"b\\"\\n"\nPLAIN="c" d\nLAST="e"'
    page = administrator.opens(HERE)
    tried = administrator.sends(page, script=script, replace="yes", environmentVariables=typed, step="test")
    (shown,) = re.findall(r'<pre class="card"><code>(.*?)</code>', tried.text, re.DOTALL)
    assert json.loads(unescape(shown))["given"] == {
        "KEY": "-----BEGIN\nab=c\n",
        "QUOTED": 'a "b"\n',
        "PLAIN": '"c" d',
        "LAST": "e",
    }


def test_a_script_that_is_tried_without_variables_is_told_so(administrator: Administrator) -> None:
    lacks = "Here it has no environment variables, because stored ones cannot be read."
    page = administrator.opens(HERE)
    assert lacks not in text(administrator.sends(page, script=SCRIPT, step="dry-run"))  # nor are there any
    saved(administrator, SCRIPT, replace="yes", environmentVariables="REGION=eu-central-unlike-any-text")
    page = administrator.opens(HERE)
    assert lacks not in text(page)
    sample = {"script": SCRIPT, "contextSample": '{"user": {"plan": "gold"}}'}
    without = administrator.sends(page, step="test", **sample)
    assert '{ "plan": "gold" }' in text(without)
    assert lacks in text(without)
    assert lacks in text(administrator.sends(page, step="dry-run", **sample))
    typed = {"replace": "yes", "environmentVariables": "REGION=us"}
    given = administrator.sends(page, step="test", **sample, **typed)
    assert '{ "plan": "gold", "region": "us" }' in text(given)
    assert lacks not in text(given) + text(administrator.sends(page, step="dry-run", **sample, **typed))


@pytest.mark.heavy
def test_an_error_is_marked_in_its_line_and_nothing_is_saved(stack: RunningStack, administrator: Administrator) -> None:
    page = administrator.opens(HERE)
    script = "const getCustomJwtClaims = async () => {\n  return {;\n};\n"
    for step in ("", "test", "dry-run"):
        wrong = administrator.sends(page, script=script, step=step)
        assert wrong.status_code == (200 if step else 422)
        assert "Line 2, column" in text(wrong)
        assert 'data-wrong="2"' in wrong.text
        assert script in unescape(wrong.text)
    assert "getCustomJwtClaims" in text(administrator.sends(page, script="const x = 1;"))
    for field, value in (
        ("contextSample", "[]"),
        ("tokenSample", "{"),
        ("environmentVariables", "no equals sign"),
        ("environmentVariables", "=value"),
        ("environmentVariables", "A=1\nA=2"),
        ("environmentVariables", 'A="1\n2'),
        ("environmentVariables", 'A="\\x"'),
        ("tokenSample", '{"a":' + "[" * 100_000),
    ):
        refused = administrator.sends(page, script=SCRIPT, replace="yes", **{field: value})
        assert (refused.status_code, list(errors(refused))) == (422, [field])
    with pytest.raises(NotFound):
        stack.management.custom_claims.get(KIND)


@pytest.mark.heavy
def test_a_version_is_compared_and_activated_again(stack: RunningStack, administrator: Administrator) -> None:
    first = saved(administrator, SCRIPT)
    second = saved(administrator, ATTACK)
    page = administrator.opens(HERE)
    assert "<script>alert" not in page.text
    version = administrator.opens(f"{HERE}/versions/{first}")
    assert f"What it changes in version {second}" in text(version)
    marks = [line[0] for line in re.findall(r'<span class="(?:added|removed)">(.)', version.text)]
    assert marks == ["-", "+", "+"]
    assert "<script>alert" not in version.text
    back = administrator.follows(administrator.sends(version))
    assert notices(back) == [f"Version {first} is active: new tokens use it. Undo"]
    assert stack.management.custom_claims.get(KIND).version == first
    off = administrator.opens(f"{HERE}/delete")
    assert notices(administrator.follows(administrator.sends(off))) == [
        "Switched off: new tokens have no custom claims. Undo"
    ]
    assert administrator.opens(f"{HERE}/delete").status_code == 404
    for wrong in ("0", "x", "9" * 12, "99999"):
        assert administrator.opens(f"{HERE}/versions/{wrong}").status_code == 404
    assert administrator.opens(f"{CLAIMS}/other").status_code == 404


@pytest.mark.heavy
def test_any_two_versions_are_compared(stack: RunningStack, administrator: Administrator) -> None:
    one, two, three = (
        saved(administrator, f"{SCRIPT}// {line}\n", replace="yes", environmentVariables=f"{line}=1", **blocks)
        for line, blocks in (("ONE", {}), ("TWO", {"blockIssuanceOnError": "yes"}), ("THREE", {}))
    )

    def changes(page: httpx.Response) -> list[str]:
        return re.findall(r'<span class="(?:added|removed)">([^<]*?)\s*</span>', page.text)

    shown = administrator.opens(f"{HERE}/versions/{two}?against={one}")
    assert f"What it changes in version {one} Compare" in text(shown)
    assert changes(shown) == ["- // ONE", "+ // TWO"]
    assert "Environment variables that it adds: TWO" in text(shown)
    assert "Environment variables that it lacks: ONE" in text(shown)
    assert "When the script fails, it issues no token." in text(shown)
    assert re.search(rf'<input id="against"[^>]* max="{three}" required value="{one}">', shown.text)
    assert changes(administrator.opens(f"{HERE}/versions/{one}?against={two}")) == ["- // TWO", "+ // ONE"]
    assert changes(administrator.opens(f"{HERE}/versions/{one}")) == ["- // THREE", "+ // ONE"]
    assert changes(administrator.opens(f"{HERE}/versions/{three}")) == ["- // TWO", "+ // THREE"]
    assert "The scripts are the same." in text(administrator.opens(f"{HERE}/versions/{one}?against={one}"))
    for wrong in ("0", "x", "99999", "9" * 12):
        assert administrator.opens(f"{HERE}/versions/{one}?against={wrong}").status_code == 404
    stack.management.custom_claims.delete(KIND)
    assert "No version is active" in text(administrator.opens(f"{HERE}/versions/{one}"))


def until_recorded(stack: RunningStack) -> None:
    """Exchange tokens until an input is recorded: a replica hears of a recording within a second."""
    user = stack.management.users.create(name="Ada").id

    def is_recorded() -> bool:
        stack.exchange(stack.management.subject_tokens.create(user).token, scope=["openid"])
        return stack.management.custom_claims.recording(KIND).input_count > 0

    eventually(is_recorded)


@pytest.mark.heavy
def test_a_dry_run_compares_recorded_inputs(stack: RunningStack, administrator: Administrator) -> None:
    saved(administrator, "const getCustomJwtClaims = async () => ({ plan: 'old' });")
    page = administrator.opens(HERE)
    started = administrator.follows(administrator.sends(page, f"{HERE}/recording", minutes="5"))
    assert notices(started) == ["Inputs are recorded for 5 minutes."]
    changed = "const getCustomJwtClaims = async () => ({ plan: 'new', more: 1 });"

    until_recorded(stack)
    recording = administrator.opens(HERE)
    assert re.search(r"Inputs are recorded until [-\d]+ [\d:]+ UTC\. \d+ inputs? (is|are) held\.", text(recording))
    assert '<input type="hidden" name="minutes" value="0">' in recording.text
    report = administrator.sends(page, script=changed, step="dry-run")
    assert '{ "more": 1 }' in text(report)
    assert '{ "plan": "new" }' in text(report)
    reserved = "const getCustomJwtClaims = async () => ({ plan: 'old', sub: 'x' });"
    assert "Dropped, because the names are reserved: sub" in text(
        administrator.sends(page, script=reserved, step="dry-run")
    )
    for script, told in (
        ("const getCustomJwtClaims = async ({ api }) => api.denyAccess('no <i>');", "denies access: no <i>"),
        (
            "const getCustomJwtClaims = async () => {\n  throw new Error('no');\n};",
            "fails: exception · line 2 Error: no",
        ),
    ):
        stack.management.custom_claims.save(KIND, script)
        assert f"The active version {told}" in text(administrator.sends(page, script=changed, step="dry-run"))
    reader = Administrator(stack, "read", name="Reader").opens(HERE)
    assert re.search(r"\d inputs are held\.", text(reader))  # their own sign-in added some
    assert "delete the inputs" not in reader.text
    stopped = administrator.follows(administrator.sends(recording, f"{HERE}/recording", minutes="0"))
    assert notices(stopped) == ["Nothing is recorded any more, and the inputs are deleted."]
    assert "Nothing is recorded. " in text(stopped)
    assert "No inputs are recorded." in text(administrator.sends(page, script=changed, step="dry-run"))
    for wrong in ("", "1441", "-1", "soon"):
        refused = administrator.sends(page, f"{HERE}/recording", minutes=wrong)
        assert (refused.status_code, list(errors(refused))) == (400, ["minutes"])


@pytest.mark.heavy
def test_an_earlier_version_is_tried_with_its_own_variables(stack: RunningStack, administrator: Administrator) -> None:
    script = "const getCustomJwtClaims = async ({ environmentVariables }) => ({ region: environmentVariables.REGION });"
    before = saved(administrator, script, replace="yes", environmentVariables="REGION=eu")
    saved(administrator, script, replace="yes", environmentVariables="REGION=us")
    page = administrator.opens(f"{HERE}/versions/{before}")
    assert '{ "region": "eu" }' in text(administrator.sends(page, step="test"))
    stack.management.custom_claims.record(KIND, 5)
    until_recorded(stack)
    assert '{ "region": "eu" }' in text(administrator.sends(page, step="dry-run"))
    stack.management.custom_claims.record(KIND, 0)
    thrown = "const getCustomJwtClaims = async () => {\n  throw new Error('no');\n};"
    failing = saved(administrator, thrown, replace="yes")
    assert "Line 2, column" in text(administrator.sends(administrator.opens(f"{HERE}/versions/{failing}"), step="test"))


@pytest.mark.heavy
def test_what_cannot_be_read_is_not_told_as_nothing(stack: RunningStack, administrator: Administrator) -> None:
    """token-service may not read the failures, and what says whether inputs are recorded is of another type."""
    of_kind = f"identity:default:claims-function:{KIND}"
    others = ("default:[^c]*", "default:c[^l]*", "*:claims-function:client*", f"*:claims-function:{KIND}:[^f]*")
    user = urlsplit(stack.addresses.token_redis_url).username
    with redis.Redis.from_url(stack.addresses.admin_redis_url) as store:
        store.execute_command("ACL", "SETUSER", user, "resetkeys", *(f"~identity:{each}" for each in others))
        store.lpush(f"{of_kind}:recording", "of another type")
        try:
            page = administrator.opens(HERE)
            listed, home = administrator.opens(CLAIMS), administrator.opens(CONSOLE)
        finally:
            store.execute_command("ACL", "SETUSER", user, "resetkeys", "~identity:*")
            store.delete(f"{of_kind}:recording")
    assert page.status_code == 200
    assert "The failures cannot be read at the moment." in text(page)
    assert "Whether inputs are recorded cannot be read at the moment." in text(page)
    assert text(listed).count("cannot be read") == 1
    assert f"Whether the claims function {KIND} fails cannot be read at the moment" in text(home)
    assert "cannot be read at the moment" not in text(administrator.opens(HERE)) + text(administrator.opens(CONSOLE))


@pytest.mark.heavy
def test_the_second_to_save_is_told(stack: RunningStack, administrator: Administrator) -> None:
    saved(administrator, SCRIPT)
    page = administrator.opens(HERE)
    stack.management.custom_claims.update(KIND, script=SCRIPT + "// theirs\n")
    refused = administrator.sends(page, script=SCRIPT + "// mine\n")
    assert refused.status_code == 412
    assert "This was changed after you had opened it" in text(refused)
    assert "// mine" in refused.text
    assert administrator.sends(refused).status_code == 303
    assert stack.management.custom_claims.get(KIND).script == SCRIPT + "// mine\n"


def test_the_second_to_save_the_first_version_is_told(stack: RunningStack, administrator: Administrator) -> None:
    page = administrator.opens(HERE)
    stack.management.custom_claims.save(KIND, SCRIPT + "// theirs\n", block_issuance_on_error=True)
    refused = administrator.sends(page, script=SCRIPT + "// mine\n")
    assert refused.status_code == 412
    assert "This was changed after you had opened it" in text(refused)
    assert "// mine" in refused.text
    assert "// theirs" in refused.text
    assert stack.management.custom_claims.get(KIND).script == SCRIPT + "// theirs\n"
    assert administrator.sends(refused).status_code == 303
    active = stack.management.custom_claims.get(KIND)
    assert (active.script, active.block_issuance_on_error) == (SCRIPT + "// mine\n", True)


def test_who_saves_what_was_switched_off_meanwhile_is_told(stack: RunningStack, administrator: Administrator) -> None:
    saved(administrator, SCRIPT)
    page = administrator.opens(HERE)
    stack.management.custom_claims.delete(KIND)
    refused = administrator.sends(page, script=SCRIPT + "// mine\n")
    assert refused.status_code == 412
    assert "This was changed after you had opened it" in text(refused)
    assert "no version is active" in text(refused)
    assert "// mine" in refused.text
    assert administrator.sends(refused).status_code == 303
    assert stack.management.custom_claims.get(KIND).script == SCRIPT + "// mine\n"


@pytest.mark.heavy
def test_each_change_leads_to_what_undoes_it(stack: RunningStack, administrator: Administrator) -> None:
    """A link to the page of what was active before, where it can be looked at and activated."""

    def undone(answer: httpx.Response) -> httpx.Response:
        (link,) = re.findall(r'<a href="([^"]+)">Undo</a>', administrator.follows(answer).text)
        return administrator.opens(link)

    def active() -> int:
        return stack.management.custom_claims.get(KIND).version

    first = administrator.sends(administrator.opens(HERE), script=SCRIPT)
    off = administrator.sends(undone(first))
    with pytest.raises(NotFound):
        stack.management.custom_claims.get(KIND)
    version = undone(off)
    administrator.sends(version)
    one = active()
    second = administrator.sends(administrator.opens(HERE), script=SCRIPT + "// two\n")
    two, page = active(), undone(second)
    assert (page.url.path, two > one) == (f"{HERE}/versions/{one}", True)
    back = administrator.sends(page)
    assert active() == one
    administrator.sends(undone(back))
    assert active() == two
    unchanged = administrator.follows(administrator.sends(administrator.opens(HERE)))
    assert (notices(unchanged), active()) == (["Nothing was changed."], two)


@pytest.mark.heavy
def test_who_only_reads_sees_scripts_and_no_form(stack: RunningStack, administrator: Administrator) -> None:
    version = saved(administrator, SCRIPT)
    reader = Administrator(stack, "read", name="Reader")
    for path in (CLAIMS, HERE, f"{HERE}/versions/{version}"):
        page = reader.opens(path)
        assert page.status_code == 200
        assert '<button type="submit">' not in page.text
    assert "getCustomJwtClaims" in reader.opens(HERE).text
    assert reader.opens(f"{HERE}/delete").status_code == 403

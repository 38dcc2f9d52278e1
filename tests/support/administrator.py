"""An administrator at a simulated browser without scripts, in front of the console."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from html import unescape
from html.parser import HTMLParser

import httpx2 as httpx
import redis

from tests.support.at_a_browser import PASSWORD, Form, heading
from tests.support.running_stack import RunningStack

CONSOLE = "/console"
ACCOUNT = "/account"
ENDED = (
    "APIs that follow the not-valid feed or introspect refuse earlier tokens within a second;"
    " others accept them until they expire."
)
"""What notices say of tokens after what ends them."""
STALE = (
    "New tokens follow. Earlier ones keep their permissions until they expire, except at APIs that reject stale"
    " permissions."
)
"""What notices say of tokens after a change of permissions."""


class Forms(HTMLParser):
    """The forms of a page, by where they are sent, with the values that a browser has for them.

    Attributes:
        values: Of each field.
        limits: The ``maxlength`` of the fields that have one.
    """

    def __init__(self, page: str) -> None:
        super().__init__()
        self.values: dict[str, dict[str, list[str]]] = {}
        self.limits: dict[str, int] = {}
        self._action = ""
        self._named = ""  # the select or textarea that is being read
        self._text: list[str] | None = None
        self.feed(_line_breaks(page, "\n"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._action = named["action"] if named.get("method") == "post" else ""
            self.values.setdefault(self._action, {})
        elif "disabled" in named:
            return
        elif (
            tag == "input"
            and "name" in named
            and self._action
            and (named.get("type") not in {"checkbox", "radio"} or "checked" in named)
        ):
            value = named.get("value", "")
            if named.get("type") != "hidden":
                value = _line_breaks(value, "")
                if "maxlength" in named:
                    self.limits[named["name"]] = int(named["maxlength"])
            self.values[self._action].setdefault(named["name"], []).append(
                value.strip() if named.get("type") == "email" else value
            )
        elif tag in {"select", "textarea"} and self._action:
            self._named = named["name"]
            self._text = [] if tag == "textarea" else None
        elif tag == "option" and self._action:
            values = self.values[self._action]
            if "selected" in named or self._named not in values:
                values[self._named] = [named["value"]]

    def handle_data(self, data: str) -> None:
        if self._text is not None:
            self._text.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._action = ""
        elif tag == "textarea" and self._text is not None:
            self.values[self._action][self._named] = ["".join(self._text).removeprefix("\n")]
            self._text = None


class AtTheConsole:
    """Somebody at a browser, who signs in with this password where that is asked for."""

    def __init__(
        self, base_url: str, username: str, password: str, transport: httpx.BaseTransport | None = None
    ) -> None:
        self.username = username
        self._password = password
        self.browser = httpx.Client(
            base_url=base_url,
            timeout=30,
            headers={"Origin": base_url},
            transport=transport,
        )

    def opens(self, path: str = CONSOLE) -> httpx.Response:
        """Open a page, signing in where that is asked for."""
        return self.follows(self.browser.get(path))

    def follows(self, answer: httpx.Response) -> httpx.Response:
        """Follow redirects, signing in where that is asked for."""
        signed_in = False
        while True:
            if answer.has_redirect_location:
                answer = self.browser.get(answer.headers["Location"])
            elif answer.url.path == "/sign-in":
                assert not signed_in, answer.text
                signed_in = True
                form = Form(answer.text)
                values = {**form.values, "identifier": self.username, "password": self._password}
                answer = self.browser.post(form.action, data=values)
            else:
                return answer

    def form(self, page: httpx.Response, action: str | None = None) -> tuple[str, dict[str, list[str]]]:
        """Return a form of a page, the one that is sent to its own address unless named: its target and its values."""
        forms = Forms(page.text).values
        target = action or page.url.path
        return target, forms[target]

    def sends(self, page: httpx.Response, action: str | None = None, **values: str | list[str]) -> httpx.Response:
        """Send a form of a page with these values; return the answer, not the page behind a redirect."""
        target, sent = self.form(page, action)
        limits = Forms(page.text).limits
        typed = {name: _pasted(value, limits.get(name)) for name, value in values.items()}
        return self.browser.post(target, data=_encoded({**sent, **typed}))


class Administrator(AtTheConsole):
    """A user with a role whose scopes are those of the Management API, and a browser."""

    def __init__(self, stack: RunningStack, *scopes: str, name: str = "Grace Hopper") -> None:
        super().__init__(stack.base_url, f"administrator_{secrets.token_hex(5)}", PASSWORD)
        self.stack = stack
        management = stack.management
        self.user_id = management.users.create(username=self.username, password=PASSWORD, name=name).id
        stack.recorder.keep(PASSWORD, "password")
        if scopes:
            indicator = stack.credentials.management_api.resource
            resource = next(each for each in management.resources.list() if each.indicator == indicator)
            ids = [scope.id for scope in management.resources.scopes(resource.id) if scope.name in scopes]
            role = management.roles.create(f"Role of {self.username}", "", "User", ids)
            management.users.assign_roles(self.user_id, [role.id])

    def session_expires(self, site: str = "console") -> None:
        """Let the session end as if it had not been used for hours; the browser keeps its cookie."""
        session_id = self.browser.cookies[f"identity-{site}"].partition(".")[0]
        with redis.Redis.from_url(self.stack.addresses.admin_redis_url) as store:
            assert store.delete(f"identity:{self.stack.tenant_id}:{site}-session:{session_id}") == 1

    def signed_in_long_ago(self, seconds: int = 700) -> None:
        """Let the sign-in at the service, and every later one without a password, be that much older."""
        session_id = self.browser.cookies["identity-session"].partition(".")[0]
        key = f"identity:{self.stack.tenant_id}:session:{session_id}"
        with redis.Redis.from_url(self.stack.addresses.admin_redis_url) as store:
            session = json.loads(store.get(key) or b"")
            session["signed_in_at"] -= seconds * 1000
            for factor in session["factors"]:
                factor["at"] -= seconds * 1000
            assert store.set(key, json.dumps(session), keepttl=True)


def _line_breaks(text: str, replacement: str) -> str:
    return re.sub("\r\n|\r|\n", replacement, text)


def _pasted(value: str | list[str], limit: int | None) -> str | list[str]:
    """Return what fits into a field: a browser counts UTF-16 code units, and cuts off the rest."""
    if limit is None or isinstance(value, list):
        return value
    return value.encode("utf-16-le")[: 2 * limit].decode("utf-16-le", "ignore")


def _encoded(values: Mapping[str, str | list[str]]) -> dict[str, list[str]]:
    """Return values with the line breaks that a browser sends."""
    return {
        name: [_line_breaks(each, "\r\n") for each in ([value] if isinstance(value, str) else value)]
        for name, value in values.items()
    }


def notices(page: httpx.Response) -> list[str]:
    """Return what a page says about what was done."""
    found = re.findall(r'<div class="notice[^"]*">(.*?)</div>', page.text, re.DOTALL)
    return [" ".join(unescape(re.sub("<[^>]+>", "", each)).split()) for each in found]


def errors(page: httpx.Response) -> dict[str, str]:
    """Return what a page says beside its fields."""
    found = re.findall(r'<p class="error" id="([^"]+)-text">(.*?)</p>', page.text, re.DOTALL)
    return {name: unescape(text) for name, text in found}


__all__ = ["CONSOLE", "Administrator", "AtTheConsole", "errors", "heading", "notices"]

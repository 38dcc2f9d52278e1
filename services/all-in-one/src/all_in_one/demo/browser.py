"""The part of a browser that signing in needs: cookies, redirects and forms over HTTP."""

from collections.abc import Mapping
from html.parser import HTMLParser
from typing import Final

import httpx2 as httpx

from provision.credentials import DemoUser
from stead import SignInRequired

_MAX_REQUESTS: Final = 10
_TIMEOUT_S: Final = 30


def sign_in_as(user: DemoUser, sign_in_url: str, redirect_uri: str) -> str:
    """Sign a user in at an application's sign-in URL; return the callback URL, with its parameters.

    Fills in name and password, and consents where asked.

    Raises:
        SignInRequired: The pages did not lead back to the application, refuse the password, or ask for a second factor.
    """
    return _follow(sign_in_url, redirect_uri, {"identifier": user.username, "password": user.password})


def sign_in_at_provider(sign_in_url: str, redirect_uri: str) -> str:
    """Follow a sign-in URL that leads to a provider where the person is signed in; return the callback URL.

    Raises:
        SignInRequired: A page asks for more than consent.
    """
    return _follow(sign_in_url, redirect_uri, {})


def _follow(sign_in_url: str, redirect_uri: str, fields: Mapping[str, str]) -> str:
    answerable = {"decision"} | fields.keys()
    is_password_sent = False
    with httpx.Client(timeout=_TIMEOUT_S) as browser:
        answer = browser.get(sign_in_url)
        for _ in range(_MAX_REQUESTS):
            if answer.has_redirect_location:
                location = str(answer.url.join(answer.headers["Location"]))
                if location.startswith(f"{redirect_uri}?"):
                    return location
                answer = browser.get(location)
            elif answer.is_success:
                form = _Form(answer.text)
                if is_password_sent and "password" in form.values:  # each more would count as an attempt
                    raise SignInRequired(
                        "password_refused",
                        "the password is not accepted: it was changed since the credentials were written, "
                        "or a connector signs the user in, who then needs allowsPassword",
                    )
                if not answerable & form.values.keys():
                    raise SignInRequired(
                        "page_shown",
                        "the pages ask for more than the demo can answer, such as a second factor: remove it at "
                        "/account or reset it in the console, let the sign-in policy be optional, and minimumAcr of "
                        "the application null",
                    )
                is_password_sent = "password" in form.values
                values = {name: fields.get(name, value) for name, value in form.values.items()}
                answer = browser.post(answer.url.join(form.action), data=values)
            else:
                break
    raise SignInRequired("not_led_back", f"the sign-in pages ended with status {answer.status_code}")


class _Form(HTMLParser):
    """The first form of a page: its action, and the fields that its first button submits."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.action = ""
        self.values: dict[str, str] = {}
        self._is_inside = False
        self._pressed = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record the form and its fields."""
        given = {name: value or "" for name, value in attrs}
        if tag == "form" and not self.action:
            self.action, self._is_inside = given["action"], True
        elif "form" in given:  # belongs to another form
            return
        elif self._is_inside and "name" in given and (tag == "input" or (tag == "button" and not self._pressed)):
            self._pressed |= tag == "button"
            self.values[given["name"]] = given.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        """Leave the form."""
        self._is_inside &= tag != "form"

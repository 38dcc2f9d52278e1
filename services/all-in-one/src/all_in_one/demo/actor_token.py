"""``python -m all_in_one.demo.actor_token [--directory .local]``: sign the support agent in, print the access token.

It fills in the pages that a browser would show.
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2 as httpx

from all_in_one.demo.browser import sign_in_as
from provision.credentials import Credentials, read_credentials
from provision.seed import redirect_uri
from stead import IdentityClient, IdentityError, OAuthError, SignInRequired


def sign_in_agent(credentials: Credentials) -> tuple[Mapping[str, Any], str]:
    """Sign the agent in to the web application; return the claims of the ID token, and the access token.

    Raises:
        IdentityError: The stack refused, or did not answer.
    """
    application, back = credentials.traditional, redirect_uri(credentials.base_url)
    with IdentityClient(credentials.base_url, application.client_id, application.client_secret) as client:
        claims = client.handle_callback(sign_in_as(credentials.demo.users[0], client.sign_in_url(back), back))
        return claims, client.get_access_token()


def hint_about(error: Exception) -> str:
    """Return what to think of first when the demo does not come through."""
    is_demand = isinstance(error, SignInRequired) or (isinstance(error, OAuthError) and error.requires_sign_in)
    return "the demo signs in with passwords alone" if is_demand else "is `make run` running?"


def main() -> None:
    """Print an actor token."""
    parser = argparse.ArgumentParser(prog="python -m all_in_one.demo.actor_token")
    parser.add_argument("--directory", type=Path, default=Path(".local"))
    directory = parser.parse_args().directory
    credentials = read_credentials(directory)
    if credentials is None:
        sys.exit(
            f"error: there is no {directory}/credentials.json; start the stack first, in another terminal: make run"
        )
    try:
        _, actor_token = sign_in_agent(credentials)
    except (IdentityError, httpx.HTTPError) as error:
        sys.exit(f"error: {credentials.base_url}: {error}; {hint_about(error)}")
    sys.stdout.write(f"{actor_token}\n")


if __name__ == "__main__":
    main()

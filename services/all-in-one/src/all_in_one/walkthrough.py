"""``python -m all_in_one.walkthrough [--directory .local]``: print commands to paste, without secrets on screen."""

import argparse
import sys
from pathlib import Path

from all_in_one.home import shown
from provision.credentials import read_credentials

_FIELD = """python3 -c 'import json, sys; print(json.load(sys.stdin)["{}"])'"""
_CLAIMS = (
    "python3 -c 'import base64, sys;"
    """ print(base64.urlsafe_b64decode(sys.stdin.read().split(".")[1] + "==").decode())'"""
)

_TEXT = """Impersonation in four steps, on {base_url}; paste these lines into another terminal, in this directory.

  . {credentials}

  # 1. The support agent signs in to the application, which gets the actor token; this program fills in the pages.
  ACTOR_TOKEN=$({actor_token})

  # 2. The integrator's backend gets an access token for the Management API, with the scope subject-tokens …
  MANAGEMENT_TOKEN=$(curl -s "$BASE_URL/oidc/token" -u "$BACKEND_CLIENT_ID:$BACKEND_CLIENT_SECRET" \\
    -d grant_type=client_credentials -d "resource=$MANAGEMENT_API_RESOURCE" -d "scope=$BACKEND_SCOPE" |
    {access_token})

  # 3. … and with it a one-time subject token for the customer.
  SUBJECT_TOKEN=$(curl -s "$BASE_URL/api/subject-tokens" -H "Authorization: Bearer $MANAGEMENT_TOKEN" \\
    -H "Content-Type: application/json" \\
    -d "{{\\"userId\\": \\"$DEMO_CUSTOMER_ID\\", \\"context\\": {{\\"ticketId\\": \\"T-1\\"}}}}" |
    {subject_token})

  # 4. The application exchanges both for an access token that speaks for the customer and names the agent in act …
  ACCESS_TOKEN=$(curl -s "$BASE_URL/oidc/token" -u "$TRADITIONAL_CLIENT_ID:$TRADITIONAL_CLIENT_SECRET" \\
    -d grant_type=urn:ietf:params:oauth:grant-type:token-exchange \\
    -d "subject_token=$SUBJECT_TOKEN" -d subject_token_type=urn:ietf:params:oauth:token-type:access_token \\
    -d "actor_token=$ACTOR_TOKEN" -d actor_token_type=urn:ietf:params:oauth:token-type:access_token \\
    -d "resource=$DEMO_RESOURCE" --data-urlencode "scope=$DEMO_SCOPES" |
    {access_token})

  # … as its claims say.
  echo "$ACCESS_TOKEN" |
    {claims} |
    python3 -m json.tool

The same through the SDK, with a sign-in and the organization template: make demo
In a browser, as a support agent: make example
"""


def walkthrough(base_url: str, directory: Path, python: Path) -> str:
    """Return the text, with paths relative to the current directory if they are below it.

    Args:
        base_url: The address of the stack.
        directory: Contains the credentials.
        python: Runs the program that signs the agent in.
    """
    file = directory / "credentials.env"
    path = shown(file)
    elsewhere = "" if directory == Path.cwd() / ".local" else f" --directory '{shown(directory)}'"
    return _TEXT.format(
        base_url=base_url,
        credentials=f"'{path}'" if Path(path).is_absolute() else f"./{path}",
        actor_token=f"{shown(python)} -m all_in_one.demo.actor_token{elsewhere}",
        access_token=_FIELD.format("access_token"),
        subject_token=_FIELD.format("subjectToken"),
        claims=_CLAIMS,
    )


def main() -> None:
    """Print the walk-through of the stack that ``make run`` started."""
    parser = argparse.ArgumentParser(prog="python -m all_in_one.walkthrough")
    parser.add_argument("--directory", type=Path, default=Path(".local"))
    directory = parser.parse_args().directory.absolute()
    credentials = read_credentials(directory)
    if credentials is None:
        missing = shown(directory / "credentials.json")
        sys.exit(f"error: there is no {missing}; start the stack first, in another terminal: make run")
    sys.stdout.write(walkthrough(credentials.base_url, directory, Path(sys.executable)))


if __name__ == "__main__":
    main()

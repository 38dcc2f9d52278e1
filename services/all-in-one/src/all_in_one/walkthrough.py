"""``python -m all_in_one.walkthrough [--directory .local]``: print commands to paste, without secrets on screen."""

import argparse
import sys
from pathlib import Path

from all_in_one.home import shown
from provision.credentials import read_credentials

_FIELD = """python3 -c 'import json, sys; print(json.load(sys.stdin)["{}"])'"""

_TEXT = """Impersonation in three steps, on {base_url}; paste these lines into another terminal, in this directory.

  . {credentials}

  # 1. The integrator's backend gets an access token for the Management API …
  MANAGEMENT_TOKEN=$(curl -s "$BASE_URL/oidc/token" -u "$MANAGEMENT_API_CLIENT_ID:$MANAGEMENT_API_CLIENT_SECRET" \\
    -d grant_type=client_credentials -d "resource=$MANAGEMENT_API_RESOURCE" -d "scope=$MANAGEMENT_API_SCOPE" |
    {access_token})

  # 2. … and with it a one-time subject token for the customer.
  SUBJECT_TOKEN=$(curl -s "$BASE_URL/api/subject-tokens" -H "Authorization: Bearer $MANAGEMENT_TOKEN" \\
    -H "Content-Type: application/json" \\
    -d "{{\\"userId\\": \\"$DEMO_CUSTOMER_ID\\", \\"context\\": {{\\"ticketId\\": \\"T-1\\"}}}}" |
    {subject_token})

  # 3. The application exchanges it for an access token that speaks for the customer.
  curl -s "$BASE_URL/oidc/token" -u "$TRADITIONAL_CLIENT_ID:$TRADITIONAL_CLIENT_SECRET" \\
    -d grant_type=urn:ietf:params:oauth:grant-type:token-exchange \\
    -d "subject_token=$SUBJECT_TOKEN" -d subject_token_type=urn:ietf:params:oauth:token-type:access_token \\
    -d "resource=$DEMO_RESOURCE" --data-urlencode "scope=$DEMO_SCOPES" | python3 -m json.tool

The same through the SDK, with a sign-in and the organization template: make demo
In a browser, as a support agent: make example
"""


def walkthrough(base_url: str, directory: Path) -> str:
    """Return the text, with the path of the credentials file relative to the current directory if it is below."""
    file = directory / "credentials.env"
    path = shown(file)
    return _TEXT.format(
        base_url=base_url,
        credentials=f"'{path}'" if Path(path).is_absolute() else f"./{path}",
        access_token=_FIELD.format("access_token"),
        subject_token=_FIELD.format("subjectToken"),
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
    sys.stdout.write(walkthrough(credentials.base_url, directory))


if __name__ == "__main__":
    main()

"""The walk-through that ``make run`` prints when the stack is ready: commands to paste, without secrets on screen."""

from pathlib import Path

_FIELD = """python3 -c 'import json, sys; print(json.load(sys.stdin)["{}"])'"""

_TEXT = """
Stead is ready: {base_url}

Impersonation in three steps; paste these lines into another terminal, in this directory.

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
Ctrl-C stops everything; the data stays in {directory}.
"""


def walkthrough(base_url: str, directory: Path) -> str:
    """Return the text, with the path of the credentials file relative to the current directory if it is below."""
    file = directory / "credentials.env"
    if file.is_relative_to(Path.cwd()):
        file = file.relative_to(Path.cwd())
        shown = f"./{file}"
    else:
        shown = f"'{file}'"
    return _TEXT.format(
        base_url=base_url,
        credentials=shown,
        access_token=_FIELD.format("access_token"),
        subject_token=_FIELD.format("subjectToken"),
        directory=file.parent,
    )

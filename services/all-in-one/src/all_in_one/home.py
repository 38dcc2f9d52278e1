"""The lines that ``make run`` prints when it is ready, and the page at ``/``."""

import base64
import hashlib
from html import escape
from pathlib import Path

_LINES = """\
Stead is ready: {base_url}
  credentials   {directory}/credentials.json, {directory}/credentials.env (readable by you alone)
  console       {base_url}/console (as administrator; the password is in these files)
  mail          {base_url}/mail (kept here unless SMTP_URL is set)
  try it        make walkthrough (curl), make demo (the SDK), make example (a support desk)
  log           {directory}/log/services.log
  stop          Ctrl-C; the data stays in {directory}
"""

_STYLE = """
:root { color-scheme: light dark }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 42rem; margin: 3rem auto; padding: 0 1rem }
dt { font-weight: 600; margin-top: 1rem }
dd { margin: 0 }
code { overflow-wrap: anywhere }
a { color: inherit }
"""

_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Stead</title>
<style>{style}</style>
</head>
<body>
<main>
<h1>Stead is running</h1>
<p>Identity and access control: sign-in, tokens, impersonation by token exchange, organizations and their members. Four
services answer at this address, <code>{base_url}</code>.</p>
<dl>
<dt>Credentials</dt>
<dd><code>{directory}/credentials.json</code> and <code>{directory}/credentials.env</code>, readable only by the user
who started this.</dd>
<dt>Console</dt>
<dd><a href="/console">For administrators</a>; the password of <code>administrator</code> is in these files.</dd>
<dt>Account</dt>
<dd><a href="/account">For everyone</a> who can sign in, such as <code>customer</code>.</dd>
<dt>Try it</dt>
<dd><code>make walkthrough</code> prints impersonation in four steps with curl; <code>make demo</code> goes through it
with the Python SDK.</dd>
<dt>Support desk</dt>
<dd><code>make example</code> starts an application where an agent signs in and acts as a customer.</dd>
<dt>API</dt>
<dd><a href="/api/reference">Reference</a>, <a href="/api/swagger.json">OpenAPI document</a></dd>
<dt>Mail</dt>
<dd><a href="/mail">Kept here</a> instead of being sent, unless <code>SMTP_URL</code> is set;
for this machine alone.</dd>
<dt>Sign-in</dt>
<dd><a href="/oidc/.well-known/openid-configuration">OpenID Connect discovery</a></dd>
<dt>Operation</dt>
<dd><a href="/health/ready">Health</a>, <a href="/metrics">metrics</a></dd>
</dl>
</main>
</body>
</html>
"""


def shown(path: Path) -> str:
    """Return a path relative to the current directory if it is below it, else as it is."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def announcement(base_url: str, directory: Path) -> str:
    """Return the lines to print when the services are ready."""
    return _LINES.format(base_url=base_url, directory=shown(directory))


def home_page(base_url: str, directory: Path) -> bytes:
    """Return the page at ``/``, which contains no secret."""
    values = {"base_url": base_url, "directory": shown(directory)}
    return _PAGE.format(style=_STYLE, **{name: escape(value) for name, value in values.items()}).encode()


_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

HOME_HEADERS = {
    "content-type": "text/html; charset=utf-8",
    "content-security-policy": (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none';"
        " frame-ancestors 'none'"
    ),
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
"""Headers of the page, which has no scripts, frames, forms or resources of other origins."""

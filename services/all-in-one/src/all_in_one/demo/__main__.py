"""``python -m all_in_one.demo [--directory .local]``: four acts on the stack that ``make run`` started."""

import argparse
import asyncio
import sys
from pathlib import Path

import httpx2 as httpx

from all_in_one.demo.actor_token import hint_about
from all_in_one.demo.impersonation import impersonation
from all_in_one.demo.live_rejection import live_rejection
from all_in_one.demo.organization_template import organization_template
from all_in_one.demo.provider_sign_in import provider_sign_in
from provision.credentials import read_credentials
from stead import IdentityError
from stead.audit import InvalidHead


def main() -> int:
    """Run the demo; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m all_in_one.demo")
    parser.add_argument("--directory", type=Path, default=Path(".local"))
    directory = parser.parse_args().directory
    try:
        credentials = read_credentials(directory)
    except OSError as error:
        return _error(f"{directory}/credentials.json: {error.strerror}")
    if credentials is None:
        return _error(f"there is no {directory}/credentials.json; start the stack first, in another terminal: make run")
    try:
        impersonation(credentials)
        asyncio.run(organization_template(credentials))
        live_rejection(credentials)
        provider_sign_in(credentials)
    except (IdentityError, InvalidHead, httpx.HTTPError) as error:
        return _error(f"{credentials.base_url}: {error}; {hint_about(error)}")
    except KeyboardInterrupt:
        return 130
    return 0


def _error(text: str) -> int:
    print(f"error: {text}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())

"""``python -m management_service serve | migrate | bootstrap | republish | restored | reset-factors | …``."""

import sys

import msgspec

from identity_common.serving import run_service
from management_service.app import migrate
from management_service.commands import bootstrap, canonicalize_phones, republish, reset_factors, restored
from management_service.settings import Settings


def _print_credentials(settings: Settings) -> None:
    credentials = bootstrap(settings)
    if settings.bootstrap_secret_name:
        print(f"the credentials are in the Secret {settings.bootstrap_secret_name}")
        if settings.bootstrap_administrator_secret_name:
            print(f"those of the first administrator are in the Secret {settings.bootstrap_administrator_secret_name}")
    elif settings.bootstrap_file:
        print(f"the credentials are in {settings.bootstrap_file}")
    else:
        print(msgspec.json.encode(credentials).decode())


def _print_code(settings: Settings, *, user: str, reason: str) -> None:
    code = reset_factors(settings, user=user, reason=reason)
    print("the factors are removed, and the sessions have ended")
    if code is not None:
        print(f"code to set up a first factor, within a day: {code}")


sys.exit(
    run_service(
        "management_service",
        settings=Settings,
        commands={
            "migrate": ("upgrade the database to the newest revision", migrate),
            "bootstrap": (
                "create the first client of the Management API and print a new secret, or store it",
                _print_credentials,
            ),
            "republish": ("have the running service publish the whole state again", republish),
            "restored": ("make a database that was restored to an earlier point safe to start with", restored),
            "reset-factors": ("remove all factors of a user who has lost them, and end its sessions", _print_code),
            "canonicalize-phones": (
                "compare phone numbers of earlier releases whatever their notation, and list those of two users",
                canonicalize_phones,
            ),
        },
        options={
            "reset-factors": {
                "user": "id, user name, e-mail address or telephone number",
                "reason": "for the audit trail",
            }
        },
    )
)

"""``python -m management_service serve | migrate | bootstrap | republish | restored | canonicalize-phones``."""

import sys

import msgspec

from identity_common.serving import run_service
from management_service.app import migrate
from management_service.commands import bootstrap, canonicalize_phones, republish, restored
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
            "canonicalize-phones": (
                "compare phone numbers of earlier releases whatever their notation, and list those of two users",
                canonicalize_phones,
            ),
        },
    )
)

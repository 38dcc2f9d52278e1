"""``python -m management_service serve | migrate | bootstrap | republish``."""

import sys

import msgspec

from identity_common.serving import run_service
from management_service.app import bootstrap, migrate, republish
from management_service.settings import Settings


def _print_credentials(settings: Settings) -> None:
    print(msgspec.json.encode(bootstrap(settings)).decode())


sys.exit(
    run_service(
        "management_service",
        settings=Settings,
        commands={
            "migrate": ("bring the database to the newest revision", migrate),
            "bootstrap": (
                "make the first client of the Management API and print a new secret, once",
                _print_credentials,
            ),
            "republish": ("send the whole state to the bus again, through the running service", republish),
        },
    )
)

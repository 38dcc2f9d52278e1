"""``python -m token_service serve | migrate | restored``."""

import sys

from identity_common.serving import run_service
from token_service.app import migrate, restored
from token_service.settings import Settings

if __name__ == "__main__":
    sys.exit(
        run_service(
            "token_service",
            settings=Settings,
            commands={
                "migrate": ("bring the database to the newest revision", migrate),
                "restored": ("make a database that was restored to an earlier point safe to start with", restored),
            },
        )
    )

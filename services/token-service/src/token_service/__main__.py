"""``python -m token_service serve | migrate``."""

import sys

from identity_common.serving import run_service
from token_service.app import migrate
from token_service.settings import Settings

if __name__ == "__main__":
    sys.exit(
        run_service(
            "token_service",
            settings=Settings,
            commands={"migrate": ("bring the database to the newest revision", migrate)},
        )
    )

"""``python -m template_service serve | migrate | republish | restored``."""

import sys

from identity_common.serving import run_service
from template_service.app import migrate, republish, restored
from template_service.settings import Settings

sys.exit(
    run_service(
        "template_service",
        settings=Settings,
        commands={
            "migrate": ("migrate the database to the latest revision", migrate),
            "republish": ("publish the whole state to the bus again, through the running service", republish),
            "restored": ("make a database that was restored to an earlier point safe to start with", restored),
        },
    )
)

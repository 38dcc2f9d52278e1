"""``python -m console serve``."""

import sys

from console.settings import Settings
from identity_common.serving import run_service

sys.exit(run_service("console", settings=Settings, commands={}))

"""The ASGI app for a server process; the only module that reads settings from the environment."""

import os

from console.app import create_app
from console.settings import Settings
from identity_common.telemetry.logs import configure_logs, log_start
from identity_common.telemetry.tracing import start_tracing

configure_logs(service="console")
log_start()
start_tracing(os.environ, service="console")
app = create_app(Settings.from_environment(os.environ))

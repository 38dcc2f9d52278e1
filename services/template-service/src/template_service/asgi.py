"""The ASGI app for a server process; the only module that reads the settings from the environment."""

import os

from identity_common.telemetry.logs import configure_logs, log_start
from identity_common.telemetry.tracing import start_tracing
from template_service.app import create_app
from template_service.settings import Settings

configure_logs(service="template-service")
log_start()
start_tracing(os.environ, service="template-service")
app = create_app(Settings.from_environment(os.environ))

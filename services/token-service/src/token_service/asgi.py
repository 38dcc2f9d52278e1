"""The app that an ASGI server loads; reads the settings from the environment, once."""

import os

from identity_common.telemetry.logs import configure_logs, log_start
from identity_common.telemetry.tracing import start_tracing
from token_service.app import create_app
from token_service.settings import Settings

configure_logs(service="token-service")
log_start()
start_tracing(os.environ, service="token-service")
app = create_app(Settings.from_environment(os.environ))

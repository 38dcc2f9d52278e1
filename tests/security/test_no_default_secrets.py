"""No service has a default secret or address (GHSA-r9w3-57w2-gch2)."""

from __future__ import annotations

from typing import Any

import pytest

import console.settings
import management_service.settings
import template_service.settings
import token_service.settings
from identity_common.settings import InvalidSettingsError

SHARED = {"BASE_URL", "DATABASE_URL", "NATS_URL", "REDIS_URL"}


@pytest.mark.parametrize(
    ("settings", "required"),
    [
        (management_service.settings.Settings, SHARED | {"ENVIRONMENT_VARIABLE_KEYS", "AUDIT_HEAD_KEYS", "MAIL_KEYS"}),
        (template_service.settings.Settings, SHARED | {"MAIL_KEYS"}),
        (token_service.settings.Settings, SHARED | {"KEY_ENCRYPTION_KEYS", "ENVIRONMENT_VARIABLE_KEYS"}),
        (console.settings.Settings, {"BASE_URL", "REDIS_URL", "COOKIE_KEYS"}),
    ],
    ids=["management", "template", "token", "console"],
)
def test_a_service_without_its_secrets_does_not_start(settings: Any, required: set[str]) -> None:
    with pytest.raises(InvalidSettingsError) as refused:
        settings.from_environment({})

    assert set(str(refused.value).splitlines()) == {f"{name}: must be set" for name in required}

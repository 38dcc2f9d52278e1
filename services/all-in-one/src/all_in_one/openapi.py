"""``python -m all_in_one.openapi``: write the OpenAPI document of the three services together.

management-service serves it at ``/api/swagger.json`` from a separate file, because it cannot import the other services.
"""

import base64
from typing import Any

import msgspec

import management_service.app
import management_service.settings
import template_service.app
import template_service.settings
import token_service.app
import token_service.settings
from identity_common.http.openapi.document import document, merged


def whole_document() -> bytes:
    """Return the content of the file; connects to nothing."""
    addresses: dict[str, Any] = {
        "base_url": "https://identity.example.com",
        "environment": "development",
        "database_url": "postgresql+asyncpg://service@127.0.0.1/service",
        "nats_url": "nats://127.0.0.1",
        "redis_url": "redis://127.0.0.1",
    }
    keys, head_keys, mail_keys = ((base64.b64encode(bytes([number] * 32)).decode(),) for number in range(3))
    variable_keys: dict[str, Any] = {"environment_variable_keys": keys}
    apps = (
        management_service.app.create_app(
            management_service.settings.Settings(
                **addresses, **variable_keys, audit_head_keys=head_keys, mail_keys=mail_keys
            )
        ),
        template_service.app.create_app(template_service.settings.Settings(**addresses, mail_keys=mail_keys)),
        token_service.app.create_app(
            token_service.settings.Settings(**addresses, **variable_keys, key_encryption_keys=keys)
        ),
    )
    documents = [document(app, title="Stead", base_url=addresses["base_url"]) for app in apps]
    whole = merged(documents, title="Stead")
    return msgspec.json.format(msgspec.json.encode(whole), indent=1) + b"\n"


if __name__ == "__main__":
    management_service.app.SWAGGER.write_bytes(whole_document())

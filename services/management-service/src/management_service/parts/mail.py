"""Sending mail."""

from pathlib import Path
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, Counter

from identity_common.bus.connection import Bus
from identity_common.mail_addresses import sender_of
from identity_common.sealing import SealingKeys
from identity_common.smtp_address import SmtpAddress
from identity_common.stores.redis import RedisCommands
from identity_common.stores.source_limit import SourceLimit
from identity_common.telemetry.metrics import counter
from management_service.links.rules import RECOVERY_S, REQUESTED_MAILS
from management_service.mail.sender import MailSender
from management_service.mail.smtp import SmtpServer
from management_service.mail.texts import Look, MailTexts
from management_service.mail.transports import Folder, Nowhere, Transport
from management_service.settings import Settings


def mail_sender(settings: Settings, bus: Bus, registry: CollectorRegistry) -> MailSender:
    """Return the worker that sends mail."""
    return MailSender(
        bus,
        settings.database_url,
        _transport(settings),
        keys=SealingKeys(settings.mail_keys),
        texts=MailTexts(base_url=settings.base_url, language=settings.mail_language),
        sender=sender_of(settings.mail_from or f"{settings.mail_name} <stead@localhost>"),
        look=Look(settings.mail_name, settings.mail_color),
        tenant_id=settings.tenant_id,
        timeout_s=settings.smtp_timeout_s,
        sent=counter(registry, "mail_sent", "Mails that the mail server has accepted.", "kind"),
        failed=counter(registry, "mail_failed", "Mails that were given up: see /api/mail/failures.", "reason"),
    )


def mail_limit(commands: RedisCommands, *, tenant_id: str, throttled: Counter) -> SourceLimit:
    """Return the limit of mails that people request, by recipient, for each kind of mail."""
    return SourceLimit(
        commands,
        "mails",
        tenant_id=tenant_id,
        window_s=RECOVERY_S,
        limit=REQUESTED_MAILS,
        throttled=throttled,
        by="recipient",
    )


def mail_folder(settings: Settings) -> Folder | None:
    """Return the folder that keeps mail; None if mail is sent, or off."""
    return Folder(Path(settings.mail_folder)) if settings.mail_folder and not settings.smtp_url else None


def _transport(settings: Settings) -> Transport:
    if settings.smtp_url:
        return SmtpServer(
            SmtpAddress.parse(settings.smtp_url),
            local_hostname=urlsplit(settings.base_url).hostname or "localhost",
            requires_tls=settings.smtp_require_tls,
            timeout_s=settings.smtp_timeout_s,
        )
    return mail_folder(settings) or Nowhere()

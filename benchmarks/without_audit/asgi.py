"""token-service whose takes and token requests record no entry; everything else is the service itself."""
# ruff: noqa: SLF001 - replaces private names

from typing import Final

from identity_common.stores.audit_streams import LUA_APPEND
from identity_common.stores.redis import Script
from identity_common.wire.audit import AuditEntry
from token_service.audit import TokenAudit
from token_service.audit.token_requests import LOG, TAKEN
from token_service.presented_tokens import subject_token_taker, taking_script

_ENTRY: Final = AuditEntry(id="", occurred_at=0, tenant_id="", log=LOG, key=TAKEN)
_NOTHING: Final = "local function append() end"

_script: Final = Script(taking_script.SCRIPT.text.replace(LUA_APPEND, _NOTHING))
subject_token_taker.SCRIPT = _script  # type: ignore[attr-defined]
subject_token_taker.encode_entry = lambda _: b""  # type: ignore[assignment,attr-defined]
TokenAudit.attempt = lambda *_: _ENTRY  # type: ignore[method-assign]
TokenAudit._append = lambda *_: None  # type: ignore[method-assign]

if _NOTHING not in _script.text:
    raise RuntimeError("the script of the take has no append that this benchmark could replace")

from token_service.asgi import app  # noqa: E402 - the service, as changed above

__all__ = ["app"]

"""Authorization codes: in Redis, under the hash of the code and of the client that alone may redeem it.

Using a code is one script, which is never retried: it reads the record and marks it as used. A second use finds the
mark, which names the authorization to end. The only other read returns what the use must wait for.
"""

import hashlib
from collections.abc import Mapping
from typing import Final

import msgspec

from identity_common.failures import StoreUnavailable
from identity_common.identifiers import new_secret
from identity_common.stores.redis import RedisCommands
from identity_common.telemetry.logs import get_logger
from token_service.authorizations.consented import Authorization

_log = get_logger(__name__)

CODE_TTL_S: Final = 60
MARK_TTL_S: Final = 3600
"""For how long, in seconds, a second use of a code is detected."""

_PREFIX: Final = "cod_"
"""The prefix of every code, so that no other kind of token can be mistaken for one."""

_UNUSED: Final = b"+"

# The first character of a record says whether it was used.
_USE: Final = """
local record = redis.call('GET', KEYS[1])
if record and string.sub(record, 1, 1) == '+' then
    redis.call('SET', KEYS[1], '-' .. string.sub(record, 2), 'EX', ARGV[1])
end
return record
"""


class Code(msgspec.Struct, frozen=True, kw_only=True, tag="code.v1"):
    """The record of a code.

    Attributes:
        authorization: Already stored; the redemption issues its tokens.
        redirect_uri: Where the code was sent; the token request must name the same.
        code_challenge: The PKCE challenge, method S256; None if the client need not use PKCE and did not.
        nonce: For the ID token.
        revision: Management's revision at the sign-in: the redemption waits for it, so that it does not read older
            records.
        template_revision: Template's revision that includes the memberships that came with a sign-in at a provider.
    """

    authorization: Authorization
    redirect_uri: str
    code_challenge: str | None
    nonce: str | None = None
    revision: int = 0
    template_revision: int = 0


class UsedCode(msgspec.Struct, frozen=True):
    """A code that has just been used.

    Attributes:
        code: Its record.
        is_first_use: Whether this is its first use.
    """

    code: Code
    is_first_use: bool


_encode: Final = msgspec.json.Encoder(order="sorted").encode
_decode: Final = msgspec.json.Decoder(Code).decode


class Codes:
    """The codes of one tenant."""

    def __init__(self, commands: RedisCommands, *, tenant_id: str) -> None:
        self._commands = commands
        self._tenant_id = tenant_id

    async def issue(self, code: Code) -> str:
        """Store a record; return its code, which is valid for a minute."""
        secret = _PREFIX + new_secret()
        key = self._key(secret, code.authorization.application_id)
        await self._execute("SET", key, _UNUSED + _encode(code), "EX", CODE_TTL_S, "NX")
        return secret

    async def revisions_of(self, code: str, *, application_id: str) -> Mapping[str, int]:
        """Return the revisions at the sign-in of a code, which stays unused; management's is 0 if it is unknown."""
        record = await self._execute("GET", self._key(code, application_id))
        if record is None or (found := _read(record)) is None:
            return {"management": 0}
        of_template = {"template": found.template_revision} if found.template_revision else {}
        return {"management": found.revision, **of_template}

    async def use(self, code: str, *, application_id: str) -> UsedCode | None:
        """Use a code; return none if it is unknown, expired or another client's.

        Another client's code is not spent, so that a stolen code cannot be used to end its owner's authorization.

        Raises:
            StoreUnavailable: Redis does not answer: the code may or may not be used.
        """
        if not code.startswith(_PREFIX):
            return None
        record = await self._execute("EVAL", _USE, 1, self._key(code, application_id), MARK_TTL_S)
        if record is None or (found := _read(record)) is None:
            return None
        return UsedCode(found, record[:1] == _UNUSED)

    async def _execute(self, *command: str | bytes | int) -> bytes | None:
        try:
            answer: bytes | None = await self._commands.execute(*command)
        except StoreUnavailable as error:
            raise error.explained("codes cannot be read right now") from None
        return answer

    def _key(self, code: str, application_id: str) -> str:
        return f"identity:{self._tenant_id}:code:{hashlib.sha256(f'{application_id} {code}'.encode()).hexdigest()}"


def _read(record: bytes) -> Code | None:
    try:
        return _decode(record[1:])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        _log.error("code.unreadable", error=type(error).__name__)
        return None

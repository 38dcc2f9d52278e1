"""Which sessions and authorizations that came through a connector are meant. Pure."""

import msgspec


class Through(msgspec.Struct, frozen=True, kw_only=True):
    """Those that came through a connector.

    Attributes:
        before: Only those whose user signed in before, milliseconds since the epoch.
        user_id: Only those of this user.
        provider_session_id: Only those of this session at the provider.
    """

    connector_id: str
    before: int | None = None
    user_id: str | None = None
    provider_session_id: str | None = None

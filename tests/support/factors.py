"""Factors of users: set up and verified as token-service does it, over the bus."""

from __future__ import annotations

import time
from base64 import urlsafe_b64decode
from typing import Any

import asyncpg
import pyotp
from nats.aio.client import Client

from identity_common.authentication import Authentication, FactorMethod, UsedFactor
from identity_common.identifiers import new_id
from identity_common.sealing import SealingKeys
from identity_common.wire.factors import (
    AddAuthenticator,
    AddPasskey,
    Answer,
    ArmedFactors,
    AuthenticatorBegun,
    BeginAuthenticator,
    BeginPasskey,
    FactorAdded,
    FactorRequests,
    PasskeyBegun,
    Question,
    ReadFactors,
    VerifyCode,
    VerifyPasskey,
)
from tests.support.authenticator import Authenticator, new_challenge
from tests.support.mailed_links import Pages, mails_of
from tests.support.management_api import Management
from tests.support.running_stack import RunningStack


def signed_in(*methods: FactorMethod, ago_s: float = 0) -> Authentication:
    """Return a sign-in with some factors, the last of them so long ago."""
    now = int((time.time() - ago_s) * 1000)
    return Authentication(tuple(UsedFactor(method, now) for method in methods or ("password",)))


class FactorPages:
    """Sends the same requests as token-service."""

    def __init__(self, management: Management, client: Client) -> None:
        self.management = management
        self.links = Pages(management, client)
        self._client = client
        self._requests = FactorRequests(
            SealingKeys(management.settings.environment_variable_keys), tenant_id=management.tenant_id
        )

    async def ask(self, question: Question) -> Answer:
        sealed = self._requests.seal_question(question)
        reply = await self._client.request(self._requests.subject, sealed, timeout=20)
        return self._requests.open_answer(reply.data, sealed_question=sealed)

    async def user(self, **members: Any) -> dict[str, Any]:
        """Create a user with a password and a verified e-mail address."""
        return await self.links.user(**{"isEmailVerified": True, **members})

    async def read(self, user_id: str) -> ArmedFactors:
        armed = await self.ask(ReadFactors(user_id=user_id))
        assert isinstance(armed, ArmedFactors)
        return armed

    async def mailed_code(self, user: dict[str, Any]) -> str:
        """Return the enrolment code in the last mail to a user."""
        mails = await mails_of(self.management.settings)
        return [each for each in mails if each.user_id == user["id"]][-1].values["code"]

    async def open_enrolment(self, user: dict[str, Any], *, expires_in_s: float = 900) -> None:
        """Let a user set up a first factor without a code, as a mailed link does."""
        await self.management.database.execute(
            """INSERT INTO factor_enrolments (tenant_id, user_id, origin, attempts, expires_at)
            VALUES ($1, $2, 'link', 0, $3)""",
            self.management.tenant_id,
            user["id"],
            int((time.time() + expires_in_s) * 1000),
        )

    async def begun(self, user: dict[str, Any]) -> AuthenticatorBegun:
        begun = await self.ask(BeginAuthenticator(user_id=user["id"]))
        assert isinstance(begun, AuthenticatorBegun)
        return begun

    async def add(self, user: dict[str, Any], sign_in: Authentication | None = None, **members: Any) -> Answer:
        """Ask to store a new authenticator app, with the code that it shows."""
        begun = await self.begun(user)
        members = {"sealed": begun.sealed, "current": AuthenticatorApp(begun.secret).code(), **members}
        return await self.ask(AddAuthenticator(user_id=user["id"], signed_in=sign_in or signed_in(), **members))

    async def authenticator(self, user: dict[str, Any]) -> tuple[AuthenticatorApp, FactorAdded]:
        """Set up an authenticator app as a user's first factor."""
        await self.open_enrolment(user)
        begun = await self.begun(user)
        app = AuthenticatorApp(begun.secret)
        added = await self.ask(
            AddAuthenticator(user_id=user["id"], sealed=begun.sealed, current=app.code(), signed_in=signed_in())
        )
        assert isinstance(added, FactorAdded)
        await self.forget_steps(user)
        return app, added

    async def forget_steps(self, user: dict[str, Any]) -> None:
        """Let codes be used again whose time steps were used: a test does not wait for the next one."""
        await self.management.database.execute(
            "UPDATE authenticators SET last_step = 0 WHERE tenant_id = $1 AND user_id = $2",
            self.management.tenant_id,
            user["id"],
        )

    async def verify(self, user: dict[str, Any], code: str, **members: Any) -> Answer:
        return await self.ask(VerifyCode(user_id=user["id"], code=code, **members))

    def new_passkey(self, **members: Any) -> Authenticator:
        """Return an authenticator for the pages of this tenant."""
        return Authenticator(origin=self.management.settings.base_url, **members)

    async def add_passkey(
        self,
        user: dict[str, Any],
        authenticator: Authenticator,
        *,
        first: bool = False,
        sign_in: Authentication | None = None,
        name: str = "",
    ) -> Answer:
        """Create a passkey; the first one with the leave that a mailed link gives."""
        if first:
            await self.open_enrolment(user)
        begun = await self.ask(BeginPasskey(user_id=user["id"]))
        assert isinstance(begun, PasskeyBegun)
        challenge = new_challenge()
        handle = urlsafe_b64decode(begun.user_handle + "=")
        return await self.ask(
            AddPasskey(
                user_id=user["id"],
                challenge=challenge,
                credential=authenticator.create(challenge, user_handle=handle),
                signed_in=sign_in or signed_in("password" if first else "passkey"),
                name=name,
            )
        )

    async def passkey_owner(self, **authenticator: Any) -> tuple[dict[str, Any], Authenticator]:
        """Create a user with a passkey."""
        user, made = await self.user(), self.new_passkey(**authenticator)
        assert isinstance(await self.add_passkey(user, made, first=True), FactorAdded)
        return user, made

    async def use_passkey(self, authenticator: Authenticator, *, user_id: str | None = None, **changed: Any) -> Answer:
        """Answer a new challenge, changed in some way."""
        challenge = new_challenge()
        credential = authenticator.get(challenge, **changed)
        return await self.ask(VerifyPasskey(challenge=challenge, credential=credential, user_id=user_id))


async def stored_passkey(database: asyncpg.Connection, tenant_id: str, user_id: str) -> str:
    """Store a passkey that no authenticator has, and return its id."""
    passkey_id = new_id()
    await database.execute(
        """INSERT INTO passkeys VALUES ($1, $2, $3, convert_to($2, 'UTF8'), '', 0, '', 'Key', '{}', false, false, 1)""",
        tenant_id,
        passkey_id,
        user_id,
    )
    await database.execute(
        "UPDATE users SET second_factors = '{passkey}' WHERE (tenant_id, id) = ($1, $2)", tenant_id, user_id
    )
    return passkey_id


async def stored_passkey_of(stack: RunningStack, user_id: str) -> str:
    """Do the same for a user of a whole system."""
    settings = stack._stack.management
    database = await asyncpg.connect(settings.database_url.replace("+asyncpg", ""))
    factor_id = await stored_passkey(database, settings.tenant_id, user_id)
    await database.close()
    return factor_id


class AuthenticatorApp:
    """An authenticator app on a phone."""

    def __init__(self, secret: str) -> None:
        self._app = pyotp.TOTP(secret)

    def code(self) -> str:
        """Return a code that is accepted now, and for most of a minute."""
        return self._app.generate_otp(self._step())

    def earlier(self) -> str:
        """Return one of the step before, accepted for 15 seconds at least; a sign-in may use the other one after it."""
        return self._app.generate_otp(self._step() - 1)

    def _step(self) -> int:
        """Return the time step whose beginning is nearest: that of one before and of one after are accepted, too."""
        return round(time.time() / self._app.interval)

    def of_step(self, step: int) -> str:
        return self._app.generate_otp(step)

    def wrong(self) -> str:
        """Return a code of none of the steps around the present one."""
        near = {self._app.at(time.time(), counter_offset=offset) for offset in range(-3, 4)}
        return next(code for code in (f"{number:06}" for number in range(10)) if code not in near)

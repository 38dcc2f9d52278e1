"""Mail that was given up, in the database of a running stack."""

import asyncio

from identity_common.identifiers import new_id
from tests.support.embedded_servers import execute
from tests.support.running_stack import RunningStack


def give_up_mail(stack: RunningStack, *recipients: str, answer: str = "5.1.1 no such user") -> None:
    """Store a failure for each recipient."""
    values = ", ".join(
        f"('default', '{new_id()}', 'registration', 'refused', '{recipient}', 550, '{answer}',"
        " extract(epoch FROM now()) * 1000)"
        for recipient in recipients
    )
    columns = "tenant_id, id, kind, reason, recipient, code, answer, occurred_at"
    statement = f"INSERT INTO mail_failures ({columns}) VALUES {values}"
    asyncio.run(execute(stack.addresses.management_database_url, statement))

"""Liveness of a caller, in SQL: the one condition for every database that knows applications and users."""


def live_caller(row: str, *, applications: str, users: str, valid_exchange: str = "") -> str:
    """Return the condition that a caller's client exists and that its user, if it has one, may still use the token.

    The user must exist, must not be suspended, and must not have ended the tokens of that time. A token is dated in
    whole seconds: one issued in the second in which all tokens were ended is refused too. A token that was obtained by
    token exchange requires that its client has been allowed to exchange tokens ever since; none is issued for the
    Management API.

    Each row is looked up by its key in a subquery that the planner cannot flatten (``OFFSET 0``). Otherwise a plan that
    was made and cached while a table was small would scan all of it.

    Args:
        row: Alias of a row of the statement with ``client_id``, ``subject``, ``issued_at`` (milliseconds) and, for
            ``valid_exchange``, ``is_exchanged``; the tenant is its parameter ``$1``.
        applications: Name of the table of applications.
        users: Name of the table of users.
        valid_exchange: Condition over a row of applications: that a token which it obtained by exchange is valid. Empty
            where no token is obtained by exchange.
    """
    exchanging = f"AND (NOT {row}.is_exchanged OR {valid_exchange})" if valid_exchange else ""
    return f"""
        EXISTS (
            SELECT FROM {applications} WHERE tenant_id = $1 AND id = {row}.client_id {exchanging} OFFSET 0
        ) AND (
            {row}.subject = {row}.client_id OR EXISTS (
                SELECT FROM {users} WHERE tenant_id = $1 AND id = {row}.subject
                    AND NOT is_suspended AND tokens_valid_after <= {row}.issued_at OFFSET 0
            )
        )
    """  # noqa: S608 - table names, not values

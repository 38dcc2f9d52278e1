"""What ends a start, apart from the servers (``embedded``)."""


class StackError(Exception):
    """The stack cannot start; ``str()`` says why: one line, or one for each invalid setting."""

"""The bounds of one call."""

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one call of a script.

    Attributes:
        time_ms: Wall time in milliseconds, from the arrival of the call in the worker to its answer; the setting
            ``CLAIMS_TIME_MS``. ``worker.py`` stops the script in time; ``process.py`` ends a worker that does not
            answer.
        memory_mib: What the engine may allocate, in MiB.
        result_bytes: The longest result, as JSON in UTF-8.
        microtasks: How many jobs of promises may run.
        nesting: How deep objects and arrays may nest; the result itself is the first level.
    """

    time_ms: int = 100
    memory_mib: int = 32
    result_bytes: int = 16 * 1024
    microtasks: int = 10_000
    nesting: int = 16

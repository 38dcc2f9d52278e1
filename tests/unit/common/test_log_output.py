"""The output of the log: a line is written before the call returns, and no line is lost."""

import io
import logging
from concurrent.futures import ThreadPoolExecutor

from identity_common.telemetry.logs import LogOutput, get_logger
from tests.support.captured_logs import captured_logs


def output_to(stream: io.StringIO) -> LogOutput:
    output = LogOutput()
    output.stream = stream
    return output


class Flushed(io.StringIO):
    """Remembers what had been written when it was last flushed."""

    flushed = ""

    def flush(self) -> None:
        super().flush()
        self.flushed = self.getvalue()


async def test_a_line_is_written_and_flushed_before_the_call_returns() -> None:
    stream = Flushed()

    output_to(stream).write("a\n")

    assert stream.flushed == "a\n"


def test_threads_lose_no_line() -> None:
    stream = io.StringIO()
    output = output_to(stream)

    def write(thread: int) -> None:
        for number in range(500):
            output.write(f"{thread} {number}\n")

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(write, range(8)))

    lines = stream.getvalue().splitlines()
    for thread in range(8):
        assert [line for line in lines if line.startswith(f"{thread} ")] == [f"{thread} {n}" for n in range(500)]


def test_a_broken_stream_does_not_harm_callers() -> None:
    stream = io.StringIO()
    output = output_to(stream)
    stream.close()

    output.write("a\n")

    output.stream = io.StringIO()
    output.write("b\n")
    assert output.stream.getvalue() == "b\n"


def test_our_own_lines_and_those_of_libraries_keep_their_order() -> None:
    with captured_logs("unit-tests") as log:
        for number in range(3):
            get_logger("x").info("ours", count=number)
            logging.getLogger("library").warning("theirs %d", number)

        events = [line.partition('"event":"')[2].partition('"')[0] for line in log.getvalue().splitlines()]
    assert events == ["ours", "theirs 0", "ours", "theirs 1", "ours", "theirs 2"]

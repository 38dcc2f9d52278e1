"""When lines of the log are written: together, when a turn of the event loop is over; none is lost."""

import asyncio
import io
import logging
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from identity_common.telemetry.log_output import LogOutput
from identity_common.telemetry.logs import get_logger
from tests.support.captured_logs import captured_logs


class Counted(io.StringIO):
    """Counts how often it is written to."""

    writes = 0

    def write(self, text: str) -> int:
        self.writes += 1
        return super().write(text)


def output_to(stream: io.StringIO) -> LogOutput:
    output = LogOutput()
    output.turn_to(stream, service="unit-tests")
    return output


def test_outside_an_event_loop_a_line_is_written_at_once() -> None:
    stream = io.StringIO()

    output_to(stream).write("a\n")

    assert stream.getvalue() == "a\n"


async def written(stream: io.StringIO, text: str) -> str:
    """Return what a stream holds as soon as this text is in it, or after a few seconds."""
    for _ in range(500):
        if text in stream.getvalue():
            break
        await asyncio.sleep(0.01)
    return stream.getvalue()


async def test_lines_that_come_soon_after_each_other_are_written_together_and_in_their_order() -> None:
    stream = Counted()
    output = output_to(stream)

    for line in ("a\n", "b\n", "c\n"):
        output.write(line)
        await asyncio.sleep(0)
    assert (await written(stream, "c"), stream.writes) == ("a\nb\nc\n", 1)

    output.write("d\n")
    assert (await written(stream, "d"), stream.writes) == ("a\nb\nc\nd\n", 2)


def test_a_loop_that_ended_before_it_wrote_does_not_keep_the_next_one_from_it() -> None:
    stream = io.StringIO()
    output = output_to(stream)
    ended = asyncio.new_event_loop()
    ended.call_soon(output.write, "a\n")
    ended.call_soon(ended.stop)
    ended.run_forever()
    ended.close()
    assert stream.getvalue() == ""

    async def write() -> str:
        output.write("b\n")
        return await written(stream, "b")

    assert asyncio.run(write()) == "a\nb\n"


def test_what_waits_is_written_where_it_belongs_when_the_stream_changes() -> None:
    before, after = io.StringIO(), io.StringIO()
    output = output_to(before)

    async def write() -> None:
        output.write("a\n")
        output.turn_to(after, service="unit-tests")
        output.write("b\n")

        await written(after, "b")

    asyncio.run(write())
    assert (before.getvalue(), after.getvalue()) == ("a\n", "b\n")


def test_threads_and_loops_lose_no_line() -> None:
    stream = io.StringIO()
    output = output_to(stream)

    async def write(thread: int) -> None:
        for number in range(500):
            output.write(f"{thread} {number}\n")
            if number % 7 == 0:
                await asyncio.sleep(0)

    def write_without_a_loop(thread: int) -> None:
        for number in range(500):
            output.write(f"{thread} {number}\n")

    with ThreadPoolExecutor(8) as threads:
        done = [threads.submit(asyncio.run, write(thread)) for thread in range(4)]
        done += [threads.submit(write_without_a_loop, thread) for thread in range(4, 8)]
    for each in done:
        each.result()
    output.flush()

    lines = stream.getvalue().splitlines()
    for thread in range(8):
        assert [line for line in lines if line.startswith(f"{thread} ")] == [f"{thread} {n}" for n in range(500)]


async def test_a_stream_that_cannot_be_written_to_harms_nobody() -> None:
    stream = io.StringIO()
    output = output_to(stream)
    stream.close()
    failures: list[object] = []
    loop = asyncio.get_running_loop()
    usual = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: failures.append(context))
    try:
        output.write("a\n")
        await asyncio.sleep(0.05)
    finally:
        loop.set_exception_handler(usual)  # the loop is that of all tests

    assert failures == []


async def test_our_own_lines_and_those_of_libraries_keep_their_order() -> None:
    with captured_logs("unit-tests") as log:
        for number in range(3):
            get_logger("x").info("ours", count=number)
            logging.getLogger("library").warning("theirs %d", number)

        lines = (await written(log, "theirs 2")).splitlines()
        events = [line.partition('"event":"')[2].partition('"')[0] for line in lines]
        assert events == ["ours", "theirs 0", "ours", "theirs 1", "ours", "theirs 2"]


ENDING: Final = """
import asyncio
from identity_common.telemetry.logs import configure_logs, get_logger

async def last_words():
    get_logger("x").info("last words")
    loop = asyncio.get_running_loop()
    loop.stop()
    raise SystemExit(3)

configure_logs(service="unit-tests")
asyncio.run(last_words())
"""


def test_what_waits_when_the_process_ends_is_written() -> None:
    finished = subprocess.run([sys.executable, "-c", ENDING], capture_output=True, text=True, timeout=60, check=False)

    assert finished.returncode == 3
    assert '"event":"last words"' in finished.stderr

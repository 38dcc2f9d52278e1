"""The program of a worker process: runs one script after another, each in a fresh context of the engine.

It is started by path, outside the package (``python -I -S worker.py``), with an empty environment and one descriptor:
a socket on standard input. It imports the engine and little of the standard library, because every import costs each
worker time and memory. Then it drops its privileges and answers calls.

A frame is four bytes of length and a body. The first body is JSON: the settings of ``Worker``, the engine's directory,
both files of JavaScript and the filter of system calls. A call's body is ``R`` (run) or ``C`` (check), four bytes with
the length of the script, the script, and the data of a run as JSON. An answer's body is a letter and JSON:

    S  started; the restrictions that this platform lacks, as a list of sentences
    F  it could not start; the error as a string
    C  the claims as an object, unchecked
    D  access was denied; the message or null
    E  the same, and then the function went on until it was stopped
    P  a problem: {reason, message, line, column}
    O  a check found nothing; null
"""

import ctypes
import json
import os
import re
import resource
import signal
import sys
import time
from typing import Any, Final

_CONNECTION: Final = 0
_NOBODY: Final = 65534  # the kernel's overflow user and group, which own nothing
_SPARE_BYTES: Final = 24 << 20  # address space for the interpreter's own work: frames, copies of the result
_STACK_BYTES: Final = 512 << 10
_READ_BYTES: Final = 64 << 10
_ENGINE_SHARE: Final = 0.9  # of the wall time; the engine stops by itself then, and can say where
_LONGEST_MESSAGE: Final = 300
_LONGEST_DENIAL: Final = 1000

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_DUMPABLE: Final = 4
_PR_SET_SECCOMP: Final = 22
_PR_SET_NO_NEW_PRIVS: Final = 38
_SECCOMP_MODE_FILTER: Final = 2

# A frame of the stack that is in the script: "at name (<input>:3:7)"; a syntax error has no name.
_FRAME: Final = re.compile(r" *at (?:(?P<name>.*) \()?<input>:(?P<line>\d{1,9}):(?P<column>\d{1,9})\)?")
_LINE_END: Final = re.compile("\r\n|[\n\r\u2028\u2029]")
_NOT_DESCRIBED: Final = "an exception that cannot be described"
_NO_TEXT: Final = "(Failed obtaining QuickJS error string"  # how the binding begins the text of what has none
_HARNESS_FRAMES: Final = frozenset({"steadCall", "steadDenyAccess"})
_FUNCTION: Final = "getCustomJwtClaims"


def receive() -> bytes:
    """Return the body of the next frame; exit when the service has closed its end."""
    frame = _read()
    while len(frame) < 4 or len(frame) < 4 + int.from_bytes(frame[:4], "big"):
        frame += _read()
    return frame[4:]  # nothing follows it: the service sends the next call after the answer


def send(letter: str, content: str) -> None:
    """Send one answer."""
    body = letter.encode() + content.encode()
    left = len(body).to_bytes(4, "big") + body
    while left:
        left = left[os.write(_CONNECTION, left) :]


def _read() -> bytes:
    received = os.read(_CONNECTION, _READ_BYTES)
    if not received:
        os._exit(0)
    return received


class Worker:
    """The engine and its bounds.

    Attributes:
        wall_s: Seconds of wall time a call, of CPU time a check; then the kernel kills the process.
        memory_bytes: What the engine may allocate.
        result_bytes: The longest result, as JSON in UTF-8.
        microtasks: How many jobs of promises may run in one call.
    """

    def __init__(self, start: dict[str, Any]) -> None:
        sys.path.append(start["engine_directory"])
        # Not the package `quickjs` around it, which starts a thread when it is imported.
        import _quickjs  # noqa: PLC0415 - found only now

        sys.path.clear()
        self._engine: Any = _quickjs
        self._harness_source: str = start["harness"]
        self._describe_source: str = start["describe"]
        self.wall_s: float = start["wall_ms"] / 1000
        self.memory_bytes: int = start["memory_bytes"]
        self.result_bytes: int = start["result_bytes"]
        self.microtasks: int = start["microtasks"]
        self._prepare()

    def _prepare(self) -> None:
        self._context: Any = None  # frees the last call's context before the next one is made
        self._context = self._engine.Context()
        self._context.set_memory_limit(self.memory_bytes)
        self._context.set_max_stack_size(_STACK_BYTES)
        self._harness: Any = self._context.eval(self._harness_source)

    def serve(self) -> None:
        """Answer calls until the service closes the socket. The context of the next call is made after each answer."""
        while True:
            call = receive()
            script_end = 5 + int.from_bytes(call[1:5], "big")
            # The default of SIGALRM and SIGPROF is to end the process. The time of a check is CPU time, because its
            # script would be blamed for a busy machine.
            timer = signal.ITIMER_PROF if call[:1] == b"C" else signal.ITIMER_REAL
            signal.setitimer(timer, self.wall_s)
            letter, content = self._answer(call[:1], call[5:script_end], call[script_end:])
            signal.setitimer(timer, 0)
            send(letter, content)
            self._prepare()

    def _answer(self, kind: bytes, script: bytes, data: bytes) -> tuple[str, str]:
        self._deadline = time.monotonic() + self.wall_s * _ENGINE_SHARE
        try:
            text = script.decode()
            if "\0" in text:  # would end the text inside the engine
                line = text.count("\n", 0, text.index("\0")) + 1
                return _problem("syntax", "the script contains a NUL character", (line, None))
            return self._check(text) if kind == b"C" else self._run(text, data.decode())
        except UnicodeDecodeError:  # from here the script is text: what failed to decode is a string of the engine
            return _problem("result", "a string is not valid Unicode", None)
        except MemoryError:
            return _problem("memory", "out of memory", None)
        except self._engine.JSException as error:
            return self._denial_before() or _engine_problem(str(error))

    def _run(self, script: str, data: str) -> tuple[str, str]:
        self._limited().eval(script)
        self._limited()
        outcome = self._harness(data, self.result_bytes)
        executed = 0
        while outcome is None:
            if executed >= self.microtasks:
                return _problem("microtasks", f"more than {self.microtasks} microtasks", None)
            executed += 1
            if not self._execute_job():
                return _problem("result", "the promise that the function returned is never settled", None)
            outcome = self._harness()
        return self._result(outcome)

    def _execute_job(self) -> bool:
        """Run one microtask; return whether there was one. Errors of a job are dropped, unless a limit ended it."""
        try:
            return bool(self._limited().execute_pending_job())
        except self._engine.JSException as error:
            if _reason(str(error)) != "exception":
                raise
            return True

    def _result(self, outcome: str) -> tuple[str, str]:
        if outcome.startswith("{") and len(outcome.encode()) <= self.result_bytes:
            return "C", outcome
        if outcome.startswith(("{", "L")):
            return _problem("result", f"it is longer than {self.result_bytes} bytes", None)
        if outcome in {"X", "R"}:
            return self._failure(outcome)
        if outcome == "D":
            return "D", self._denial()
        if outcome == "N":
            return _problem("no-function", f"the script defines no function {_FUNCTION}", None)
        return _problem("result", "the function must return an object", None)

    def _denial(self) -> str:
        message = json.loads(self._harness(None))
        return json.dumps(None if message is None else _text(message, _LONGEST_DENIAL))

    def _denial_before(self) -> tuple[str, str] | None:
        """Return the denial of a function that caught it, and went on until the engine stopped it."""
        try:
            self._context.set_time_limit(self.wall_s)  # the kernel's timer still runs
            return ("E", self._denial()) if self._harness() == "D" else None
        except (self._engine.JSException, MemoryError):  # nothing is left for the answer
            return None

    def _failure(self, letter: str) -> tuple[str, str]:
        thrown = json.loads(self._harness(self._limited().eval(self._describe_source)))
        message = ": ".join(part for part in (thrown.get("name"), thrown.get("message")) if part)
        position = _position(thrown.get("stack", ""))
        reason = _reason(message)
        if letter == "R" and reason == "exception":
            reason = "result"
        return _problem(reason, message or _NOT_DESCRIBED, position)

    def _check(self, script: str) -> tuple[str, str]:
        """Have the engine parse the script, without running any of it.

        The engine has no such operation, but instantiates a script's declarations before its first statement. One that
        is declared already stops it there, so a script that gets this error was parsed whole. A name that the script
        declares itself is refused by the parser, so the parser also answers whether it declares the function.
        """
        stop = f"stop_{os.urandom(8).hex()}"
        self._context.eval(f"let {stop};")
        problem = self._parse(f"{script}\nlet {stop};")  # a semicolon before it would complete "if (x)"
        if f"redeclaration of '{stop}'" not in problem:
            bound = _reason(problem)
            reason = "syntax" if bound == "exception" else bound
            position, lines = _position(problem), _LINE_END.split(script)
            if position is not None and position[0] > len(lines):
                return _problem(
                    reason, "the script ends in the middle of a statement", (len(lines), len(lines[-1]) + 1)
                )
            return _problem(reason, _first_line(problem), position)
        if f"redeclaration of '{stop}'" in self._parse(f"{script}\nlet {stop}, {_FUNCTION};"):
            return _problem("no-function", f"the script declares no function {_FUNCTION}", None)
        return "O", "null"

    def _parse(self, script: str) -> str:
        try:
            self._context.eval(script)
        except self._engine.JSException as error:
            return str(error)
        raise AssertionError("the engine ran a script that it was to parse")

    def _limited(self) -> Any:
        """Return the context, with the rest of the call's time as the engine's limit of CPU time."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise self._engine.JSException("InternalError: interrupted")
        self._context.set_time_limit(left)
        return self._context


def _reason(error: str) -> str:
    if error.startswith("InternalError: interrupted"):
        return "time"
    if error.startswith("InternalError: out of memory") or error == "null\n":  # null: no memory for the error itself
        return "memory"
    return "exception"


def _engine_problem(error: str) -> tuple[str, str]:
    reason = _reason(error)
    # Only the parser's own errors have a position without a function; eval() and Function() have one too, further down.
    if reason == "exception" and error.startswith("SyntaxError") and "<eval>" not in error:
        reason = "syntax"
    message = _NOT_DESCRIBED if error.startswith(_NO_TEXT) else _first_line(error)
    return _problem(reason, message, _position(error))


def _first_line(error: str) -> str:
    return error.partition("\n")[0]


def _position(stack: str) -> tuple[int, int | None] | None:
    for line in stack.splitlines():
        frame = _FRAME.fullmatch(line)
        if frame is not None and frame["name"] not in _HARNESS_FRAMES:
            return int(frame["line"]), int(frame["column"])
    return None


def _problem(reason: str, message: str, position: tuple[int, int | None] | None) -> tuple[str, str]:
    line, column = position or (None, None)
    return "P", json.dumps(
        {"reason": reason, "message": _text(message, _LONGEST_MESSAGE), "line": line, "column": column}
    )


def _text(text: str, longest: int) -> str:
    return text[:longest].encode(errors="replace").decode()  # an unpaired surrogate becomes a question mark


def confine(memory_bytes: int, seccomp: bytes) -> list[str]:
    """Drop every privilege of this process; return the restrictions that the platform lacks, a sentence each."""
    lacking = []
    for descriptor in (1, 2):
        os.close(descriptor)
    linux = sys.platform == "linux"
    used = _address_space() if linux else None
    if os.geteuid() == 0:
        try:
            os.setgroups([])
            os.setresgid(_NOBODY, _NOBODY, _NOBODY)
            os.setresuid(_NOBODY, _NOBODY, _NOBODY)
        except (OSError, AttributeError) as error:
            lacking.append(f"workers run as root: {error}")
    bounds = {"NPROC": 0, "CORE": 0, "FSIZE": 0, "NOFILE": 0}
    if used is not None:
        bounds["AS"] = used + memory_bytes + _SPARE_BYTES
    for name, bound in bounds.items():
        try:
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (bound, bound))
        except (OSError, ValueError) as error:
            lacking.append(f"no limit {name}: {error}")
    return lacking + (_confine_on_linux(seccomp) if linux else ["no no_new_privs and no seccomp: they are Linux's"])


def _confine_on_linux(seccomp: bytes) -> list[str]:
    lacking = []
    prctl = ctypes.CDLL(None).prctl
    for option, value, without in (  # after the change of user, which would reset the first two
        (_PR_SET_PDEATHSIG, signal.SIGKILL, "a worker may outlive the service"),
        (_PR_SET_DUMPABLE, 0, "other processes of its user may read the memory of a worker"),
        (_PR_SET_NO_NEW_PRIVS, 1, "no no_new_privs"),
    ):
        if prctl(option, value, 0, 0, 0) != 0:
            lacking.append(without)
    if seccomp and not _load_filter(prctl, seccomp):
        lacking.append("no seccomp: the kernel refuses the filter")
    return lacking


def _address_space() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - pathlib takes longer to import
        return int(file.read().split()[0]) * resource.getpagesize()


class _FilterProgram(ctypes.Structure):
    """``struct sock_fprog``: the number of 8-byte instructions, and their address."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def _load_filter(prctl: Any, program: bytes) -> bool:
    loaded = _FilterProgram(len(program) // 8, program)
    return bool(prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(loaded), 0, 0) == 0)


def main() -> None:
    """Serve the socket on standard input."""
    try:
        start = json.loads(receive())
        worker = Worker(start)
        lacking = confine(worker.memory_bytes, bytes.fromhex(start["seccomp"]))
    except Exception as error:  # noqa: BLE001 - the service logs it; there is no standard error
        send("F", json.dumps(f"{type(error).__name__}: {error}"))
        return
    send("S", json.dumps(lacking))
    worker.serve()


if __name__ == "__main__":
    main()

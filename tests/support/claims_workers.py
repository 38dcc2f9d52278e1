"""The workers of the custom-claims function, seen from outside: processes, and what is in their memory."""

from contextlib import suppress
from pathlib import Path

from token_service.claims_function.sandbox.process import _PROGRAM


def of_process(pid: int, name: str) -> str:
    """Return what /proc has about a process."""
    return Path(f"/proc/{pid}/{name}").read_text()


def kinds_of_descriptors(pid: int) -> list[str]:
    """Return what the open descriptors of a process refer to: ``socket``, ``pipe``, or a path."""
    return [str(link.readlink()).partition(":")[0] for link in Path(f"/proc/{pid}/fd").iterdir()]


def workers_of(pid: int) -> list[int]:
    """Return the process ids of the workers that a service has, sorted."""
    children: set[int] = set()
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # the thread ended meanwhile
            children |= set(map(int, (thread / "children").read_text().split()))
    return sorted(child for child in children if _is_worker(child))


def found_in_memory(pid: int, *wanted: bytes) -> set[bytes]:
    """Return which of the byte strings are in what a process has mapped readable."""
    found: set[bytes] = set()
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in of_process(pid, "maps").splitlines():
            bounds, rights, *_ = line.split()
            start, end = (int(bound, 16) for bound in bounds.split("-"))
            if rights.startswith("r") and "[v" not in line:
                memory.seek(start)
                try:
                    content = memory.read(end - start)
                except OSError:  # unmapped meanwhile
                    continue
                found |= {each for each in wanted if each in content}
    return found


def _is_worker(pid: int) -> bool:
    try:
        return str(_PROGRAM) in of_process(pid, "cmdline").split("\0")
    except OSError:  # ended meanwhile
        return False

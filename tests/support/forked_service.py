"""Services in processes of their own that are forked from one that has imported them.

To import a service takes a process two seconds of CPU time, and the tests start more than a hundred.
"""

import functools
import gc
import importlib
import multiprocessing
import os
import runpy
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Final

import httpx2 as httpx

httpx.create_ssl_context()  # once, before the fork: see tests/__init__.py

_IMPORTED: Final = [
    "__main__",
    "token_service.app",
    "management_service.app",
    "template_service.app",
    "console.app",
    "verifier.app",
    # What they import only when they start to serve.
    "anyio._backends._asyncio",
    "httpcore2",
    "identity_common.http.connection",
    "uvicorn.lifespan.on",
    "uvicorn.loops.uvloop",
    "uvicorn.protocols.http.httptools_impl",
    __name__,
]
_CATCH_UP_WAIT_S: Final = 2.0
"""So long that it ends on a busy machine too; after a shorter one a refusal would be correct."""


class ForkedService:
    """``python -m <package> serve``, or another command, without the start of an interpreter.

    Its methods are those of ``subprocess.Popen``.

    Args:
        package: Of the service.
        arguments: Of the command line.
        environment: All of it.
        log: Gets its output.
        errors: Gets what it writes to the standard error; by default the log does.
    """

    def __init__(
        self,
        package: str,
        *arguments: str,
        environment: Mapping[str, str],
        log: Path,
        errors: Path | None = None,
    ) -> None:
        given = (package, arguments, environment, log, errors or log)
        self._process = _server().Process(target=_run, args=given, daemon=True)
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout or 0)
        return self._process.exitcode

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()


@functools.cache
def _server() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_IMPORTED)
    return context


def _run(package: str, arguments: Sequence[str], environment: Mapping[str, str], log: Path, errors: Path) -> None:
    gc.freeze()  # modules stay: to look for garbage among them takes a tenth of the start
    os.environ.clear()
    os.environ.update(environment)
    for descriptor, path in ((1, log), (2, errors)):
        with path.open("ab") as output:
            os.dup2(output.fileno(), descriptor)
    for name in ("token_service.app", "template_service.app"):
        app = importlib.import_module(name)
        vars(app)["create_app"] = functools.partial(app.create_app, catch_up_wait_s=_CATCH_UP_WAIT_S)
    sys.argv[1:] = arguments
    runpy.run_module(package, run_name="__main__", alter_sys=True)

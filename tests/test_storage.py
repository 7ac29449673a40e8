import errno
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from kernel_says_no import Refusal, in_a_thread, refuse

from ckptlab.errors import FormatError, StepError
from ckptlab.storage import RunLock, posix


@pytest.fixture
def umask_022():
    before = os.umask(0o022)
    yield
    os.umask(before)


def python(code: str, *arguments: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.usefixtures("umask_022")
def test_every_new_file_can_be_read_by_others(tmp_path: Path) -> None:
    posix.reserve(tmp_path / "created", 0)
    posix.reserve(tmp_path / "reserved", 10)
    posix.write_file(tmp_path / "written", b"x")
    posix.append_line(tmp_path / "appended", b"x\n")
    RunLock.take(tmp_path).release()
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o644}
    assert len(list(tmp_path.iterdir())) == 5


def test_reserve_takes_the_space_before_the_first_byte_is_written(tmp_path: Path) -> None:
    posix.reserve(tmp_path / "file", 3 << 20)
    found = (tmp_path / "file").stat()
    assert (found.st_size, found.st_blocks * 512 >= 3 << 20) == (3 << 20, True)


def test_data_lands_at_its_offset_and_leaves_the_rest_alone(tmp_path: Path) -> None:
    posix.write_file(tmp_path / "file", b"0123456789")
    with posix.open_to_write(tmp_path / "file") as fd:
        posix.write_at(fd, 3, memoryview(b"abc"))
    assert (tmp_path / "file").read_bytes() == b"012abc6789"


@pytest.mark.parametrize("granted", [True, False])
@pytest.mark.parametrize(("row_bytes", "num_rows"), [(1, 40_000), (7, 3000), (1024, 33), (5000, 5), (300, 1)])
def test_rows_land_at_their_distances_and_leave_what_is_between_alone(
    tmp_path: Path, granted: bool, row_bytes: int, num_rows: int
) -> None:
    begin, step = 5003, row_bytes * 3 + 1
    path = tmp_path / "file"
    data = np.random.default_rng(0).integers(1, 255, (num_rows, row_bytes), np.uint8)
    expected = np.zeros(begin + num_rows * step, np.uint8)
    for number, row in enumerate(data):
        expected[begin + number * step : begin + number * step + row_bytes] = row
    if granted:
        posix.reserve(path, len(expected))
    else:
        path.write_bytes(b"")
        os.truncate(path, len(expected))
    with posix.open_to_write(path) as file:
        posix.write_rows(file, begin, step, data)
        posix.sync(file)
    assert path.read_bytes() == expected.tobytes()


def write_short_rows_without_pwrite(path: Path) -> bool:
    """Whether rows of 100 bytes get into a file although the kernel refuses every pwrite."""
    refuse(Refusal("pwrite", errno.ENOSPC))
    with posix.open_to_write(path) as file:
        try:
            posix.write_rows(file, 0, 200, np.ones((9, 100), np.uint8))
        except OSError:
            return False
    return True


def test_short_rows_go_through_a_mapping_only_where_the_disk_has_granted_the_space(tmp_path: Path) -> None:
    posix.reserve(tmp_path / "granted", 100_000)
    (tmp_path / "sparse").touch()
    os.truncate(tmp_path / "sparse", 100_000)  # on a full disk a mapping of it would end the process
    kind = subprocess.run(["stat", "-f", "-c", "%T", tmp_path], capture_output=True, text=True, check=True).stdout.strip()
    is_local = kind in ("ext2/ext3", "xfs", "tmpfs")
    assert in_a_thread(write_short_rows_without_pwrite, tmp_path / "granted") == is_local
    assert not in_a_thread(write_short_rows_without_pwrite, tmp_path / "sparse")


@pytest.mark.parametrize(
    "write",
    ["posix.write_file(path, bytes(10_000))", "posix.write_rows(file, 0, 4000, np.ones((3, 4000), np.uint8))"],
)
def test_a_write_that_the_system_cuts_short_goes_on_and_its_error_names_the_file(tmp_path: Path, write: str) -> None:
    code = f"""if True:
        import resource, sys
        import numpy as np
        from pathlib import Path
        from ckptlab.storage import posix
        resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))   # a pwrite beyond it takes what fits and says so
        path, other = Path(sys.argv[1]), Path(sys.argv[1] + "-other")
        other.touch()
        try:
            with posix.open_to_write(other) as file:
                {write}
        except OSError as error:
            Path(error.filename).rename(path)
            print(path)
    """
    out, _ = python(code, tmp_path / "file").communicate()
    assert (tmp_path / "file").stat().st_size == 6000
    assert out.strip() == str(tmp_path / "file")


def test_reading_refuses_links_fifos_directories_and_files_that_are_too_large_or_too_short(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    os.mkfifo(tmp_path / "fifo")
    for name in ("link", "fifo", "."):
        with pytest.raises(FormatError, match="not a regular file"):
            posix.read_file(tmp_path / name, 100)
        assert posix.size_of(tmp_path / name) is None
    with pytest.raises(FormatError, match="has 5 bytes; such a file has at most 4"):
        posix.read_file(tmp_path / "file", 4)
    with posix.open_to_read(tmp_path / "file") as fd, pytest.raises(FormatError, match="ends at byte 5; bytes 2 to 6"):
        posix.read_into(fd, 2, memoryview(bytearray(4)))


def test_writing_never_goes_through_a_link_or_waits_for_a_fifo(tmp_path: Path) -> None:
    (tmp_path / "outside").write_bytes(b"precious")
    (tmp_path / "link").symlink_to(tmp_path / "outside")
    os.mkfifo(tmp_path / "fifo")
    for name in ("link", "fifo"):
        with pytest.raises(FormatError, match="not a regular file"):
            posix.append_line(tmp_path / name, b"x\n")
        with pytest.raises(FileExistsError):
            posix.write_file(tmp_path / name, b"x")
    assert (tmp_path / "outside").read_bytes() == b"precious"


def test_rename_never_replaces_even_an_empty_directory(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with pytest.raises(FileExistsError):
        posix.rename(tmp_path / "a", tmp_path / "b")
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_the_lock_of_a_run_refuses_a_second_process_until_the_first_is_dead(tmp_path: Path) -> None:
    code = """if True:
        import sys
        from pathlib import Path
        from ckptlab.storage import RunLock
        lock = RunLock.take(Path(sys.argv[1]))
        print("taken", flush=True)
        input()
    """
    holder = python(code, tmp_path)
    assert holder.stdout is not None
    assert holder.stdout.readline()
    with pytest.raises(StepError, match=f"in use by process {holder.pid} on"):
        RunLock.take(tmp_path)
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    RunLock.take(tmp_path).release()


def test_a_forked_child_does_not_keep_the_lock_of_a_dead_parent(tmp_path: Path) -> None:
    code = """if True:
        import os, sys, time
        from pathlib import Path
        from ckptlab.storage import RunLock
        lock = RunLock.take(Path(sys.argv[1]))
        child = os.fork()
        if child:
            print(child, flush=True)
            os.kill(os.getpid(), 9)
        time.sleep(60)
    """
    parent = python(code, tmp_path)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    try:
        parent.wait()
        RunLock.take(tmp_path).release()
        os.kill(child, 0)  # it is still there
    finally:
        os.kill(child, signal.SIGKILL)
        parent.communicate()

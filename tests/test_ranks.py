import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from processes import until

from ckptlab.errors import RankLost, RankRaised, UsageError
from ckptlab.ranks import World
from ckptlab.ranks.answer import Raised
from ckptlab.ranks.verdict import first_to_fail, name_ranks, rank_raised

pytestmark = pytest.mark.timeout(60)
INTERRUPT_PARENT = "dist.barrier()\nif rank == 0: os.kill(multiprocessing.parent_process().pid, signal.SIGINT)"


@pytest.fixture(scope="module")
def shared_world() -> Iterator[World]:
    with World(3) as world:
        yield world


@pytest.fixture
def world(shared_world: World) -> World:
    shared_world.restart()
    return shared_world


def add(left: int, right: int) -> int:
    return left + right


def listening_addresses() -> list[str]:
    sockets = {
        os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")
    }
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return [row[1].split(":")[0] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets]


def test_values_come_back_leaf_by_leaf(world: World) -> None:
    answer = world.run("""
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Shard, distribute_tensor
        whole = distribute_tensor(torch.arange(6.0), init_device_mesh("cpu", (world_size,)), [Shard(0)])
        kept = {"list": [1, None, "a"], "tuple": (True, 2.5), 3: torch.Size([4])}
        small = [torch.ones(2, dtype=torch.bfloat16), torch.ones((), dtype=torch.float8_e4m3fn)]
        kept, [*small, torch.tensor(1j).conj(), whole], {(0, "a"): {1, 2}, b"key": torch.empty(2, device="meta")}
    """)[1]
    assert isinstance(answer, tuple)
    kept, (half, tiny, conjugate, local), others = answer
    assert kept == {"list": [1, None, "a"], "tuple": (True, 2.5), 3: (4,)}
    assert half.dtype == ml_dtypes.bfloat16
    assert half.tolist() == [1, 1]
    assert tiny.dtype == ml_dtypes.float8_e4m3fn
    assert conjugate == np.array(-1j)
    assert local.tolist() == [2, 3]
    assert others == {(0, "a"): "{1, 2}", "b'key'": "tensor(..., device='meta', size=(2,))"}


def test_names_last_from_run_to_run_on_each_rank(world: World) -> None:
    assert world.run("mine = [rank]") == [None, None, None]
    assert world.run("mine.append(world_size); mine") == [[0, 3], [1, 3], [2, 3]]
    assert world.run("mine", ranks=[2, 0]) == [[2, 3], [0, 3]]


def test_functions_run_by_import_and_by_their_source(world: World) -> None:
    def from_source(factor: int, *, plus: int = 0) -> int:
        return rank * factor + plus  # type: ignore[name-defined]  # noqa: F821  (a name of the ranks)

    assert world.run(add, 1, right=2) == [3, 3, 3]
    assert world.run(from_source, 10, plus=1) == [1, 11, 21]


def test_what_ranks_cannot_run_is_refused_with_the_reason(world: World) -> None:
    outer = 1

    def closure() -> int:
        return outer

    with pytest.raises(ValueError, match="closure: it uses outer of the function around it"):
        world.run(closure)
    with pytest.raises(ValueError, match="cannot run a lambda"):
        world.run(lambda: 1)
    with pytest.raises(SyntaxError):
        world.run("1 +")


def test_output_is_labelled_and_in_rank_order(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.run("""
        import os, sys
        for turn in (2, 1, 0):
            if rank == turn:
                print("first")
                os.system("echo from a child")
                print("last", end="", file=sys.stderr)
            dist.barrier()
    """)
    lines = [f"[rank {rank}] {text}" for rank in range(3) for text in ("first", "from a child", "last")]
    assert capsys.readouterr().out.splitlines() == lines


def test_an_exception_on_one_rank_is_told_with_the_users_own_lines(world: World) -> None:
    with pytest.raises(RankRaised) as caught:
        world.run("x = rank\nif rank == 1:\n    torch.nn.Linear(2, 2)(torch.ones(1, 3))")
    told = str(caught.value).splitlines()
    assert told[0].startswith("rank 1 raised RuntimeError: mat1 and mat2 shapes cannot be multiplied")
    assert told[2] == "Traceback (most recent call last):"
    assert told[3].endswith(", line 3, in <module>")
    assert told[4:6] == ["    torch.nn.Linear(2, 2)(torch.ones(1, 3))", told[-1]]
    assert "linear.py" in str(caught.value.__cause__)
    assert world.run("x") == [0, 1, 2]


def test_of_several_exceptions_the_first_is_told_and_the_others_are_counted() -> None:
    raised = {rank: Raised(what=f"E: {rank}", own_lines="", all_lines="", at=-rank) for rank in range(3)}
    assert "rank 2 raised E: 2 (3 of 4 ranks raised; this was the first)" in str(rank_raised(raised, 4))


def test_ranks_are_named_in_few_letters() -> None:
    assert [name_ranks(ranks) for ranks in ([1], [2, 0], [1, 0], range(4), [5, 0, 1, 2, 3])] == [
        "rank 1", "ranks 0, 2", "ranks 0-1", "ranks 0-3", "ranks 0-3, 5",
    ]  # fmt: skip


@pytest.mark.parametrize(("num_ranks", "device"), [(0, "cpu"), (1, "tpu")])
def test_a_world_that_cannot_be_is_refused_in_words(num_ranks: int, device: str) -> None:
    with pytest.raises(UsageError, match="at least one rank, and device 'cpu', 'auto' or 'cuda'"):
        World(num_ranks, device=device)


def test_the_cause_of_a_failed_attempt_is_the_rank_that_ended_first() -> None:
    raised = {rank: Raised(what="", own_lines="", all_lines="", at=-rank) for rank in (0, 3)}
    assert first_to_fail([1, -signal.SIGTERM, -signal.SIGKILL, 1], raised, seen=0) == 2
    assert first_to_fail([1, -signal.SIGTERM, -signal.SIGTERM, 1], raised, seen=1) == 1
    assert first_to_fail([1, 7, -signal.SIGTERM, 1], raised, seen=0) == 1
    assert first_to_fail([1, 7, -signal.SIGKILL, 1], raised, seen=1) == 2
    assert first_to_fail([1, -signal.SIGTERM, -signal.SIGTERM, 1], raised, seen=0) == 3


def test_a_death_is_told_at_once_and_the_others_live_on(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    begin = time.monotonic()
    with pytest.raises(RankLost, match="rank 1 was killed by SIGKILL") as caught:
        world.run("import os, signal\nprint('last words')\nif rank == 1: os.kill(os.getpid(), signal.SIGKILL)\ndist.barrier()")
    assert time.monotonic() - begin < 10
    assert caught.value.ranks == (1,)
    assert "[rank 1] last words" in capsys.readouterr().out
    assert world.run("rank", ranks=[0]) == [0]
    with pytest.raises(RankLost, match="rank 1 was killed by SIGKILL"):
        world.run("rank")


def test_an_exit_is_told_with_its_code(world: World) -> None:
    with pytest.raises(RankLost, match="rank 2 exited with code 3"):
        world.run("import os\nif rank == 2: os._exit(3)")


def test_restart_gives_fresh_ranks(world: World) -> None:
    before = world.pids
    world.run("x = 1")
    world.kill(0)
    world.restart()
    assert not set(before) & set(world.pids)
    assert world.run("'x' in globals(), dist.get_rank()") == [(False, 0), (False, 1), (False, 2)]


def test_a_hang_is_told_within_its_timeout_and_a_late_answer_ends_it() -> None:
    with World(2, timeout=2) as world:
        world.pause(1)
        begin = time.monotonic()
        with pytest.raises(RankLost, match=r"rank 1 is stopped .* within 2 s; rank 0 raised") as caught:
            world.run("dist.barrier()")
        assert time.monotonic() - begin < 6
        assert caught.value.ranks == (1,)
        with pytest.raises(RankLost, match="did not answer an earlier run"):
            world.run("rank")
        world.kill(1, signal.SIGCONT)
        assert _when_it_answers(world, 1) == [1]


def _when_it_answers(world: World, rank: int) -> list[object]:
    while True:
        try:
            return world.run("rank", ranks=[rank])
        except RankLost:
            time.sleep(0.01)


def test_an_interrupt_stops_the_ranks_and_keeps_their_names(world: World) -> None:
    world.run("import multiprocessing, os, signal; x = rank")
    with pytest.raises(KeyboardInterrupt):
        world.run(f"{INTERRUPT_PARENT}\nwhile True: pass")
    assert world.run("x") == [0, 1, 2]


@pytest.mark.parametrize("seconds", [0.1, 0.5])
def test_an_interrupt_while_the_first_ranks_start_says_nothing_of_it_and_costs_nothing(seconds: float, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from ckptlab.ranks import World\nprint('ready', flush=True)\n"
        "try:\n    World(2)\nexcept KeyboardInterrupt as error:\n    kept = error\n"
        "print(World(2).run('rank'))\n"
    )
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, script], text=True, start_new_session=True, **pipes) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(seconds)  # into the loading of torch, which takes longer
        os.killpg(process.pid, signal.SIGINT)
        assert process.communicate(timeout=50) == ("[0, 1]\n", "")


def test_ranks_that_an_interrupt_does_not_stop_are_restarted(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.run("import multiprocessing, os, signal; x = signal.signal(signal.SIGINT, signal.SIG_IGN)")
    with pytest.raises(KeyboardInterrupt):
        world.run(f"{INTERRUPT_PARENT}\nwhile True: pass")
    assert "ranks 0-2 did not stop" in capsys.readouterr().out
    assert world.run("'x' in globals()") == [False, False, False]


def test_two_worlds_at_once_do_not_meet(world: World) -> None:
    with World(2) as other:
        code = "x = torch.ones(1); dist.all_reduce(x); x.item()"
        assert (world.run(code), other.run(code)) == ([3, 3, 3], [2, 2])


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_nothing_listens_beyond_this_machine(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth0")  # where a machine's jobs may well be told to meet
    world.restart()
    addresses = world.run(listening_addresses)
    assert all(addresses)
    assert {address for on_rank in addresses for address in on_rank} == {"0100007F"}  # type: ignore[attr-defined]


def test_the_parent_loads_no_torch_and_its_script_runs_once(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nfrom ckptlab.ranks import World\nprint('script', flush=True)\n"
        "def twice(x):\n    return 2 * x\n"
        "world = World(2)\nprint(world.run('torch.ones(1)'), world.run(twice, 4), 'torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=50, check=True)
    assert done.stdout == "script\n[array([1.], dtype=float32), array([1.], dtype=float32)] [8, 8] False\n"
    assert done.stderr == ""


def test_a_rank_that_prints_on_and_on_is_ended_before_it_fills_the_disk(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RankLost, match="rank 1 printed more than 20 MB in one run and was ended"):
        world.run("while rank == 1: print('flood' * 20_000)")
    shown = capsys.readouterr().out
    assert re.match(r"\[rank 1\] … [\d,]+ bytes before this are left out\n", shown)
    assert len(shown) < 110_000
    assert world.run("rank", ranks=[0, 2]) == [0, 2]


def test_a_value_that_would_not_fit_is_refused_on_the_rank(world: World) -> None:
    with pytest.raises(RankRaised, match=r"the value has 100,000,000 bytes, and at most 67,108,864 come back"):
        world.run("{'big': [torch.zeros(25_000_000)]}")
    assert world.run("rank") == [0, 1, 2]


def test_a_process_that_a_rank_forks_is_no_rank(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert world.run("import os\nchild = os.fork() == 0\nprint(child)\n-1 if child else rank") == [0, 1, 2]
    assert world.run("rank") == [0, 1, 2]
    assert world.run("[os.wait() for _ in range(1)]; rank") == [0, 1, 2]


def test_what_ranks_print_is_there_although_their_code_removed_the_file(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.run("import os\nos.remove(os.readlink('/proc/self/fd/1'))\nprint('still there')", ranks=[1])
    assert capsys.readouterr().out == "[rank 1] still there\n"


def test_what_ranks_print_is_their_owners_alone(world: World) -> None:
    assert world.run("import os\nos.fstat(1).st_mode & 0o777") == [0o600] * 3


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_without_memory_the_system_ends_a_rank_before_its_owner(world: World) -> None:
    assert [Path(f"/proc/{pid}/oom_score_adj").read_text() for pid in world.pids] == ["1000\n"] * 3


def test_a_rank_is_idle_while_it_would_begin_at_once(world: World) -> None:
    assert world.is_idle(0)
    world.pause(0)
    assert until(lambda: not world.is_idle(0), 10)
    world.kill(0)
    assert not world.is_idle(0)


BROKEN = """
    class Broken(Exception):
        def __str__(self):
            raise ValueError
    raise Broken()
"""


def test_an_error_that_cannot_be_told_or_is_too_long_to_tell_costs_no_rank_its_names(world: World) -> None:
    world.run("kept = rank")
    with pytest.raises(RankRaised, match="Broken: its message cannot be shown"):
        world.run(BROKEN)
    with pytest.raises(RankRaised) as caught:
        world.run("raise ValueError('x' * 20_000_000)")
    assert len(str(caught.value)) < 20_000
    with pytest.raises(RankRaised):
        world.run("import sys\nsys.stdout = None\nraise KeyError")
    assert world.run("kept") == [0, 1, 2]


def test_a_rank_that_writes_into_its_pipe_is_lost_and_hangs_nobody(world: World) -> None:
    with pytest.raises(RankLost):
        world.run(
            """
            import contextlib, os
            for fd in range(3, 60):
                with contextlib.suppress(OSError):
                    os.write(fd, bytes([0, 0, 0, 5]) + b"garbage")
        """,
            ranks=[1],
        )


def test_source_text_is_run_as_it_stands(world: World) -> None:
    assert world.run("text = '''a\n     \nb'''\nlen(text)") == [9] * 3

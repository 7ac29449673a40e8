"""The magics in a real kernel, as a notebook has it."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from queue import Empty

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

from ckptlab.course import content
from ckptlab.course.exercise import read

pytestmark = [pytest.mark.timeout(240), pytest.mark.filterwarnings("ignore::DeprecationWarning")]  # of jupyter_client
ROWS = read(content.exercise_file("2.1"))
SECONDS = 60


class Notebook:
    """A kernel, and what a learner would see of it."""

    def __init__(self, home: Path) -> None:
        self.kernel = KernelManager()
        self.kernel.start_kernel(env=os.environ | {"CKPTLAB_HOME": str(home), "IPYTHONDIR": str(home / "ipython")})
        self._client: BlockingKernelClient = self.kernel.client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=SECONDS)

    def run(self, cell: str, *, interrupt_after: float | None = None) -> str:
        """Run a cell; return all it shows, an error's message too."""
        request = self._client.execute(cell)
        seen: list[str] = []
        while True:
            try:
                message = self._client.get_iopub_msg(timeout=interrupt_after or SECONDS)
            except Empty:
                assert interrupt_after, "the cell did not end"
                self.kernel.interrupt_kernel()
                interrupt_after = None
                continue
            content = message["content"]
            if message["parent_header"].get("msg_id") != request:
                continue
            if message["msg_type"] == "stream":
                seen.append(content["text"])
            elif message["msg_type"] == "execute_result":
                seen.append(content["data"]["text/plain"])
            elif message["msg_type"] == "error":
                seen.append("\n".join(["ERROR", *content["traceback"], ""]))
            elif message["msg_type"] == "status" and content["execution_state"] == "idle":
                return "".join(seen)

    def complete(self, cell: str) -> list[str]:
        request = self._client.complete(cell)
        while True:
            message = self._client.get_shell_msg(timeout=SECONDS)
            if message["parent_header"].get("msg_id") == request:
                return list(message["content"]["matches"])

    def close(self) -> None:
        self._client.stop_channels()
        self.kernel.shutdown_kernel(now=True)
        self.kernel.cleanup_resources()


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    notebook = Notebook(tmp_path_factory.mktemp("home"))
    notebook.run("%load_ext ckptlab.course\n%load_ext ckptlab.course\nfrom ckptlab.ranks import World")
    notebook.run("from ckptlab.course import hint, solution, progress, predict, outcome\nworld = World(3)")
    yield notebook
    notebook.close()


def test_a_cell_runs_on_the_ranks_in_a_namespace_that_lasts(notebook: Notebook) -> None:
    assert notebook.run("%%ranks\nmine = rank\nprint('hello')") == "".join(f"[rank {rank}] hello\n" for rank in range(3))
    assert notebook.run("# a comment above\n\n%%ranks\nmine") == "rank 0: 0\nrank 1: 1\nrank 2: 2"
    assert notebook.run("%%ranks 0,2\nworld_size") == "ranks 0, 2: 3"
    assert notebook.run("%%ranks\nmine // 2") == "ranks 0-1: 0\nrank 2: 1"
    assert notebook.run("%%ranks\nmine;") == ""
    assert notebook.run("%%ranks --to boxes\n[mine]") == ""
    assert notebook.run("boxes == [[0], [1], [2]]") == "True"


def test_an_error_of_a_rank_is_told_in_words_with_the_learners_own_lines(notebook: Notebook) -> None:
    told = notebook.run("%%ranks\n\nif rank == 1:\n    1 / 0")
    assert re.sub(r"<run \d+>", "<run>", told).splitlines() == [
        "ERROR",
        "rank 1 raised ZeroDivisionError: division by zero",
        "",
        "Traceback (most recent call last):",
        '  File "<run>", line 4, in <module>',
        "    1 / 0",
        "    ~~^~~",
        "ZeroDivisionError: division by zero",
    ]


@pytest.mark.parametrize(
    ("cell", "told"),
    [
        ("%%ranks\nif", 'ERROR\n  File "<run>", line 2\n    if\n      ^\nSyntaxError: invalid syntax\n'),
        ("%%ranks one\n1", "ERROR\n%%ranks one: write %%ranks, %%ranks 0,2 (these ranks only) or %%ranks --to NAME"),
        ("%%ranks 7\n1", "ERROR\nrank 7 is not in this world of 3"),
        ("%%exercise 2.1\ndef rows_of_rank(:", 'ERROR\n  File "<exercise 2.1>", line 2\n'),
        ("%%exercise 2.1\ndef rows(): pass", "ERROR\nthe cell does not define rows_of_rank"),
        ("%%exercise first\npass", "ERROR\nwrite the exercise's number after %%exercise"),
        ("hint('2.99')", "ERROR\nthere is no exercise 2.99"),
    ],
)
def test_bad_usage_is_told_in_words(notebook: Notebook, cell: str, told: str) -> None:
    seen = re.sub(r"<run \d+>", "<run>", notebook.run(cell))
    assert seen.startswith(told)
    assert "ckptlab/" not in seen


def test_an_exercise_is_tried_hinted_and_solved(notebook: Notebook) -> None:
    assert notebook.run(f"%%exercise 2.1\n{ROWS.stub}") == "2.1 The rows of a rank: not tried yet.\n"
    assert notebook.run(f"%%exercise 2.1\n{ROWS.sources['wrong_rest_to_the_last']}").startswith("2.1: not yet. 7 rows over 2")
    assert notebook.run("hint('2.1')").startswith("hint 1 of 3: Print")
    assert notebook.run("solution('2.1')") == f"{ROWS.solution}\n"
    assert notebook.run(f"# mine\n%%exercise 2.1\n{ROWS.solution}").startswith("2.1: right.\nprogress.save() makes a copy")
    assert re.search(r"02 shards +1 +0 +1", notebook.run("progress()"))
    assert notebook.run("'rows_of_rank' in globals()") == "False"


def test_the_function_of_an_exercise_without_ranks_is_defined_in_the_notebook_too(notebook: Notebook) -> None:
    exercise = next(found for path in content.exercises().values() if (found := read(path)).in_kernel)
    notebook.run(f"%%exercise {exercise.id}\n{exercise.solution}")
    assert notebook.run(f"{exercise.name}.__name__") == repr(exercise.name)
    deadly = f"{exercise.stub}\nimport os\nos._exit(1)"
    assert "On one rank: rank 0 exited with code 1." in notebook.run(f"%%exercise {exercise.id}\n{deadly}")
    assert notebook.run("world.num_ranks") == "3"


def test_completion_comes_from_rank_0_and_only_while_it_is_idle(notebook: Notebook) -> None:
    notebook.run("%%ranks\nparameters = torch.nn.Linear(1, 1)")
    assert notebook.complete("%%ranks\nparam") == ["parameters"]
    assert "torch.nn.Linear" in notebook.complete("# comment\n%%ranks 1\ntorch.nn.Lin")
    assert notebook.complete("param") == []
    notebook.run("world.pause(0)")
    assert notebook.complete("%%ranks\nparam") == []
    notebook.run("import signal\nworld.kill(0, signal.SIGCONT)")
    assert notebook.complete("%%ranks\nparam") == ["parameters"]


def test_an_interrupt_reaches_the_ranks_and_their_names_stay(notebook: Notebook) -> None:
    notebook.run("%%ranks\nkept = 1")
    told = notebook.run("%%ranks\nwhile True: pass", interrupt_after=2)
    assert told == "ERROR\ninterrupted: the ranks have stopped what they did\n"
    assert notebook.run("%%ranks\nkept") == "ranks 0-2: 1"
    told = notebook.run("%%exercise 2.1\ndef rows_of_rank(*_):\n    while True: pass", interrupt_after=2)
    assert "ERROR\n2.1: interrupted; this attempt does not count\n" in told


def test_a_lost_rank_is_told_in_words_and_a_restart_mends_it(notebook: Notebook) -> None:
    told = notebook.run("%%ranks\nimport os\nif rank == 2: os._exit(1)")
    assert told.startswith("ERROR\nrank 2 exited with code 1.\nworld.restart() starts all ranks afresh")
    assert notebook.run("world.restart()\nworld.run('rank')") == "[0, 1, 2]"


def test_two_notebooks_keep_one_journal(notebook: Notebook, tmp_path: Path) -> None:
    home = notebook.run("import os; print(os.environ['CKPTLAB_HOME'])").strip()
    other = Notebook(Path(home))
    try:
        other.run("from ckptlab.course import predict\npredict('9.p1', 'from the other')")
        assert "from the other" in notebook.run("outcome('9.p1', 1)")
    finally:
        other.close()


def test_the_kernel_loads_no_torch_and_no_jedi_and_a_rank_no_ipython(tmp_path: Path) -> None:
    notebook = Notebook(tmp_path)
    try:
        notebook.run("%load_ext ckptlab.course\nfrom ckptlab.course import hint, progress\nfrom ckptlab.ranks import World")
        notebook.run("world = World(1)\nimport sys")
        assert notebook.run("%%ranks\ntorch.ones(1)") == "rank 0: array([1.], dtype=float32)"
        assert notebook.complete("%%ranks\ntorch.nn.Lin") != []
        notebook.complete("sys.")
        assert notebook.run("hint('2.1')").startswith("hint 1")
        assert "right." in notebook.run(f"%%exercise 2.1\n{ROWS.solution}")
        assert "02 shards" in notebook.run("progress()")
        assert notebook.run("[name for name in ('torch', 'jedi') if name in sys.modules]") == "[]"
        assert (
            notebook.run("%%ranks\nimport sys\n'rlcompleter' in sys.modules, 'IPython' in sys.modules")
            == "rank 0: (True, False)"
        )
    finally:
        notebook.close()


def test_a_language_is_chosen_here_and_comes_from_the_journal_when_the_extension_is_loaded(notebook: Notebook) -> None:
    notebook.run("import os\nfrom ckptlab.course import journal, language")
    assert "there is no language 'xx'; there are en, ig, so" in notebook.run('language("xx")')
    notebook.run('language("so")')
    assert notebook.run("os.environ['CKPTLAB_LANGUAGE']") == "'so'"
    notebook.run("journal.append('language', language='en')\n%reload_ext ckptlab.course")  # as if in another notebook
    assert notebook.run("os.environ['CKPTLAB_LANGUAGE']") == "'en'"

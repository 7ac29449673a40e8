"""`differences` says the same in its cells, its colours and its words, and an exact zero is seen as one."""

from collections.abc import Sequence

import numpy as np
import pytest

from ckptlab.course.figures import colours, differences
from ckptlab.errors import UsageError

RUNS: dict[str, dict[str, Sequence[bool]]] = {
    "step": {"loss": [False, False, True, True], "model": [False, True, True, True]},
    "buffer": {"loss": [False] * 4, "model": [True, False, True, False]},
}


def test_cells_colours_and_words_say_the_same_of_every_step() -> None:
    picture = differences(RUNS, first_step=6)
    (cells,) = picture.figure.data
    flags = [steps for compared in RUNS.values() for steps in compared.values()]
    assert [[text != "0" for text in row] for row in cells.text] == [[z == 1 for z in row] for row in cells.z] == flags
    assert [colour for _, colour in cells.colorscale] == [colours.SKY, colours.SKY, colours.ORANGE, colours.ORANGE]
    _, head, *rows = picture.text.replace("≠ 0", "other").splitlines()[:6]
    assert head.split() == ["step", "6", "7", "8", "9"]
    assert [[cell == "other" for cell in row.split()[2:]] for row in rows] == flags
    assert list(cells.x) == [6, 7, 8, 9]
    assert list(picture.figure.layout.yaxis.ticktext) == ["step: loss", "model", "buffer: loss", "model"]


def test_the_words_give_the_steps_that_differ() -> None:
    assert differences(RUNS, first_step=6).text.splitlines()[-2:] == [
        "step: loss from step 8 on, model from step 7 on",
        "buffer: loss in no step, model in steps 6, 8",
    ]


def test_rows_of_several_lengths_and_no_row_at_all_are_refused() -> None:
    with pytest.raises(UsageError, match=r"the rows are \[1, 2\] steps long"):
        differences({"one": {"loss": [True], "model": [True, False]}})
    nothing: list[dict[str, dict[str, list[bool]]]] = [{}, {"one": {"loss": []}}]
    for runs in nothing:
        with pytest.raises(UsageError, match="at least 1"):
            differences(runs)
    with pytest.raises(UsageError, match=r"of the runs \['two'\] nothing is compared"):
        differences(RUNS | {"two": {}})


def test_what_ranks_hand_back_is_drawn_as_plain_booleans_are() -> None:
    runs = {run: {what: np.array(flags) for what, flags in compared.items()} for run, compared in RUNS.items()}
    assert differences(runs).bundle() == differences(RUNS).bundle()

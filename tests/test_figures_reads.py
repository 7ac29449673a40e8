"""What the figure says a rank reads is what torch's slices of torch's pieces say, in the drawing as in the words."""

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from ckptlab.course.figures import boxes_by_rank, colours, reads
from ckptlab.errors import FormatError, UsageError

Pair = tuple[tuple[int, ...], tuple[int, ...]]  # global offset, shape
Placed = tuple[tuple[int, ...], list[str]]  # mesh, placements
ROWS, COLUMNS = ["Shard(0)"], ["Shard(1)"]


def cut(numbers: Tensor, box: Pair) -> Tensor:
    return numbers[tuple(slice(at, at + size) for at, size in zip(*box, strict=True))]


def crossing(numbers: Tensor, piece: Pair, box: Pair, item_bytes: int) -> str:
    """Say in which places of the piece's own bytes the box's numbers lie, as torch has them."""
    wanted = torch.isin(cut(numbers, piece).flatten(), cut(numbers, box).flatten()).tolist()
    num_runs = sum(now and not before for before, now in pairwise([False, *wanted]))
    return f"{sum(wanted) * item_bytes:,} B, {num_runs} run{'s' * (num_runs != 1)}" if num_runs else "-"


@pytest.mark.parametrize(
    ("shape", "old", "new"),
    [
        ((8, 6), ((4,), ROWS), ((2,), ROWS)),
        ((8, 6), ((4,), ROWS), ((2,), COLUMNS)),
        ((7, 5), ((3,), COLUMNS), ((2, 2), [*ROWS, *COLUMNS])),
        ((5,), ((4,), ROWS), ((2,), ["Replicate()"])),
        ((4, 5, 6), ((2,), COLUMNS), ((3,), ["Shard(2)"])),
    ],
    ids=str,
)
def test_every_crossing_has_the_bytes_and_runs_that_torch_counts(shape: tuple[int, ...], old: Placed, new: Placed) -> None:
    numbers = torch.arange(torch.Size(shape).numel()).view(shape)
    pieces, wanted = boxes_by_rank(shape, *old), boxes_by_rank(shape, *new)
    picture = reads(shape, pieces, wanted, item_bytes=8)
    pieces = [boxes for boxes in pieces if 0 not in boxes[0][1]]
    expected = [[crossing(numbers, piece, box, 8) for (piece,) in pieces] for (box,) in wanted]
    in_words = [[cell.strip() for cell in line.split("  ") if cell] for line in picture.text.splitlines()[2:]]
    assert [cells[1:-1] for cells in in_words] == expected
    assert [cells[-1].split(", ")[0] for cells in in_words] == [f"{cut(numbers, box).numel() * 8:,} B" for (box,) in wanted]
    (drawn,) = picture.figure.data
    assert [[text.replace("<br>", ", ") or "-" for text in row] for row in drawn.text] == [cells[1:] for cells in in_words]
    assert [[fill is None for fill in row[:-1]] for row in drawn.z] == [[cell == "-" for cell in row] for row in expected]


def test_a_piece_that_two_ranks_wrote_is_read_once_and_an_empty_rank_reads_nothing() -> None:
    replicas = boxes_by_rank((2, 4), (2, 2), ["Replicate()", "Shard(0)"])
    picture = reads((2, 4), replicas, boxes_by_rank((2, 4), (3,), ROWS), title="Three")
    assert picture.text.splitlines() == [
        "Three",
        "                 piece 0: row 0  piece 1: row 1       in all",
        "rank 0: row 0       16 B, 1 run               -  16 B, 1 run",
        "rank 1: row 1                 -     16 B, 1 run  16 B, 1 run",
        "rank 2: nothing               -               -            -",
    ]


def test_pieces_have_colours_by_number_and_the_sum_has_none_of_them() -> None:
    (drawn,) = reads((8, 2), boxes_by_rank((8, 2), (8,), ROWS), [[((0, 0), (8, 2))]]).figure.data
    places = [(number - drawn.zmin) / (drawn.zmax - drawn.zmin) for number in drawn.z[0]]
    shown = [[colour for at, colour in drawn.colorscale if at <= place][-1] for place in places]  # as plotly finds it
    assert shown[:2] == shown[6:8]
    assert len(set(shown[:6])) == 6
    assert colours.GREY not in shown[:8]
    assert shown[8] == colours.GREY


def test_a_gap_between_pieces_and_a_box_outside_are_refused() -> None:
    with pytest.raises(FormatError, match=r"0 boxes hold element \[2, 0\] of shape \(4, 2\), expected exactly one"):
        reads((4, 2), [[((0, 0), (2, 2))]], [])
    with pytest.raises(UsageError, match=r"rank 1: Box\(offset=\(3, 0\), shape=\(2, 2\)\) does not lie in .* \(4, 2\)"):
        reads((4, 2), [[((0, 0), (4, 2))]], [[], [((3, 0), (2, 2))]])
    with pytest.raises(UsageError, match=r"rank 0: Box\(offset=\(0,\), shape=\(4,\)\) does not lie in .* \(4, 2\)"):
        reads((4, 2), [[((0, 0), (4, 2))]], [[((0,), (4,))]])
    for item_bytes in (0, 0.5):
        with pytest.raises(UsageError, match=r"item_bytes=0.*whole number of at least 1"):
            reads((4, 2), [[((0, 0), (4, 2))]], [], item_bytes=item_bytes)  # type: ignore[arg-type]

"""Figures and their words say the same, and what the kernel draws without torch is what torch does."""

import doctest
import json
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from ckptlab.course.figures import (
    Picture,
    anatomy,
    boxes_by_rank,
    colours,
    memory,
    sample_order,
    save_timeline,
    shards,
    step_map,
)
from ckptlab.course.widgets import PLACEMENTS, placement_picker
from ckptlab.errors import FormatError, UsageError
from ckptlab.ranks import World
from ckptlab.steps import list_steps

STEP = Path(__file__).parent / "golden/step-00000040"
STEP_FILLS = {  # of what lies in STEP
    "/model/model-00001-of-00001.safetensors": colours.GREEN,
    "model/model-00001-of-00001.safetensors/header and padding": colours.GREY,
    "model/model-00001-of-00001.safetensors/embed.weight": colours.GREEN,
    "/optim/optim-00001-of-00001.safetensors": colours.SKY,
    "optim/optim-00001-of-00001.safetensors/exp_avg::embed.weight": colours.SKY,
    "/ranks/rank-00000.json": colours.ORANGE,
    "/state.json": colours.YELLOW,
}
SHAPES = ((8, 6), (7, 4), (3, 5), (1, 1), (0, 3), (5,))


def contrast(one: str, other: str) -> float:
    """Give WCAG's contrast of two colours, written `#rrggbb`: 1 for the same, 21 for black on white."""
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour: str) -> float:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def words(picture: Picture) -> list[list[str]]:
    return [line.split("  ") for line in picture.text.splitlines()]


def placed(shape: tuple[int, ...], mesh: tuple[int, ...], names: tuple[str, ...]) -> Picture:
    return shards(shape, boxes_by_rank(shape, mesh, names))


def test_the_grid_of_a_tensor_is_its_figure_and_replicas_are_named() -> None:
    for shape, mesh, names in [((7, 4), (4,), ("Shard(0)",)), ((5, 6), (2, 2), ("Replicate()", "Shard(1)"))]:
        picture = placed(shape, mesh, names)
        labels = [[text.replace("<br>", "").replace(" ", "") for text in row] for row in picture.figure.data[0].text]
        assert words(picture)[1 : 1 + shape[0]] == labels
    assert picture.text.splitlines()[-2:] == [
        "ranks 0, 2: rows 0-4, columns 0-2 (15 elements)",
        "ranks 1, 3: rows 0-4, columns 3-5 (15 elements)",
    ]


def test_what_no_rank_or_an_empty_rank_holds_is_said() -> None:
    gap = shards((4, 5), [[[[0, 0], [2, 3]]], [[[2, 1], [2, 4]]], [[[4, 0], [0, 5]]]])
    assert gap.text.splitlines()[1] == "0  0  0  -  -"
    assert gap.text.splitlines()[-2:] == ["rank 2: nothing", "no rank: 6 elements"]
    assert gap.figure.data[0].z[0] == [0, 0, 0, None, None]
    assert shards((0, 300), [[((0, 0), (0, 300))]]).text.endswith("rank 0: nothing")
    with pytest.raises(UsageError, match=r"rank 1: Box\(offset=\(3, 0\), shape=\(2, 5\)\) reaches outside"):
        shards((4, 5), [[], [((3, 0), (2, 5))]])


def test_a_large_tensor_is_drawn_as_its_boxes() -> None:
    picture = placed((4096, 1000), (3, 2), ("Shard(0)", "Shard(1)"))
    (cells,) = picture.figure.data
    assert (cells.y, cells.x) == ((0, 1366, 2732, 4096), (0, 500, 1000))
    assert "rank 5: rows 2732-4095, columns 500-999 (682,000 elements)" in picture.text
    assert cells.text[2][1] == "rank 5"


def torch_boxes(shapes: list[tuple[int, ...]], mesh: tuple[int, ...], names: list[list[tuple[str, ...]]]) -> list[Any]:
    """This rank's box by shape and placements, as (global offset, shape) told from the values that DTensor gives it."""
    device_mesh, boxes = init_device_mesh("cpu", mesh), []
    for shape, choices in zip(shapes, names, strict=True):
        numbers = torch.arange(int(np.prod(shape))).reshape(shape)
        for choice in choices:
            kinds = [Replicate() if name == "Replicate()" else Shard(int(name[6])) for name in choice]
            local = distribute_tensor(numbers, device_mesh, kinds).to_local()
            first = np.unravel_index(local.reshape(-1)[0].item(), shape) if local.numel() else ()
            boxes.append([[int(at) for at in first], list(local.shape)])
    return boxes


@pytest.mark.parametrize("meshes", [[(3,)], [(4,), (2, 2)]], ids=str)
def test_boxes_without_torch_are_those_of_dtensor_on_real_ranks(meshes: list[tuple[int, ...]]) -> None:
    with World(int(np.prod(meshes[0]))) as world:
        for mesh in meshes:
            kinds = [[f"Shard({dim})" for dim in range(len(shape))] + ["Replicate()"] for shape in SHAPES]
            names = [list(product(choices, repeat=len(mesh))) for choices in kinds]
            found = world.run(torch_boxes, list(SHAPES), mesh, names)
            cases = [(shape, choice) for shape, choices in zip(SHAPES, names, strict=True) for choice in choices]
            for number, (shape, choice) in enumerate(cases):
                for rank, ((offset, size),) in enumerate(boxes_by_rank(shape, mesh, choice)):
                    first = list(offset) if np.prod(size) else []
                    assert found[rank][number] == [first, list(size)], (shape, mesh, choice, rank)


def test_a_placement_that_torch_does_not_know_is_refused() -> None:
    for names in (["Shard(2)"], ["shard(0)"], ["Shard(0)", "Shard(1)"]):
        with pytest.raises(UsageError, match="expected"):
            boxes_by_rank((4, 4), (2,), names)


def test_the_anatomy_of_a_file_is_told_in_words_and_figure(tmp_path: Path) -> None:
    file = tmp_path / "odd.safetensors"
    save_file({"<b>x</b>\x1b[2J": np.zeros((2, 3), "f4"), "empty": np.zeros((0, 3), "f4")}, file)
    picture, data = anatomy(file), file.read_bytes()
    json_bytes = len(data[8:-24].rstrip(b" "))
    rows = {row[0]: row[-3:] for line in picture.text.splitlines()[2:] if (row := line.split())}
    begin = len(data) - 24
    assert rows["length"] == ["0", "8", "8"]
    assert picture.text.splitlines()[3].split()[-3:] == ["8", str(8 + json_bytes), str(json_bytes)]
    assert rows[r"<b>x</b>\x1b[2J"] == [str(begin), str(begin + 24), "24"]
    bars = {(bar.base[0], bar.base[0] + bar.x[0]) for bar in picture.figure.data[:-2]}
    assert bars == {(int(first), int(end)) for *_, first, end, _ in map(str.split, picture.text.splitlines()[2:])}
    assert any(text.startswith(r"<b>&lt;b&gt;x&lt;/b&gt;\x1b[2J</b> F32 [2, 3]") for text in picture.figure.data[-1].text)
    file.write_bytes(data[:-1])
    with pytest.raises(FormatError, match=r"odd\.safetensors: header: tensors end"):
        anatomy(file)


def test_a_step_is_mapped_to_the_byte(tmp_path: Path) -> None:
    picture = step_map(STEP)
    (tree,) = picture.figure.data
    told = [int(line.split()[-1].replace(",", "")) for line in picture.text.splitlines()[2:]]
    assert list(tree["values"][1:]) == told
    assert picture.text.splitlines()[0].endswith(" files, and manifest.json")
    fills = dict(zip(tree.ids, tree.marker.colors, strict=True))
    for part, fill in STEP_FILLS.items():
        assert fills[f"{STEP.name}/{part}"] == fill, part
    for number, parent in enumerate(tree.ids):
        inside = [value for value, up in zip(tree["values"], tree.parents, strict=True) if up == parent]
        assert not inside or sum(inside) == tree["values"][number]
    assert (
        tree["values"][0]
        == list_steps(STEP.parent)[0].num_bytes
        == sum(path.stat().st_size for path in STEP.rglob("*") if path.is_file() and path.name != "manifest.json")
    )


def test_memory_is_that_of_the_zero_paper() -> None:
    picture = memory(7.5e9, 64)
    assert [(bar.name, list(bar.x), bar.marker.color) for bar in picture.figure.data] == [
        ("parameters", [15, 15, 15, 0.234], colours.ORANGE),
        ("gradients", [15, 15, 0.234, 0.234], colours.SKY),
        ("master weights", [30, 0.469, 0.469, 0.469], colours.GREEN),
        ("first moment", [30, 0.469, 0.469, 0.469], colours.YELLOW),
        ("second moment", [30, 0.469, 0.469, 0.469], colours.VERMILLION),
    ]
    assert [name.partition("<br>")[0] for name in picture.figure.data[0].y] == ["data parallel", "ZeRO 1", "ZeRO 2", "ZeRO 3"]
    totals = [sum(bar.x[scheme] for bar in picture.figure.data) for scheme in range(4)]
    assert [round(total, 1) for total in totals] == [120.0, 31.4, 16.6, 1.9]  # its figure 1
    assert [line.split()[-3:] for line in picture.text.splitlines()[2:3]] == [["120.0", "too", "much"]]
    assert [line.split()[-2:] for line in picture.text.splitlines()[3:]] == [
        ["31.4", "fits"],
        ["16.6", "fits"],
        ["1.9", "fits"],
    ]


def test_the_order_of_samples_marks_what_repeats_and_says_what_was_left_out() -> None:
    trained = [[[7, 2], [0, 9], [5, 1]], [[2, 4], [7, 6], [8, 3]]]
    picture = sample_order(trained, steps_in_epoch=2, num_samples=10, resumed_after=[1])
    cells, layout = picture.figure.data[0], picture.figure.layout
    labels = [[cells.text[2 * rank + slot][step] for slot in range(2)] for rank in range(2) for step in range(3)]
    assert labels == [["7", "2"], ["0", "9"], ["5", "1"], ["2*", "4"], ["7*", "6"], ["8", "3"]]
    assert [row.split("  ", 1)[1].replace("|", "").split() for row in picture.text.splitlines()[3:5]] == [
        [label for number in range(3 * rank, 3 * rank + 3) for label in labels[number]] for rank in range(2)
    ]
    assert [[z == 2 for z in row] for row in cells.z] == [[text.endswith("*") for text in row] for row in cells.text]
    assert [shape.x0 for shape in layout.shapes if shape.line.width == 4] == [1.5]
    assert [note.text for note in layout.annotations] == ["epoch 0", "epoch 1", "resume"]
    assert picture.text.splitlines()[-3:] == [
        "| the run was resumed after step 1, in epoch 0",
        "epoch 0, steps 1-2: 6 samples, 4 of them once, and again (*): 2, 7, left out: 1, 3, 5, 8",
        "epoch 1, step 3: 4 samples, each once",
    ]
    with pytest.raises(UsageError, match=r"the ranks trained for \[1, 2\] steps"):
        sample_order([[[1]], [[1], [2]]], steps_in_epoch=2)


def test_the_bars_of_a_save_are_as_long_as_the_words_say() -> None:
    ends = [[("begin", 2.0), ("<b>write", 2.25), ("agree", 4.0)], [("begin", 3.0), ("<b>write", 3.5), ("agree", 4.0)]]
    picture = save_timeline(ends)
    bars = [[f"{length:,.0f}" for length in bar.x] for bar in picture.figure.data]
    assert bars == [["250", "500"], ["1,750", "500"]]
    told = [line.split()[2:] for line in picture.text.splitlines()[2:]]
    assert [told_of[:-1] for told_of in told] == [list(row) for row in zip(*bars, strict=True)]
    assert [row[-1] for row in told] == ["2,000", "1,000"]
    assert picture.figure.data[0].name == "&lt;b&gt;write"


@pytest.mark.parametrize(
    ("by_rank", "told"),
    [
        ([], "no phase is told of"),
        ([[]], "no phase is told of"),
        ([[("begin", 1.0)]], "no phase is told of"),
        ([[("begin", 1.0), ("write", 2.0)], []], r"rank 1 tells of the phases \[\]; expected \['write'\]"),
        ([[("begin", 2.0), ("write", 1.0)]], "rank 0: 'write' lasts -1000.0 ms"),
        ([[("begin", 2.0), ("write", float("nan"))]], "rank 0: 'write' lasts nan ms"),
    ],
)
def test_a_save_that_cannot_have_been_is_refused_in_words(by_rank: list[list[tuple[str, float]]], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        save_timeline(by_rank)


def test_labels_can_be_read_on_every_fill_and_text_on_light_and_dark_pages() -> None:
    assert all(contrast(colours.LABEL, fill) >= 4.5 for fill in colours.FILLS)
    assert all(contrast(colours.TEXT, page) >= 4.3 for page in ("#ffffff", "#111111"))
    assert round(contrast("#000000", "#ffffff"), 2) == 21


def test_a_figure_is_the_same_every_time_and_small() -> None:
    for draw in (lambda: placed((16, 16), (4, 2), ("Shard(0)", "Shard(1)")), lambda: step_map(STEP), lambda: memory(4e11, 64)):
        first, again = draw().bundle(), draw().bundle()
        assert json.dumps(first) == json.dumps(again)
        assert "uid" not in json.dumps(first)
        assert len(json.dumps(first)) < 20_000


def test_the_picker_follows_its_controls_and_knows_every_choice() -> None:
    picker = placement_picker((7, 4), (2, 2), ("Shard(0)", "Shard(1)"))
    mesh, placements = picker.mesh, picker.placements
    for mesh[1].value, placements[0].value, placements[1].value in product((1, 3, 8), PLACEMENTS, PLACEMENTS):
        assert picker.output.outputs[1]["data"]["text/plain"] == picker.picture().text
    picker.shape[0].value, picker.shape[1].value, mesh[0].value, mesh[1].value = 4, 2, 2, 2
    placements[0].value, placements[1].value = "Shard(0)", "Replicate()"
    assert picker.output.outputs[1]["data"]["text/plain"].splitlines() == [
        "4 x 2 on a 2 x 2 mesh: Shard(0), Replicate()",
        "0-1  0-1",
        "0-1  0-1",
        "2-3  2-3",
        "2-3  2-3",
        "ranks 0-1: rows 0-1, columns 0-1 (4 elements)",
        "ranks 2-3: rows 2-3, columns 0-1 (4 elements)",
    ]
    picker.shape[0].value, picker.shape[1].value = 7, 4
    picker.shape[0].value, mesh[0].value, mesh[1].value, placements[0].value = 9, 4, 1, "Shard(0)"
    assert placements[1].disabled
    expected = placed((9, 4), (4,), ("Shard(0)",)).text.partition("\n")[2]
    assert picker.output.outputs[1]["data"]["text/plain"] == f"9 x 4 on 4 ranks: Shard(0)\n{expected}"


def test_a_fold_has_the_title_of_its_figure_as_its_name() -> None:
    picture = shards((1, 1), [[((0, 0), (1, 1))]], "a < b")
    assert "<summary>In words: a &lt; b</summary>" in picture.fold()


def test_examples_in_docstrings_are_right() -> None:
    for module in ("bench_times", "differences", "placements", "reads", "sample_order", "save_timeline", "shards"):
        found = doctest.testmod(sys.modules[f"ckptlab.course.figures.{module}"])
        assert found.attempted > 0
        assert found.failed == 0

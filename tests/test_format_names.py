"""Names that others wrote are taken as `step_name` and `shard_file` write them, or not at all."""

import pytest

from ckptlab.errors import FormatError
from ckptlab.format import names


@pytest.mark.parametrize("step", [0, 40, 99_999_999, 100_000_000, 10**18 - 1])
def test_a_step_is_found_again_under_its_name(step: int) -> None:
    assert names.parse_step(names.step_name(step)) == step


@pytest.mark.parametrize(
    "name",
    [
        "step-40",
        "step-0000000040",
        "step-00000040\n",
        "step-٠٠٠٠٠٠٤٠",
        "step-+0000040",
        "step-00000040-x",
        ".tmp-step-00000040-a",
        "step-" + "9" * 5000,
    ],
)
def test_a_name_in_another_spelling_is_no_step(name: str) -> None:
    assert names.parse_step(name) is None


def test_names_that_are_not_steps_are_hidden_and_never_parse() -> None:
    aside = [names.temporary_name(40, "a1"), names.aside_name("trash", 40, "a1"), names.aside_name("bad", 40, "a1")]
    assert aside == [".tmp-step-00000040-a1", ".trash-step-00000040-a1", ".bad-step-00000040-a1"]
    assert [names.parse_step(name) for name in aside] == [None] * 3
    assert [names.parse_aside(name) for name in aside] == ["torn", "trash", "bad"]
    two_forms = [names.aside_name("small", 40, "a1"), names.aside_name("was", 40, "a1")]
    assert [names.parse_aside(name) for name in two_forms] == ["small", "was"]
    assert [names.parse_was(name) for name in (*two_forms, *aside)] == [None, 40, None, None, None]


@pytest.mark.parametrize("name", ["step-00000040", ".tmp", ".bad-seed-1", ".torn-step-00000040-a1", "x.tmp-step-00000040-a1"])
def test_a_directory_of_somebody_else_is_not_taken_for_one_set_aside(name: str) -> None:
    assert names.parse_aside(name) is None


def test_every_name_of_a_file_that_is_given_is_also_taken() -> None:
    for section in names.SECTIONS:
        names.check_file_name(names.shard_file(section, 1, 2))
        names.check_file_name(names.index_file(section))
    for name in (
        names.rank_tensors_file(3),
        names.rank_state_file(3),
        names.STATE,
        "pieces/rank-00000.safetensors",
        "model/größe.json",
    ):
        names.check_file_name(name)
    assert names.shard_file("model", 1, 2) == "model/model-00001-of-00002.safetensors"
    assert names.index_file("optim") == "optim/optim.safetensors.index.json"
    assert names.rank_tensors_file(3) == "ranks/rank-00003.safetensors"


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "/", "model", "model/", "model/.", "model/..", "model/../x", "/etc/passwd", "/model/x", "model//x"),
        *("../model/x", "model/a/b", "models/x", "manifest.json", "pinned", "State.json", "./state.json", "C:/x"),
        *("model/a\\b", "model\\a", "model/a\0", "model/a\n", "model/\x1b[2J", "model/\u202egpj", "model/\ud800"),
        *("model/" + "x" * 256, "model/" + "ö" * 128),
    ],
)
def test_a_file_name_that_leads_elsewhere_or_cannot_be_shown_is_refused(name: str) -> None:
    with pytest.raises(FormatError, match="file name"):
        names.check_file_name(name)

"""`ckptlab bench`: every contender is measured, figures of one that did not load what was saved count for nothing."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ckptlab.bench import Settings, bench
from ckptlab.bench.contenders import MEASURES, Contender, Measure, Role, chosen
from ckptlab.bench.plan import plan_times
from ckptlab.bench.report import Measured, Row, row_of
from ckptlab.bench.shapes import llama_405b, transformer
from ckptlab.cli.main import run
from ckptlab.errors import UsageError

if TYPE_CHECKING:
    from ckptlab.bench.stage import Stage

COPY = Contender("memory copy", "ckptlab.bench.floors:copy", Role.FLOOR)


def loads_a_wrong_bit(stage: "Stage") -> Iterator[None]:
    """Copy the state, and on rank 1 change one bit of it."""
    from ckptlab.bench.stage import as_bytes, locals_of

    target = stage.blank()
    yield
    for there, here in zip(locals_of(target).values(), locals_of(stage.state()).values(), strict=True):
        there.copy_(here)
    next(as_bytes(locals_of(target)))[0] ^= stage.rank
    yield
    stage.compare(target)


def fails_on_one_rank(stage: "Stage") -> Iterator[None]:
    """Leave a file behind and raise."""
    (stage.fresh() / f"rank-{stage.rank}").touch()
    yield
    if stage.rank == 1:
        raise OSError("the disk is gone")
    yield


def tells_its_own_seconds(stage: "Stage") -> Iterator[float | None]:
    """Tell of seven seconds, on rank 1 of eight."""
    yield None
    yield 7.0 + stage.rank


def ranks(*seconds: float, faults: tuple[str, ...] = ()) -> list[dict[str, object]]:
    return [{"seconds": one, "extra_bytes": round(one * 100), "faults": list(faults)} for one in seconds]


def test_every_contender_is_measured_on_real_ranks_and_nothing_is_left(tmp_path: Path, capsys) -> None:
    assert run(["bench", "--bytes", "100kB", "--repeat", "1", "--layout", "columns", "--dir", str(tmp_path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    for measure in MEASURES:
        found = document[measure.name]
        names = {one.name for one in measure.contenders}
        assert found["seconds"].keys() == found["peak_extra_bytes"].keys() == names, found["void"]
        own = {one.name for one in measure.contenders if one.role is Role.OWN}
        assert own <= found["vs_dcp"].keys() & found["vs_floor"].keys()
        assert all(0 < spread["min"] <= spread["median"] <= spread["max"] for spread in found["seconds"].values())
    model, optim = document["settings"]["state_bytes"].values()
    assert 90_000 < model + optim < 110_000
    assert (document["save"]["bytes"], document["hf_export"]["bytes"]) == (model + optim, model)
    assert list(tmp_path.iterdir()) == []


def test_who_loads_a_wrong_bit_or_fails_is_void_and_the_others_are_measured(tmp_path: Path) -> None:
    wrong = Contender("wrong", "test_bench:loads_a_wrong_bit", Role.OWN)
    failing = Contender("failing", "test_bench:fails_on_one_rank", Role.DCP)
    settings = Settings(bytes=100_000, directory=tmp_path, repeat=1)
    telling = Contender("telling", "test_bench:tells_its_own_seconds", Role.PEER)
    report = bench(settings, [Measure("load", (wrong, failing, COPY, telling))])
    assert report.is_void
    found = report.to_json()["load"]
    assert found["void"].keys() == {"wrong", "failing"}
    assert found["void"]["wrong"] == (
        "rank 1: model/layers.0.attention.q.weight and 0 others are not what was saved, bit for bit"
    )
    assert found["void"]["failing"] == "rank 1: OSError: the disk is gone"
    assert found["seconds"].keys() == {"memory copy", "telling"}
    assert found["seconds"]["telling"] == {"median": 8.0, "min": 8.0, "max": 8.0}
    assert (found["vs_dcp"], found["vs_floor"].keys()) == ({}, {"telling"})
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_leaves_nothing(tmp_path: Path) -> None:
    def say(what: str, done: int, in_all: int) -> None:
        if done == 1:
            assert any(tmp_path.rglob("*"))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bench(Settings(bytes=100_000, directory=tmp_path), [Measure("load", (COPY,))], say)
    assert list(tmp_path.iterdir()) == []


def test_ratios_are_speeds_of_medians_and_the_slowest_rank_counts() -> None:
    own = row_of(Contender("own", "", Role.OWN), [ranks(1.0, 2.0), ranks(4.0, 3.0), ranks(1.0, 1.0)])
    assert (own.seconds, own.peak_extra_bytes) == ((2.0, 4.0, 1.0), 400)
    dcp = Row(Contender("dcp", "", Role.DCP), (5.0, 3.0, 100.0))
    slow_dcp = Row(Contender("slow dcp", "", Role.DCP), (10.0,))
    peer = Row(Contender("peer", "", Role.PEER), (8.0,))
    floor = Row(Contender("floor", "", Role.FLOOR), (1.0, 1.0))
    copy = Row(Contender("copy", "", Role.BESIDE), (0.5,))
    found = Measured("load", 4_000_000_000, (own, slow_dcp, dcp, peer, floor, copy))
    document = found.to_json()
    assert document["seconds"]["own"] == {"median": 2.0, "min": 1.0, "max": 4.0}
    assert document["vs_dcp"] == {"own": 2.5, "peer": 0.625}
    assert document["vs_floor"] == {"own": 0.5, "slow dcp": 0.1, "dcp": 0.2, "peer": 0.125}
    rows = list(found.table("{} B".format))
    assert rows[0] == ("own", "2.000 s", "1.000-4.000", "2.00", "2.50", "0.50", "400 B")
    assert rows[4] == ("floor", "1.000 s", "1.000-1.000", "4.00", "", "", "")


def test_a_fault_in_any_repetition_voids_a_contender_and_what_is_compared_with_it() -> None:
    dcp = row_of(Contender("dcp", "", Role.DCP), [ranks(1.0), ranks(1.0, faults=("rank 0: wrong",)), ranks(1.0)])
    found = Measured("load", 1, (Row(Contender("own", "", Role.OWN), (2.0,)), dcp)).to_json()
    assert (found["void"], found["vs_dcp"]) == ({"dcp": "rank 0: wrong"}, {})


def test_what_cannot_be_measured_is_refused_before_anything_is_written(tmp_path: Path, capsys) -> None:
    with pytest.raises(UsageError, match=r"GB free, and \d{7}\.\d GB are needed; give a smaller --bytes"):
        bench(Settings(bytes=10**15, directory=tmp_path), MEASURES)
    assert list(tmp_path.iterdir()) == []
    assert run(["bench", "--dir", str(tmp_path / "nowhere")]) == 2
    assert run(["bench", "--bytes", "many"]) == 2
    assert run(["bench", "--against", "dcp,dpc"]) == 2
    assert {measure.name for measure in chosen(None, "cuda")} == {"background_stall", "training_step"}
    assert "there is no peer 'dpc'; there are dcp, safetensors, torch" in capsys.readouterr().err
    assert {one.name for measure in chosen(["torch"]) for one in measure.contenders if one.role is Role.PEER} == {"torch.save"}


def test_the_manifest_grows_with_the_world_by_two_files_a_rank_and_dcp_is_left_out_beyond_the_limit() -> None:
    assert sum(map(math.prod, llama_405b().values())) == 405_853_388_800
    two, four, eight = plan_times(transformer(100_000), [8, 2, 4], limit=0)
    assert [one.ranks for one in (two, four, eight)] == [2, 4, 8]
    assert len({one.manifest_bytes - one.per_rank_bytes for one in (two, four, eight)}) == 1
    assert (four.per_rank_bytes, eight.per_rank_bytes) == (2 * two.per_rank_bytes, 4 * two.per_rank_bytes)
    assert (two.dcp_seconds, four.dcp_seconds, eight.dcp_seconds) == (None, None, None)
    (within,) = plan_times(transformer(100_000), [2], limit=60)
    assert within.dcp_seconds is not None

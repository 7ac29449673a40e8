"""The course's figures: each a pure function that gives a `Picture`, a plotly figure and the same in words."""

from ckptlab.course.figures.anatomy import anatomy
from ckptlab.course.figures.bench_times import bench_times
from ckptlab.course.figures.differences import differences
from ckptlab.course.figures.memory import memory
from ckptlab.course.figures.picture import Picture
from ckptlab.course.figures.placements import boxes_by_rank
from ckptlab.course.figures.reads import reads
from ckptlab.course.figures.sample_order import sample_order
from ckptlab.course.figures.save_timeline import save_timeline
from ckptlab.course.figures.shards import shards
from ckptlab.course.figures.step_map import step_map

__all__ = [
    "Picture",
    "anatomy",
    "bench_times",
    "boxes_by_rank",
    "differences",
    "memory",
    "reads",
    "sample_order",
    "save_timeline",
    "shards",
    "step_map",
]

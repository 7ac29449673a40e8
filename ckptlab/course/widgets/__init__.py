"""What a learner can turn and press: the only place with ipywidgets. Each widget is imported where it is shown."""

from ckptlab.course.widgets.placements import PLACEMENTS, placement_picker

__all__ = ["PLACEMENTS", "placement_picker"]

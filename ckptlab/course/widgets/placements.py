"""`placement_picker` shows `shards` for the tensor, mesh and placements that a learner chooses.

A widget lives in the kernel: when that is gone, or the notebook is opened again, what stands is the words, which every cell
output also holds as plain text.

Only number fields and buttons: JupyterLab takes the arrow keys and Enter from dropdowns and sliders, to move between cells.
"""

from collections.abc import Sequence
from typing import Any

import ipywidgets

from ckptlab.course.figures.holders import MOST_ELEMENTS
from ckptlab.course.figures.picture import Picture, show
from ckptlab.course.figures.placements import REPLICATE, boxes_by_rank
from ckptlab.course.figures.shards import shards

MOST_RANKS = 8  # on a mesh axis
PLACEMENTS = ("Shard(0)", "Shard(1)", REPLICATE)
LABEL_WIDTH = {"description_width": "11em"}  # as wide as the longest label


class placement_picker:
    """Let a learner choose a tensor of up to 16 x 16 elements, a mesh and placements, and see which rank holds what.

    Number fields and buttons with visible labels stand above the figure and its words, which follow them. A second mesh axis
    of one rank is none: the mesh has one axis then, and the second placement cannot be chosen. Labs call it as they call the
    figures, hence its small letter.
    """

    def __init__(
        self, shape: tuple[int, int] = (8, 6), mesh: tuple[int, ...] = (4,), placements: Sequence[str] = ("Shard(0)",)
    ) -> None:
        self.shape = [_number(label, MOST_ELEMENTS, size) for label, size in zip(("Rows", "Columns"), shape, strict=True)]
        self.mesh = [_number(f"Ranks on axis {axis}", MOST_RANKS, size) for axis, size in enumerate((*mesh, 1)[:2])]
        self.placements = [_buttons(axis, chosen) for axis, chosen in enumerate((*placements, REPLICATE)[:2])]
        self.output = ipywidgets.Output()
        controls = (*self.shape, *self.mesh, *self.placements)
        self.box = ipywidgets.VBox([*controls, self.output])
        for control in controls:
            control.observe(self.redraw, names="value")
        self.redraw()

    def picture(self) -> Picture:
        """Draw what is chosen now."""
        shape = [number.value for number in self.shape]
        mesh = [number.value for number in self.mesh[: self._num_axes()]]
        placements = [buttons.value for buttons in self.placements[: self._num_axes()]]
        ranks = f"{mesh[0]} rank{'s' * (mesh[0] > 1)}" if len(mesh) == 1 else f"a {mesh[0]} x {mesh[1]} mesh"
        title = f"{shape[0]} x {shape[1]} on {ranks}: {', '.join(placements)}"
        return shards(shape, boxes_by_rank(shape, mesh, placements), title)

    def redraw(self, change: object = None) -> None:
        """Show what is chosen now; a change of any control comes here."""
        self.placements[1].disabled = self._num_axes() == 1
        picture = self.picture()
        shown = (picture.bundle(), {"text/plain": picture.text})
        self.output.outputs = tuple({"output_type": "display_data", "data": data, "metadata": {}} for data in shown)

    def _num_axes(self) -> int:
        return 1 if self.mesh[1].value == 1 else 2

    def _ipython_display_(self) -> None:
        """Show the widget, and apart from it the words of this choice, which stay when the widget is gone."""
        picture = self.picture()
        view = {"model_id": self.box.model_id, "version_major": 2, "version_minor": 0}
        show({"application/vnd.jupyter.widget-view+json": view, "text/plain": picture.text})
        show({"text/html": picture.fold("In words, as first chosen (run the cell to choose)")})


def _number(label: str, most: int, value: int) -> Any:
    return ipywidgets.BoundedIntText(description=label, min=1, max=most, value=value, style=LABEL_WIDTH)


def _buttons(axis: int, chosen: str) -> Any:
    """Give a button a placement; its tooltip names the axis too, for who does not see what stands beside it."""
    return ipywidgets.ToggleButtons(
        description=f"Placement on axis {axis}",
        options=PLACEMENTS,
        value=chosen,
        tooltips=[f"{placement} on axis {axis}" for placement in PLACEMENTS],
        style=LABEL_WIDTH,
    )

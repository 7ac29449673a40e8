"""`differences`: at which step a run is no longer the unbroken one, and in what. Only zero or not, never how much."""

from collections.abc import Iterator, Mapping, Sequence

import plotly.graph_objects as go

from ckptlab.course.figures import colours
from ckptlab.course.figures.picture import Picture, draw, table, written
from ckptlab.errors import UsageError

Runs = Mapping[str, Mapping[str, Sequence[bool]]]  # by run and what is compared: whether it differs, a step at a time
SIGNS = ("0", "≠ 0")
FILLS = (colours.SKY, colours.ORANGE)
AXIS_HEIGHT, CELL_HEIGHT = 46, 24  # pixels


def differences(runs: Runs, *, first_step: int = 1, title: str = "") -> Picture:
    """Draw for each run what is exactly that of the unbroken run and what is not, step by step.

    Args:
        runs: the run's name to what is compared (a loss, a model), to whether it differs in each step, the first step first;
            NumPy's booleans too, as ranks hand them back.
        first_step: the number of that step.
        title: what the figure is called.

    Raises:
        UsageError: there is no run, a run compares nothing, or the rows are not equally many steps long.

    >>> lost = {"moments": {"loss": [False, True], "model": [True, True]}, "buffer": {"loss": [False, False]}}
    >>> print(differences(lost, first_step=6).text)
    Difference from the unbroken run
             step     6    7
    moments  loss     0  ≠ 0
    moments  model  ≠ 0  ≠ 0
    buffer   loss     0    0
    moments: loss from step 7 on, model from step 6 on
    buffer: loss in no step
    """
    runs = {run: {what: list(map(bool, flags)) for what, flags in compared.items()} for run, compared in runs.items()}
    if empty := [run for run, compared in runs.items() if not compared]:
        raise UsageError(f"of the runs {empty} nothing is compared; give each a row, such as a loss, or leave them out")
    lengths = {len(flags) for compared in runs.values() for flags in compared.values()}
    if len(lengths) != 1 or lengths == {0}:
        raise UsageError(f"the rows are {sorted(lengths)} steps long; expected one row or more, all equally long, at least 1")
    steps = range(first_step, first_step + lengths.pop())
    title = title or "Difference from the unbroken run"
    rows = [
        ["", "step", *map(str, steps)],
        *([run, what, *(SIGNS[differs] for differs in flags)] for run, what, flags in _rows(runs)),
    ]
    text = "\n".join([title, table(rows, left=2), *_lines(runs, steps)])
    return Picture(figure=_figure(title, runs, steps), text=text)


def _rows(runs: Runs) -> Iterator[tuple[str, str, Sequence[bool]]]:
    for run, compared in runs.items():
        for what, flags in compared.items():
            yield run, what, flags


def _lines(runs: Runs, steps: range) -> Iterator[str]:
    """Say of each run in which steps it differs."""
    for run, compared in runs.items():
        yield f"{run}: " + ", ".join(f"{what} {_when(flags, steps)}" for what, flags in compared.items())


def _when(flags: Sequence[bool], steps: range) -> str:
    differing = [step for step, differs in zip(steps, flags, strict=True) if differs]
    if not differing:
        return "in no step"
    if len(differing) == steps[-1] - differing[0] + 1:
        return f"from step {differing[0]} on"
    return f"in step{'s' * (len(differing) > 1)} {', '.join(map(str, differing))}"


def _figure(title: str, runs: Runs, steps: range) -> go.Figure:
    rows = list(_rows(runs))
    begins = [number for number, row in enumerate(rows) if number == 0 or row[0] != rows[number - 1][0]]  # of each run
    labels = [f"{run}: {what}" if number in begins else what for number, (run, what, _) in enumerate(rows)]
    across = [steps[0] - 0.5, steps[-1] + 0.5]
    ticks = {"tickvals": list(range(len(rows))), "ticktext": [written(label) for label in labels]}
    return draw(
        [_cells([flags for _, _, flags in rows], steps)],
        title,
        CELL_HEIGHT * len(rows),
        below=AXIS_HEIGHT,
        xaxis={"title": "step", "showgrid": False, "dtick": 1, "range": across},
        yaxis={"showgrid": False, "range": [len(rows) - 0.5, -0.5], **ticks},
        shapes=[_line(across, number - 0.5) for number in begins[1:]],
    )


def _cells(flags: Sequence[Sequence[bool]], steps: range) -> go.Heatmap:
    return go.Heatmap(
        x=list(steps),
        y=list(range(len(flags))),
        z=[[int(differs) for differs in row] for row in flags],
        zmin=-0.5,
        zmax=1.5,
        colorscale=[[(number + side) / 2, fill] for number, fill in enumerate(FILLS) for side in (0, 1)],
        text=[[SIGNS[differs] for differs in row] for row in flags],
        texttemplate="%{text}",
        textfont={"color": colours.LABEL, "size": 13},
        hovertemplate="step %{x}: %{text}<extra></extra>",
        showscale=False,
        xgap=1,
        ygap=1,
    )


def _line(across: Sequence[float], y: float) -> dict[str, object]:
    """Draw a line between two runs."""
    return {"type": "line", "x0": across[0], "x1": across[1], "y0": y, "y1": y, "line": {"color": colours.LABEL, "width": 2}}

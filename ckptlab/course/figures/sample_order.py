"""`sample_order`: which samples each rank trained on, step by step, before and after a resume."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import plotly.graph_objects as go

from ckptlab.course.figures import colours
from ckptlab.course.figures.picture import Picture, draw, table
from ckptlab.errors import UsageError

Trained = Sequence[Sequence[Sequence[int]]]  # by rank and step
AGAIN = "*"
RESUME = "|"
FILLS = (colours.SKY, colours.GREEN, colours.ORANGE)  # of even epochs, of odd ones, of repeats
MARK_LINE, AXIS_HEIGHT, CELL_HEIGHT = 18, 46, 24  # pixels


def sample_order(
    trained: Trained, *, steps_in_epoch: int, num_samples: int = 0, resumed_after: Sequence[int] = (), title: str = ""
) -> Picture:
    """Draw the samples of every rank and step; a sample that was there before in the same epoch is marked.

    Args:
        trained: for each rank the samples of each step, the first step first.
        steps_in_epoch: how many steps an epoch has; the first epoch is epoch 0.
        num_samples: of the data set, to say what an epoch left out; 0 says nothing of it.
        resumed_after: the numbers of the steps, counted from 1, after which the run was stopped and resumed.
        title: what the figure is called.

    Raises:
        UsageError: the ranks have not trained for the same number of steps.

    >>> print(sample_order([[[7], [0], [7]], [[2], [5], [1]]], steps_in_epoch=3, resumed_after=[2]).text)
    Samples by rank and step
    epoch   0  0  |   0
    step    1  2  |   3
    rank 0  7  0  |  7*
    rank 1  2  5  |   1
    | the run was resumed after step 2, in epoch 0
    epoch 0, steps 1-3: 5 samples, 4 of them once, and again (*): 7
    """
    order = Order.of(trained, steps_in_epoch, num_samples, resumed_after)
    title = title or "Samples by rank and step"
    text = "\n".join([title, table(order.rows(), left=1), *order.lines()])
    return Picture(figure=_figure(title, order), text=text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What was trained on, with what repeats marked."""

    trained: Trained
    labels: list[list[list[str]]]  # by rank and step
    steps_in_epoch: int
    num_samples: int
    resumed_after: list[int]

    @classmethod
    def of(cls, trained: Trained, steps_in_epoch: int, num_samples: int, resumed_after: Sequence[int]) -> Self:
        """Find what repeats."""
        lengths = [len(steps) for steps in trained]
        if not trained or len(set(lengths)) > 1 or steps_in_epoch < 1:
            raise UsageError(f"the ranks trained for {lengths} steps, {steps_in_epoch} in an epoch; expected equally many each")
        labels: list[list[list[str]]] = [[] for _ in trained]
        seen: set[int] = set()
        for step in range(lengths[0]):
            seen = set() if step % steps_in_epoch == 0 else seen
            for rank, steps in enumerate(trained):
                labels[rank].append([])
                for sample in steps[step]:
                    labels[rank][step].append(f"{sample}{AGAIN * (sample in seen)}")
                    seen.add(sample)
        resumes = sorted({step for step in resumed_after if 0 < step < lengths[0]})
        return cls(
            trained=trained,
            labels=labels,
            steps_in_epoch=steps_in_epoch,
            num_samples=num_samples,
            resumed_after=resumes,
        )

    @property
    def num_steps(self) -> int:
        """How many steps there are."""
        return len(self.labels[0])

    @property
    def slots(self) -> int:
        """How many samples a rank takes in a step, at most."""
        return max((len(labels) for steps in self.labels for labels in steps), default=1)

    def epochs(self) -> Iterator[tuple[int, range]]:
        """Give each epoch with the numbers of its steps, counted from 1."""
        for epoch, first in enumerate(range(1, self.num_steps + 1, self.steps_in_epoch)):
            yield epoch, range(first, min(first + self.steps_in_epoch, self.num_steps + 1))

    def rows(self) -> Iterator[list[str]]:
        """Give the table, with a column of lines where the run was resumed."""
        steps = range(1, self.num_steps + 1)
        yield self._row("epoch", [str((step - 1) // self.steps_in_epoch) for step in steps])
        yield self._row("step", [str(step) for step in steps])
        for rank, by_step in enumerate(self.labels):
            yield self._row(f"rank {rank}", [" ".join(labels) for labels in by_step])

    def lines(self) -> Iterator[str]:
        """Say where the run was resumed and what each epoch trained on."""
        for step in self.resumed_after:
            yield f"{RESUME} the run was resumed after step {step}, {self._place(step)}"
        for epoch, steps in self.epochs():
            counts = Counter(sample for by_step in self.trained for step in steps for sample in by_step[step - 1])
            again = sorted(sample for sample, count in counts.items() if count > 1)
            left_out = sorted(set(range(self.num_samples)) - counts.keys()) if len(steps) == self.steps_in_epoch else []
            yield f"{_span(epoch, steps)}: {_count(len(counts), len(again))}{_list('and again (*)', again)}" + _list(
                "left out", left_out
            )

    def _row(self, name: str, cells: Sequence[str]) -> list[str]:
        row = [name]
        for step, cell in enumerate(cells, start=1):
            row += [cell, RESUME] if step in self.resumed_after else [cell]
        return row

    def _place(self, step: int) -> str:
        epoch, rest = divmod(step, self.steps_in_epoch)
        return f"in epoch {epoch}" if rest else f"at the edge of epochs {epoch - 1} and {epoch}"


def _span(epoch: int, steps: range) -> str:
    return f"epoch {epoch}, step {steps[0]}" if len(steps) == 1 else f"epoch {epoch}, steps {steps[0]}-{steps[-1]}"


def _count(num_samples: int, num_again: int) -> str:
    return f"{num_samples} samples, {f'{num_samples - num_again} of them' if num_again else 'each'} once"


def _list(name: str, samples: Sequence[int]) -> str:
    return f", {name}: {', '.join(map(str, samples))}" if samples else ""


def _figure(title: str, order: Order) -> go.Figure:
    slots, num_ranks = order.slots, len(order.labels)
    lines = [
        [labels[slot] if slot < len(labels) else "" for labels in by_step] for by_step in order.labels for slot in range(slots)
    ]
    is_again = any(label.endswith(AGAIN) for line in lines for label in line)
    cells = go.Heatmap(
        x=list(range(1, order.num_steps + 1)),
        y=list(range(len(lines))),
        z=[[_fill(label, step // order.steps_in_epoch) for step, label in enumerate(line)] for line in lines],
        zmin=-0.5,
        zmax=len(FILLS) - 0.5,
        colorscale=[[(number + side) / len(FILLS), fill] for number, fill in enumerate(FILLS) for side in (0, 1)],
        text=lines,
        texttemplate="%{text}",
        textfont={"color": colours.LABEL, "size": 11 if order.num_steps > 11 else 13},
        hovertemplate="step %{x}: sample %{text}<extra></extra>",
        showscale=False,
        xgap=1,
        ygap=1,
    )
    axis = f"step ({AGAIN} trained on before in the same epoch)" if is_again else "step"
    xaxis = {
        "title": axis,
        "showgrid": False,
        "dtick": 1,
        "range": [0.5, order.num_steps + 0.5],
    }
    yaxis = {
        "showgrid": False,
        "tickvals": [rank * slots + (slots - 1) / 2 for rank in range(num_ranks)],
        "ticktext": [f"rank {rank}" for rank in range(num_ranks)],
        "range": [len(lines) - 0.5, -0.5],
    }
    ranks = [_line({"x0": 0.5, "x1": order.num_steps + 0.5, "y0": rank * slots - 0.5}, 2) for rank in range(1, num_ranks)]
    edges = [_line({"x0": steps[0] - 0.5}, 2, dash="dot") for epoch, steps in order.epochs() if epoch]
    resumes = [_line({"x0": step + 0.5}, 4) for step in order.resumed_after]
    notes = [_note((steps[0] + steps[-1]) / 2, f"epoch {epoch}", 0) for epoch, steps in order.epochs()]
    notes += [_note(step + 0.5, "resume", MARK_LINE) for step in order.resumed_after]
    return draw(
        [cells],
        title,
        CELL_HEIGHT * len(lines),
        above=MARK_LINE * 2,
        below=AXIS_HEIGHT,
        xaxis=xaxis,
        yaxis=yaxis,
        shapes=[*ranks, *edges, *resumes],
        annotations=notes,
    )


def _fill(label: str, epoch: int) -> int | None:
    """Give the number of a cell's fill; epochs take turns."""
    return (2 if label.endswith(AGAIN) else epoch % 2) if label else None


def _line(at: dict[str, float], width: int, dash: str = "solid") -> dict[str, object]:
    """Draw a line on the cells: down the plot at `x0`, or across it at `y0`."""
    across = {"y1": at["y0"]} if "y0" in at else {"x1": at["x0"], "y0": 0, "y1": 1, "yref": "paper"}
    return {"type": "line", **at, **across, "line": {"color": colours.LABEL, "width": width, "dash": dash}}


def _note(x: float, text: str, shift: int) -> dict[str, object]:
    place = {"x": x, "y": 1, "yref": "paper", "yanchor": "bottom", "yshift": shift}
    return {"text": text, "showarrow": False, "font": {"size": 12}, **place}

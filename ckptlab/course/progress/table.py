"""The table of progress: a row a lab, in text and in HTML. Pure but for the language."""

import html
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from ckptlab.course.content import lab_of
from ckptlab.course.languages import Message, tell
from ckptlab.course.markup import about_drafts, as_heading, as_html, heading_lines
from ckptlab.course.progress.fold import Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One lab."""

    lab: str
    right: int  # over budget or not
    over_budget: int
    tried: int
    exercises: int  # all that there are
    predictions: int  # made

    def cells(self) -> tuple[str, ...]:
        """Return what the table shows."""
        return self.lab, *(
            str(number) for number in (self.right, self.over_budget, self.tried, self.exercises, self.predictions)
        )


class Table:
    """Shows itself in a notebook and in a terminal."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = tuple(rows)

    def __repr__(self) -> str:
        texts = [*heading_lines(_head()), *(row.cells() for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
        lines = (
            [text[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(text[1:], widths[1:], strict=True))]
            for text in texts
        )
        return "\n".join([*("  ".join(line).rstrip() for line in lines), *map(str, about_drafts(_head()))])

    def _repr_html_(self) -> str:
        head = "".join(f'<th scope="col">{as_heading(tell(message))}</th>' for message in _head())
        rows = (
            f'<th scope="row">{html.escape(lab)}</th>' + "".join(f"<td>{cell}</td>" for cell in cells)
            for lab, *cells in (row.cells() for row in self.rows)
        )
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        note = "".join(map(as_html, about_drafts(_head())))
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}"

    def to_json(self) -> list[dict[str, object]]:
        """Return the rows for a program."""
        return [asdict(row) for row in self.rows]


def make_table(labs: Sequence[str], exercises: Sequence[str], facts: Facts) -> Table:
    """Count by lab ("02 shards"), from the ids of all exercises and what the journal says."""
    return Table([_row(lab, [id_ for id_ in exercises if lab_of(id_) == lab[:2]], facts) for lab in labs])


def _head() -> list[Message]:
    return [
        Message("progress.lab", "lab"),
        Message("progress.right", "right"),
        Message("progress.over", "over budget"),
        Message("progress.tried", "tried"),
        Message("progress.exercises", "exercises"),
        Message("progress.predictions", "predictions"),
    ]


def _row(lab: str, exercises: Sequence[str], facts: Facts) -> Row:
    states = [facts.tried(id_).state for id_ in exercises]
    return Row(
        lab=lab,
        right=states.count("right") + states.count("right, but"),
        over_budget=states.count("right, but"),
        tried=len(states) - states.count("untried"),
        exercises=len(exercises),
        predictions=sum(lab_of(id_) == lab[:2] for id_ in facts.predictions),
    )

"""Every lab, run once from top to bottom in JupyterLab, as a learner would who has written nothing yet."""

import re

import pytest
from notebook_page import PAINTED, Notebook, errors, outputs_of

from ckptlab.course.content import notebooks

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]


@pytest.mark.parametrize("name", [path.name for path in notebooks()])
def test_a_lab_runs_to_its_end_with_figures_and_widgets_and_without_errors(course, page, photograph, name: str) -> None:
    notebook = Notebook(page, *course, name)
    notebook.run_all()
    cells = notebook.saved()
    notebook.show_whole()
    photograph(page, name)
    assert errors(cells) == []
    assert [cell["source"] for cell in cells if cell["cell_type"] == "code" and cell["execution_count"] is None] == []
    figures = page.locator(".jp-Notebook .js-plotly-plot").all()
    assert len(figures) >= outputs_of(cells, "application/vnd.plotly.v1+json")  # a widget may draw more
    assert [figure.inner_text()[:60] for figure in figures if not figure.evaluate(PAINTED)] == []
    widgets = page.locator(".jp-Notebook .jp-OutputArea-output > .jupyter-widgets, .jp-Notebook .widget-subarea > *").all()
    assert len(widgets) >= outputs_of(cells, "application/vnd.jupyter.widget-view+json")
    assert all(widget.is_visible() for widget in widgets)
    assert page.get_by_text(re.compile("Error displaying widget|Loading widget")).count() == 0
    notebook.menu("Kernel", "Shut Down Kernel")

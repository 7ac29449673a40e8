"""A notebook in JupyterLab, driven as a learner does it: with menus, keys and what is seen on the page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # `make test` reads this file where playwright is not installed
    from playwright.sync_api import Locator, Page

MILLISECONDS = 60_000
AREA = ".jp-Cell-outputArea"
PAINTED = """(figure) => [...figure.querySelectorAll('svg :is(path, rect, image)')]
    .filter((mark) => !mark.closest('defs, .clips, .patterns, .bglayer, .draglayer, .legend'))
    .filter((mark) => mark.tagName === 'image' || getComputedStyle(mark).fill !== 'none')
    .filter((mark) => { const box = mark.getBoundingClientRect(); return box.width * box.height > 25 }).length"""
IMAGE = "(figure) => [...figure.querySelectorAll('img')].some((image) => image.naturalWidth > 0)"
FINISHED = """() => {
    const prompts = [...document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')].map((prompt) => prompt.innerText);
    return prompts.length > 0 && prompts.every((prompt) => /[0-9]/.test(prompt));
}"""

TOO_WIDE = """() => {
    const end = document.querySelector('.jp-Notebook').getBoundingClientRect().right;
    return [...document.querySelectorAll('.jp-Notebook .jp-OutputArea-output')]
        .filter((output) => [output, ...output.querySelectorAll(':not(table, table *)')]
            .some((part) => part.getBoundingClientRect().right > end + 1))
        .map((output) => output.innerText.slice(0, 60));
}"""  # the cell outputs that reach beyond the notebook, by what they begin with; a table may, for its output scrolls
CONTRAST = """() => {
    const light = (rgb) => {
        const [r, g, b] = rgb.match(/[0-9.]+/g).map((c) => c / 255)
            .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const page = light(getComputedStyle(document.querySelector('.jp-Notebook')).backgroundColor);
    const groups = '.g-gtitle, .xtick, .ytick, .g-xtitle, .g-ytitle, .legend, .annotation';
    return [...document.querySelectorAll(`.js-plotly-plot :is(${groups}) text`)]
        .map((text) => light(getComputedStyle(text).fill))
        .map((text) => (Math.max(text, page) + 0.05) / (Math.min(text, page) + 0.05));
}"""  # of every text of a figure with the page, as WCAG 2.2 reckons it; 4.5 is asked of text


class Notebook:
    """A learner's copy of a lab, alone in JupyterLab, with its kernel started."""

    def __init__(self, page: Page, folder: Path, address: str, name: str) -> None:
        self.page = page
        self.path = folder / "my-labs" / name
        page.set_viewport_size({"width": 1280, "height": 900})
        page.goto(re.sub(r"tree/[^?]+", f"tree/{name}", address) + "&reset")  # without the tabs of an earlier test
        self.wait_for_kernel()

    def wait_for_kernel(self) -> None:
        """Wait until the status line calls a kernel idle; before there is one, Run All does nothing at all."""
        self.page.get_by_text("Python 3 (ipykernel) | Idle").wait_for(timeout=MILLISECONDS)

    def menu(self, *names: str) -> None:
        """Choose from the menu: `menu("Run", "Run All Cells")`."""
        first, *rest = names
        self.page.get_by_role("menuitem", name=first, exact=True).click()
        for name in rest:  # submenus have no role
            self.page.locator(".lm-Menu-item:visible", has_text=re.compile(rf"^\s*{re.escape(name)}")).first.click()

    def run_all(self) -> None:
        self.menu("Run", "Run All Cells")
        self.page.wait_for_function(FINISHED, timeout=2 * MILLISECONDS)
        self.wait_for_kernel()

    def restart_kernel(self) -> None:
        self.menu("Kernel", "Restart Kernel…")
        self.page.get_by_role("button", name="Confirm Kernel Restart").click()
        self.page.wait_for_function(
            "() => ![...document.querySelectorAll('.jp-Notebook .jp-InputPrompt')].some((p) => p.innerText === '[*]:')"
        )
        self.wait_for_kernel()

    def saved(self) -> list[dict]:
        """Save it and return the cells as they stand in the file."""
        before = self.path.stat().st_mtime_ns
        self.menu("File", "Save Notebook")
        self.page.wait_for_timeout(300)
        for _ in range(100):
            if self.path.stat().st_mtime_ns != before:
                return json.loads(self.path.read_text())["cells"]
            self.page.wait_for_timeout(100)
        raise AssertionError(f"{self.path.name} was not saved")

    def cell(self, text: str) -> Locator:
        """Return the first code cell whose source has `text`."""
        return self.page.locator(".jp-CodeCell", has=self.page.locator(".cm-content", has_text=text)).first

    def write(self, cell: Locator, source: str) -> None:
        """Replace a cell's source, as by pasting."""
        cell.locator(".cm-content").click()
        self.page.keyboard.press("Control+A")
        self.page.keyboard.insert_text(source)

    def add_below(self, cell: Locator, source: str) -> Locator:
        """Add a cell below another."""
        cell.locator(".cm-content").click()
        self.page.keyboard.press("Escape")
        self.page.keyboard.press("b")
        added = self.page.locator(".jp-CodeCell.jp-mod-active", has_text=re.compile(r"^\W*$"))
        added.wait_for()
        self.page.keyboard.press("Enter")
        added.locator(".cm-editor.cm-focused").wait_for()
        self.page.keyboard.insert_text(source)
        return self.cell(source)

    def wait_for_change(self, element: Locator, text: str) -> None:
        """Wait until something on the page says another thing than `text`."""
        self.page.wait_for_function("([e, text]) => e.innerText !== text", arg=[element.element_handle(), text])

    def go_to(self, text: str) -> None:
        """Go to the code cell with `text` by the arrow keys."""
        active = self.page.locator(".jp-Cell.jp-mod-active .cm-content")
        for key in ("ArrowUp", "ArrowDown"):
            for _ in range(self.page.locator(".jp-Cell").count()):
                if text in active.inner_text():
                    return
                self.page.keyboard.press(key)
        raise AssertionError(f"the arrow keys lead to no cell with {text!r}")

    def run(self, cell: Locator) -> str:
        """Run a cell by Ctrl+Enter, which stays on it; return the text below it."""
        before = cell.locator(".jp-InputPrompt").inner_text()
        cell.locator(".cm-content").click()
        self.page.keyboard.press("Control+Enter")
        return self.answer(cell, before)

    def answer(self, cell: Locator, before: str) -> str:
        """Wait until a cell whose prompt was `before` has run; return the text below it."""
        from playwright.sync_api import expect

        prompt = cell.locator(".jp-InputPrompt")
        expect(prompt).not_to_have_text(before, timeout=MILLISECONDS)
        expect(prompt).to_have_text(re.compile(r"\[\d+\]:"), timeout=MILLISECONDS)
        return cell.locator(AREA).inner_text()

    def show_whole(self, width: int = 1280) -> None:
        """Make the window as high as the notebook, so that everything is drawn and a picture shows it."""
        self.page.set_viewport_size({"width": width, "height": 900})
        for _ in range(2):  # what comes into view may grow
            cells = self.page.locator(".jp-Notebook .jp-Cell")
            first, last = cells.first.bounding_box(), cells.last.bounding_box()
            assert first is not None
            assert last is not None
            height = last["y"] + last["height"] - first["y"] + 200
            self.page.set_viewport_size({"width": width, "height": int(height)})
            self.page.wait_for_timeout(500)
        self.page.locator(".jp-WindowedPanel-outer").first.evaluate("(panel) => panel.scrollTo(0, 0)")


def errors(cells: list[dict]) -> list[str]:
    """What went wrong in cells that are not meant to: errors, and what was written to stderr."""
    return [
        f"{''.join(cell['source'])[:60]!r}: {output.get('evalue') or ''.join(output.get('text', ''))}"
        for cell in cells
        if cell["cell_type"] == "code" and "raises-exception" not in cell["metadata"].get("tags", ())
        for output in cell["outputs"]
        if output["output_type"] == "error" or output.get("name") == "stderr"
    ]


def outputs_of(cells: list[dict], mime_type: str) -> int:
    """Count the outputs of a kind."""
    return sum(mime_type in output.get("data", ()) for cell in cells for output in cell.get("outputs", ()))

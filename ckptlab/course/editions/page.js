// Draws each figure in the place of its words, which stand in the fold below it too. Without this script the words stay.
for (const figure of document.querySelectorAll(".figure")) {
  const words = figure.querySelector("pre");
  const { data, layout, config } = JSON.parse(figure.querySelector("script").textContent);
  const drawing = figure.appendChild(document.createElement("div"));
  drawing.setAttribute("role", "img");
  drawing.setAttribute("aria-label", words.textContent.split("\n")[0]);
  Plotly.newPlot(drawing, data, layout, { ...config, responsive: true });
  words.remove();
}

// A table of many columns stands row under row on a phone, so each cell says of which column it is.
for (const table of document.querySelectorAll("main > .wide > table:has(th:nth-child(5))")) {
  const columns = [...table.querySelectorAll("th")].map((heading) => heading.textContent);
  for (const row of table.tBodies[0].rows) [...row.cells].forEach((cell, at) => (cell.dataset.column = columns[at]));
  table.classList.add("many");
}

// A box that scrolls can be reached by the keyboard; one that does not is no stop on the way.
const boxes = new ResizeObserver((changes) => {
  for (const { target } of changes) {
    if (target.scrollWidth > target.clientWidth) target.tabIndex = 0;
    else target.removeAttribute("tabindex");
  }
});
document.querySelectorAll("pre, .wide").forEach((box) => boxes.observe(box));

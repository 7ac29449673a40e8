"""Colours for every figure: Okabe and Ito's, which colour-blind people can tell apart, each with a label or pattern beside it.

Black is left out, for it is lost on a dark page; grey stands in for it. Blue is left out, for it is the only one on which
the labels' black does not reach a contrast of 4.5 to 1, so that one label colour serves everywhere.
"""

ORANGE, SKY, GREEN, YELLOW, VERMILLION, PURPLE, GREY = FILLS = (
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#F0E442",
    "#D55E00",
    "#CC79A7",
    "#999999",
)
LABEL = "#000000"  # on a fill
TEXT = "#797979"  # on the page: 4.3 to 1 on JupyterLab's white and on its dark #111111; no colour has more on both
# Where a page takes it, it gives figures without a ground of their own the page's own text colour. Every figure brings it,
# for JupyterLab takes outputs out of the page that are out of sight, cleared or folded: none can carry it for all.
THEME_STYLE = (
    '<style>.js-plotly-plot:has(.main-svg[style*="rgba(0, 0, 0, 0)"])'
    " :is(.gtitle, .xtitle, .ytitle, .xtick text, .ytick text, .legendtext, .annotation-text)"
    f"{{fill: var(--jp-content-font-color1, {TEXT}) !important}}</style>"
)
LINE = "rgba(128, 128, 128, 0.5)"
CLEAR = "rgba(0, 0, 0, 0)"


def fill(number: int) -> str:
    """Give the fill of the thing with this number; after seven they come again."""
    return FILLS[number % len(FILLS)]

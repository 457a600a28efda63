"""One house style for all figures, and how a figure becomes SVG: text as text, colours by name, no time and no machine in it.

A colour is drawn as its light value. In a page every such value is replaced by a CSS variable of the same name, so that the
figure follows the theme of its reader; alone it keeps the light ones, in a notebook on light paper.
"""

from __future__ import annotations

import re
from io import StringIO
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

INK, MUTED, HAIR, PAPER = "#1b242d", "#59646f", "#d5dbe1", "#fefefe"
BLUE, ORANGE, GREEN = "#0068a8", "#c84e00", "#00755a"  # of Okabe & Ito, darkened until they can be read as text
VARIABLES = {INK: "ink", MUTED: "muted", HAIR: "hair", PAPER: "paper", BLUE: "blue", ORANGE: "orange", GREEN: "green"}

_STYLE: dict[str, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": MUTED,
    "axes.grid": True,
    "axes.labelcolor": MUTED,
    "axes.labelsize": 9.5,
    "axes.linewidth": 0.7,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "axes.titlesize": 9.5,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that a layout is the same everywhere
    "font.size": 9.5,
    "grid.color": HAIR,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 9.0,
    "legend.handlelength": 1.4,
    "legend.labelcolor": INK,
    "lines.linewidth": 1.6,
    "path.simplify_threshold": 0.3,
    "svg.fonttype": "none",
    "svg.hashsalt": "coalmine",
    "text.color": INK,
    "text.parse_math": False,  # a dollar in a name is a dollar
    "xtick.color": MUTED,
    "xtick.major.size": 3,
    "xtick.major.width": 0.7,
    "ytick.color": MUTED,
    "ytick.major.size": 0,
}


class Drawing(Figure):
    """A figure that shows itself as SVG in a notebook, and has no window."""

    def _repr_svg_(self) -> str:
        """On paper of its own: a notebook may be dark, and has no variables for the colours."""
        paper = f'<rect width="100%" height="100%" rx="6" fill="{PAPER}"/>'
        return re.sub(r"<svg[^>]*>", lambda head: f"{head[0]}\n {paper}", svg(self), count=1)


def house_style() -> Any:
    """The context in which figures are drawn and written."""
    return mpl.rc_context(_STYLE)


def drawing(width: float, height: float, panels: int = 1) -> tuple[Drawing, list[Axes]]:
    """A figure of so many points, with panels from top to bottom; to be called and filled in the house style."""
    layout = ConstrainedLayoutEngine(w_pad=2 / 72, h_pad=3 / 72, hspace=0.06)
    figure = Drawing(figsize=(width / 72, height / 72), layout=layout)
    axes = figure.subplots(panels, 1, sharex=panels > 1, squeeze=False)
    return figure, list(axes[:, 0])


def svg(figure: Figure) -> str:
    """The figure as a whole SVG document, equal for equal figures."""
    written = StringIO()
    with house_style():
        if (layout := figure.get_layout_engine()) is not None:  # once: a second time it would move by a hair
            layout.execute(figure)
            figure.set_layout_engine("none")
        figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    return written.getvalue()


def inline_svg(figure: Figure, name: str, description: str) -> str:
    """The figure as an element of a page: themed, with ids of its own, as wide as its place allows.

    `name` is unique in the page; `description` says in words what is seen, for who does not see it.
    """
    text = svg(figure)
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"<style[^>]*>.*?</style>", "", text, flags=re.DOTALL)  # would hold for the whole page, which has its own
    text = _own_ids(text, name)
    text = re.sub(r"font: ([\d.]+px) '[^']*'(, [a-z-]+)*", r"font-size: \1", text)
    text = re.sub(r"font: (bold|700|600) ([\d.]+px) '[^']*'(, [a-z-]+)*", r"font-weight: 600; font-size: \2", text)
    for value, variable in VARIABLES.items():
        text = text.replace(value, f"var(--{variable})")
    box = re.search(r'viewBox="([^"]*)"', text)
    head = f'<svg role="img" aria-label="{_attribute(description)}" viewBox="{box[1] if box else "0 0 1 1"}">'
    text = re.sub(r"\s*\n\s*", "\n", re.sub(r"^<svg.*?>", lambda _: head, text, count=1, flags=re.DOTALL))
    return text.replace("xlink:href", "href").strip()


def _own_ids(text: str, name: str) -> str:
    """Ids that something refers to get the name in front; the others are left out."""
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', text))

    def rename(match: re.Match[str]) -> str:
        return f' id="{name}-{match[1]}"' if match[1] in used else ""

    text = re.sub(r'\sid="([^"]*)"', rename, text)
    text = re.sub(r"url\(#([^)]*)\)", rf"url(#{name}-\1)", text)
    return re.sub(r'href="#([^"]*)"', rf'href="#{name}-\1"', text)


def _attribute(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")

"""The noise that was measured in every round, beside the noise that was claimed."""

from __future__ import annotations

import numpy as np
from matplotlib.ticker import MaxNLocator
from scipy.special import ndtri

from coalmine.contracts import Conformance
from coalmine.report.style import BLUE, INK, ORANGE, Drawing, drawing, house_style

WIDTH, HEIGHT = 350.0, 226.0
MOST_POINTS = 160
_SHARE = 0.95  # of rounds that the band holds


def noise_by_round(conformance: Conformance) -> Drawing | None:
    """The measured noise multiplier of each round, or block of rounds; None where it is not known for two of them.

    With the claimed noise, sigma, the multiplier measured on n numbers is normal with standard deviation sigma / sqrt(2 n):
    shaded, where 95 % of the points of a correct mechanism lie.
    """
    measured = np.asarray(conformance.noise_by_round, dtype=float)
    if measured.size < 2 or not np.isfinite(measured).all():
        return None
    rounds = conformance.rounds_per_point * (np.arange(measured.size) + 0.5) + 0.5  # the middle of a block; rounds count from 1
    claimed = conformance.noise.claimed if conformance.noise is not None else None
    with house_style():
        figure, (axes,) = drawing(WIDTH, HEIGHT)
        if claimed is not None and np.isfinite(claimed):
            numbers = conformance.coordinates * conformance.rounds_per_point
            axes.axhline(claimed, color=INK, linewidth=1.3, linestyle=(0, (4, 2)), label=f"claimed {claimed:.4g}")
            if numbers > 0:
                spread = float(ndtri((1 + _SHARE) / 2)) * claimed / np.sqrt(2 * numbers)
                axes.axhspan(claimed - spread, claimed + spread, color=INK, alpha=0.12, linewidth=0, label="95 % if correct")
        keep = np.unique(np.linspace(0, measured.size - 1, MOST_POINTS).astype(int)) if measured.size > MOST_POINTS else ...
        colour = ORANGE if conformance.deviations else BLUE
        axes.plot(rounds[keep], measured[keep], "o", color=colour, markersize=3.2, label="measured", clip_on=False)
        axes.ticklabel_format(axis="y", useOffset=False)
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.set_xlabel("round")
        axes.set_ylabel("noise multiplier")
        axes.legend(
            loc="lower left", bbox_to_anchor=(-0.01, 0.99), ncols=3, borderaxespad=0.2, columnspacing=1.0, handletextpad=0.4
        )
    return figure

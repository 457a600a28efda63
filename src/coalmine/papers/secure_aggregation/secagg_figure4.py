"""Figure 4: the spectrum of one user's covariance, the water on it, and isotropic noise of the same floor."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from coalmine.mechanisms.spectrum import water_fill
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.paper_result import PaperCheck, PaperResult, PaperRow
from coalmine.papers.secure_aggregation.mnist import users_of

BATCH, EXAMPLES, CLIP, FLOORS = 32, 1200, 2.0, (1 / 120_000, 1 / 12_000, 1 / 1_200)


def reproduce(ask: Ask) -> PaperResult:
    """How much of isotropic noise water-filling adds, by its floor."""
    users = users_of(ask, users=1, examples=EXAMPLES, side=7)
    gradients = users.gradients(0, users.started, CLIP)
    spectrum = np.maximum(np.linalg.eigvalsh(gradients.T @ gradients / (BATCH * EXAMPLES))[::-1], 0.0)
    shares = [float(water_fill(spectrum, floor).sum() / (floor * spectrum.size)) for floor in FLOORS]
    rows = [
        PaperRow(f"noise added over isotropic noise, sigma² {floor:.2g}", "below 1", share,
                 verdict="same shape" if share < 1 else "differs",
                 note=f"{int((spectrum > floor).sum())} of {spectrum.size} directions above the water", place={"floor": floor})
        for floor, share in zip(FLOORS, shares, strict=True)
    ]  # fmt: skip
    rising = all(before < after for before, after in itertools.pairwise(shares))
    return PaperResult(
        "secagg-figure4",
        "Figure 4: water-filling noise and isotropic noise on the spectrum of one user, softmax on 7 x 7 MNIST",
        tuple(rows),
        checks=(PaperCheck("the more noise is needed, the less of it water-filling saves", rising),),
        about=ask.about(batch=BATCH, examples=EXAMPLES, clip_norm=CLIP),
        details={"spectrum": spectrum.tolist()},
        figure=lambda: _figure(spectrum),
    )


def _figure(spectrum: Any) -> Any:
    from coalmine.report.spectrum import water_and_ground

    return water_and_ground(spectrum, FLOORS[0])

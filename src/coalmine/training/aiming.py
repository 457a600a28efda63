"""Where aimed canaries point: the covariance of a round at the first model, which the auditor computes from everybody's data.

Directions stay the same in all rounds. The covariance that scores are whitened by is that of each round itself, so that a
direction that is no longer the weakest one costs power, and nothing else.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

import numpy as np

from coalmine._random import stream
from coalmine.accounting.gaussian_sampling import record_epsilon
from coalmine.accounting.water_filling import WaterFillingEvent
from coalmine.canaries.aimed import MOST, Aim, directions_of
from coalmine.clients import LocalTraining, Trainer
from coalmine.contracts import Array, Description, LowRank, plain
from coalmine.data import FederatedDataset
from coalmine.gaussian_pairs import pair_epsilon
from coalmine.mechanisms.covariance import ExampleNoise, Whitening, added
from coalmine.mechanisms.examples import clipped_rows
from coalmine.mechanisms.spectrum import leverages
from coalmine.models import Model

FILE = "spectrum.json"
MOST_ROWS = 1 << 26  # numbers of all gradients together that are held for the spectrum: half a gigabyte
_LEVERAGES = 1 << 23  # numbers of all gradients, up to which the leverage of every record is computed
_SPECTRUM = 2000  # eigenvalues that are kept to be drawn


def aim_canaries(
    aim: str,
    *,
    pool: int,
    data: FederatedDataset,
    model: Model,
    training: LocalTraining,
    description: Description,
    cohort: float,
    seed: int,
    secret_seed: int,
    delta: float,
    times: int,
) -> Aim:
    """Directions by the aim, from the gradients of as many users as a round has; outside the span, of all users.

    `times` is how often a canary takes part: what is compared with the measurement is as often.
    """
    noise, users = ExampleNoise.of(description), list(data.users)
    count = min(len(users), math.ceil(cohort))
    places = range(len(users)) if aim == "outside-span" else np.linspace(0, len(users) - 1, count).astype(int)
    rows = _rows(data, [users[place] for place in places], model, training, seed, noise.clip_norm)
    parts = [noise.covariance(each) for each in rows]
    whole = added(parts, model.dim)
    looked_at = LowRank(0.0, np.vstack(rows).astype(np.float64).T) if aim == "outside-span" else whole
    chosen = directions_of(looked_at, min(MOST, pool), aim, stream(secret_seed, "aimed"))
    heights = Whitening(whole).variances(chosen)
    return Aim(
        aim=aim,
        directions=chosen,
        ground=_ground(rows, noise.scale),
        level=whole.floor,
        heights=heights,
        epsilons=_record_epsilons(rows, description, delta),
        marks=tuple(_marks(noise, whole.floor, float(np.median(heights)), len(parts), description, delta, times)),
    )


def as_file(aim: Aim) -> bytes:
    """For the auditor's directory: what the page draws. All of it is a function of the data."""
    found = {
        "aim": aim.aim,
        "ground": aim.ground[:_SPECTRUM].tolist(),
        "level": aim.level,
        "heights": aim.heights.tolist(),
        "epsilons": None if aim.epsilons is None else aim.epsilons.tolist(),
        "marks": [{"what": what, "epsilon": value} for what, value in aim.marks],
        "secret": "functions of the data: for the auditor alone",
    }
    return (json.dumps(plain(found), indent=1) + "\n").encode()


def _rows(
    data: FederatedDataset, users: list[str], model: Model, training: LocalTraining, seed: int, norm: float
) -> list[Array]:
    """Clipped gradients of each user at the first model."""
    trainer, parameters, found, total = Trainer(model, training), model.initial(seed), [], 0
    for user in users:
        kept, _ = clipped_rows(trainer.single_updates(parameters, data.examples_of(user)), norm)
        total += kept.size
        if total > MOST_ROWS:
            raise ValueError(
                f"canaries.family = 'aimed': the gradients of {len(users)} users have more than {MOST_ROWS:.1g} numbers. Take "
                "a smaller model, fewer users (data.users, participation.cohort_size) or fewer examples of each (data.cap)."
            )
        found.append(kept)
    return found


def _ground(rows: list[Array], scale: float) -> Array:
    """Eigenvalues of what the weights alone make of a round, falling; those that are not there are zero."""
    stacked = np.vstack(rows).astype(np.float64)
    gram = stacked.T @ stacked if stacked.shape[1] <= stacked.shape[0] else stacked @ stacked.T
    values = np.maximum(np.linalg.eigvalsh(gram)[::-1], 0.0) * scale
    return np.concatenate([values, np.zeros(max(min(stacked.shape[1], _SPECTRUM) - values.size, 0))])


def _record_epsilons(rows: list[Array], description: Description, delta: float) -> Array | None:
    """Epsilon of every record in one sum with Gaussian weights and no noise; None: too many numbers."""
    examples = description.examples
    if examples is None or sum(each.size for each in rows) > _LEVERAGES:
        return None
    return np.asarray(record_epsilon(leverages(np.vstack(rows)), examples.batch, examples.count, delta))


def _marks(
    noise: ExampleNoise, level: float, height: float, users: int, description: Description, delta: float, times: int
) -> Iterator[tuple[str, float]]:
    """One record against a zero gradient: what the canaries' own pair has, and what is claimed elsewhere."""
    if not level > 0 or description.examples is None:
        return
    own = pair_epsilon([1 + noise.lift / height], [noise.share / math.sqrt(height)], delta, times=times)
    yield "the canaries' own pair", own
    yield "plain noise of the same floor", pair_epsilon([1.0], [noise.share / math.sqrt(level)], delta, times=times)
    if noise.scale:
        count, batch = description.examples.count, description.examples.batch
        made = (noise.clip_norm, count, batch, users, noise.floor)
        yield "claimed, tight", WaterFillingEvent(*made, "tight", "zero-out").epsilon(delta, times, "tight")
        yield "Theorem 4 (an example replaced)", WaterFillingEvent(*made, "theorem4").epsilon(delta, times, "tight")

"""What clients would lose if the frozen draws of an audit were published: each is one more noisy release about real clients.

Frozen draws are made inside the trust boundary, and nothing of them may leave it. The published code of CANIFE takes them off
the accountant's books; here they are counted.

    cohorts of the draws       what is counted for a measured round
    one for all draws          sampled once, then `draws` releases: one sampled round whose noise is smaller by sqrt(draws)
    a fresh one for each       `draws` sampled rounds

Without sampling a client may be in every draw.
"""

from __future__ import annotations

import math

from coalmine import _validate
from coalmine.accounting.claims import claim_of
from coalmine.accounting.events import MOVED, heard
from coalmine.contracts import Description, Participation
from coalmine.participation import Repeated

_GRID = 1e-3  # of privacy losses; a coarser grid makes the value larger, never smaller


def published_epsilon(
    description: Description,
    participation: Participation,
    *,
    rounds: int,
    measured: int,
    draws: int,
    delta: float,
    fresh_cohorts: bool = False,
    relation: str | None = None,
) -> float:
    """Epsilon of a client over the training and all frozen draws of `measured` rounds, had they been published.

    >>> from coalmine.mechanisms import Gaussian
    >>> from coalmine.participation import Once
    >>> said = Gaussian(1.0, 1.0).describe()
    >>> round(published_epsilon(said, Once(), rounds=10, measured=1, draws=8, delta=1e-5), 2)  # nine times: mu = 3
    16.68
    """
    delta, draws = _validate.delta(delta), _validate.whole("draws", draws, least=1)
    measured = _validate.whole("measured", measured)
    own = claim_of(description, participation, delta=delta, relation=relation, rounds=rounds).epsilon
    if measured == 0 or not description.has_noise:
        return own
    sampling, attendance = participation.sampling, participation.attendance
    most = attendance.times or attendance.most
    if sampling is None and most is not None:
        return claim_of(description, Repeated(most + measured * draws), delta=delta, relation=relation).epsilon
    if sampling is not None and sampling.cohort_size is None and description.noise is not None:
        noise = description.noise.accounted / MOVED[relation or "add-or-remove-one"]
        return _sampled(noise, sampling.rate, rounds, measured, draws, delta, fresh_cohorts=fresh_cohorts)
    halves = [claim_of(description, participation, delta=delta / 2, relation=relation, rounds=rounds).epsilon]
    halves.append(claim_of(description, Repeated(measured * draws), delta=delta / 2, relation=relation).epsilon)
    return sum(halves)


def _sampled(noise: float, q: float, rounds: int, measured: int, draws: int, delta: float, *, fresh_cohorts: bool) -> float:
    from dp_accounting.pld import privacy_loss_distribution

    if noise / math.sqrt(draws) < 1e-2:  # beyond what the grid holds
        return math.inf
    parts = [(noise, rounds + measured * draws)] if fresh_cohorts else [(noise, rounds), (noise / math.sqrt(draws), measured)]
    total = None
    with heard():
        for each, times in parts:
            one = privacy_loss_distribution.from_gaussian_mechanism(
                each, sampling_prob=q, value_discretization_interval=_GRID * max(1.0, 1 / each)
                if len(parts) == 1 else _GRID * max(1.0, math.sqrt(draws) / noise),
            ).self_compose(times)  # fmt: skip
            total = one if total is None else total.compose(one)
    assert total is not None
    return float(total.get_epsilon_for_delta(delta))

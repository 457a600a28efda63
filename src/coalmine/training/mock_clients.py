"""Clients that a design may look at, and others that judge it: users who are kept out of scored cohorts, or public data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from coalmine.data.dataset import Examples
from coalmine.models import Model
from coalmine.training.config import Config
from coalmine.training.federation import Federation


@dataclass(frozen=True, eq=False)
class MockData:
    """Data of mock clients; `users` are those of the training who are among them."""

    pool: list[Examples] = field(repr=False)
    judges: list[Examples] = field(repr=False)
    users: frozenset[str] = frozenset()


def mock_clients(job: Federation, pool: int, foreign: Sequence[Examples] = ()) -> MockData:
    """The same in every round; who they are is known to nobody outside. Judges are always users of the training."""
    count = 2 * pool if not foreign else pool
    if not count < len(job.data):
        raise ValueError(f"crafting.pool={pool} needs more than {count} users; there are {len(job.data)}. Lower it.")
    order = job.secret("crafting", "pool").permutation(len(job.data))[:count]
    users = [job.data.users[place] for place in np.asarray(order).tolist()]
    examples = [job.data.examples_of(user) for user in users]
    if foreign:
        return MockData(list(foreign[:pool]), examples, frozenset(users))
    return MockData(examples[:pool], examples[pool:], frozenset(users))


def foreign_clients(config: Config, model: Model) -> tuple[Examples, ...]:
    """`crafting.pool` users of the public data set `crafting.pool_source`, prepared as the training's own are."""
    from coalmine.training.assembly import load_task

    asked = config.crafting
    assert asked.pool_source is not None
    about = config.data.model_copy(
        update={"source": asked.pool_source, "options": asked.pool_options, "users": asked.pool, "held_out": 0}
    )
    try:
        task = load_task(config.model_copy(update={"data": about}))
    except ValueError as error:
        raise ValueError(f"crafting.pool_source={asked.pool_source!r} does not fit the training's model: {error}") from None
    if task.model.dim != model.dim:
        raise ValueError(
            f"crafting.pool_source={asked.pool_source!r} has other features or classes than the training's data: its model "
            f"would have {task.model.dim:,} parameters and not {model.dim:,}. Choose a data set of the same shape."
        )
    return tuple(task.train.examples_of(user) for user in task.train.users)

"""Examples sampled, or users sampled: which needs less noise for the same user-level epsilon (Charles et al. 2024).

Both keep at most G examples of a user, and take B examples a round on average: example-level sampling (ELS) draws examples at
rate q = B/(N G) and clips each of them, user-level sampling (ULS) draws users at the same rate and clips their mean gradients.

    symbol    here           meaning
    N, G      population, group_size      users; most examples of a user
    B, T      batch_size, rounds          mean number of examples in a round; rounds
    s_U, s_E  noise_of_users, noise_of_examples     noise multipliers for this epsilon

By noise alone, ULS is better if s_E/s_U > G C_U/C_E, where the ratio of the clip norms C_U/C_E lies between 1/sqrt(G), users as
diverse as everybody together, and 1, a user's examples all alike. Bias of clipping and variance of sampling are left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from coalmine import _validate
from coalmine.accounting.claims import calibrate_noise
from coalmine.participation import ExamplePoisson, Poisson


@dataclass(frozen=True)
class SamplingChoice:
    """Noise of both ways to sample at one epsilon, and which has less."""

    epsilon: float
    noise_of_users: float
    noise_of_examples: float
    group_size: int

    @property
    def ratio(self) -> float:
        """Noise multiplier of ELS over that of ULS."""
        return self.noise_of_examples / self.noise_of_users

    @property
    def diverse(self) -> str:
        """What has less noise if users are diverse."""
        return "ULS" if self.ratio > math.sqrt(self.group_size) else "ELS"

    @property
    def alike(self) -> str:
        """What has less noise if the examples of a user are alike."""
        return "ULS" if self.ratio > self.group_size else "ELS"


def compare_sampling(
    population: int, *, batch_size: float, group_size: int, rounds: int, epsilons: Sequence[float], delta: float
) -> tuple[SamplingChoice, ...]:
    """Noise multipliers of user-level and example-level sampling for each user-level epsilon."""
    users, members = _validate.whole("population", population, least=1), _validate.whole("group_size", group_size, least=1)
    rate = _validate.positive("batch_size", batch_size) / (users * members)
    if rate > 1:
        raise ValueError(f"batch_size={batch_size:g} is more than the {users * members:,} examples of {users:,} users.")
    patterns = Poisson(rate, rounds), ExamplePoisson(rate, rounds, members)
    found = []
    for epsilon in epsilons:
        of_users, of_examples = (calibrate_noise(each, epsilon=epsilon, delta=delta) for each in patterns)
        found.append(SamplingChoice(float(epsilon), of_users, of_examples, members))
    return tuple(found)


def in_words(choices: Sequence[SamplingChoice]) -> str:
    """As a table."""
    root, whole = math.sqrt(choices[0].group_size), choices[0].group_size
    lines = [f"{'epsilon':>8}{'noise ULS':>12}{'noise ELS':>12}{'ratio':>12}  diverse users  alike examples"]
    lines += [
        f"{each.epsilon:>8g}{each.noise_of_users:>12.4g}{each.noise_of_examples:>12.4g}{each.ratio:>12.4g}"
        f"  {each.diverse:<13}  {each.alike}"
        for each in choices
    ]
    said = f"ULS has less noise if the ratio is above {root:.3g} for diverse users, above {whole} for examples that are alike."
    return "\n".join([*lines, said, "By noise alone: bias of clipping and variance of sampling are left out."])

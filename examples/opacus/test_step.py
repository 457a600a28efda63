"""A test of an optimizer like Opacus's in its own suite: one private step, and the loader's sampling. Run it with pytest."""

import torch
from opacus.optimizers import DPOptimizer
from opacus.utils.uniform_sampler import UniformWithReplacementSampler

from coalmine.testing import assert_conforms, assert_samples


def private_step(kind=DPOptimizer, noise_multiplier=1.0, max_grad_norm=1.0, batch=64):
    """(a function from per-example gradients to what the optimizer makes of them, the number of parameters)."""
    model = torch.nn.Linear(40, 25)
    inner = torch.optim.SGD(model.parameters(), lr=0.0)
    optimizer = kind(inner, noise_multiplier=noise_multiplier, max_grad_norm=max_grad_norm, expected_batch_size=batch)

    def step(rows):
        optimizer.zero_grad()
        sizes = [each.numel() for each in model.parameters()]
        for parameter, part in zip(model.parameters(), torch.tensor(rows).split(sizes, dim=1), strict=True):
            parameter.grad_sample = part.reshape(len(rows), *parameter.shape)
        optimizer.step()
        return [each.grad for each in model.parameters()]

    return step, sum(each.numel() for each in model.parameters())


def test_step():
    """Clipping and noise are what the accountant is told."""
    step, dim = private_step()
    assert_conforms(step, dim=dim, clip_norm=1.0, noise_multiplier=1.0)


def test_sampling():
    """Batches are drawn by Poisson's rule."""
    sampler = UniformWithReplacementSampler(num_samples=2000, sample_rate=0.05)
    assert_samples(sampler, population=2000, rate=0.05)

"""A linear model on digits with jax_privacy: its clipping and its Gaussian noise, audited in four lines.

jax_privacy.clipped_grad clips inside of one call, where no canary can join. `clipping.clipped_fun`, which it is made of, is the
same code on gradients that are there already.
"""

import secrets

import jax
import jax.numpy as jnp
import numpy as np
from jax_privacy import noise_addition
from jax_privacy.clipping import clipped_fun
from sklearn.datasets import load_digits

import coalmine

BATCH, STEPS, CLIP, NOISE, DIM = 64, 40, 1.0, 1.0, 64 * 10


def loss(weights, image, label):
    """Cross entropy of one image."""
    return -jax.nn.log_softmax(image @ weights)[label]


def main(out="audit", noise_factor=1.0):
    """Train; a noise_factor of 0.5 is a bug, since NOISE is what everybody is told."""
    pixels, labels = load_digits(return_X_y=True)
    pixels, labels, rng = np.asarray(pixels / 16, np.float32), np.asarray(labels), np.random.default_rng()
    weights = jnp.zeros((64, 10))
    per_example = jax.jit(jax.vmap(jax.grad(loss), in_axes=(None, 0, 0)))
    clipped_sum = jax.jit(clipped_fun(lambda gradient: gradient[0], l2_clip_norm=CLIP))
    key = jax.random.key(secrets.randbits(63))
    privatizer = noise_addition.gaussian_privatizer(stddev=noise_factor * NOISE * CLIP, prng_key=key)
    state = privatizer.init(weights)
    audit = coalmine.Audit(delta=1e-5, out=out).loop(dim=DIM, steps=STEPS, clip_norm=CLIP, noise_multiplier=NOISE, batch=BATCH)
    for t in range(STEPS):
        drawn = rng.permutation(len(pixels))[:BATCH]
        gradients = audit.plant(t, per_example(weights, pixels[drawn], labels[drawn]))
        noisy, state = privatizer.update(clipped_sum(gradients), state)
        audit.release(t, noisy / BATCH)
        weights = weights - noisy / BATCH
    print(audit.result)


if __name__ == "__main__":
    main()

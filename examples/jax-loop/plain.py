"""DP-SGD by hand in JAX: per-example gradients by vmap, clipping and noise in one compiled step; train.py has an audit."""

import secrets

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_digits

BATCH, STEPS, CLIP, NOISE = 64, 75, 1.0, 1.0
SHAPES = {"first": (64, 64), "first bias": (64,), "second": (64, 10), "second bias": (10,)}


def loss(values, image, label):
    """Cross entropy of one image."""
    hidden = jax.nn.relu(image @ values["first"] + values["first bias"])
    return -jax.nn.log_softmax(hidden @ values["second"] + values["second bias"])[label]


@jax.jit
def noisy_mean(gradients, key, noise):
    """The sum of clipped gradients with noise, over the batch size that was stated."""
    norms = jnp.sqrt(sum(jnp.square(each).reshape(len(each), -1).sum(1) for each in gradients.values()))
    factors = jnp.minimum(1.0, CLIP / norms)
    keys = dict(zip(gradients, jax.random.split(key, len(gradients)), strict=True))
    clipped = {name: jnp.einsum("i,i...->...", factors, each) for name, each in gradients.items()}
    return {name: (each + noise * CLIP * jax.random.normal(keys[name], each.shape)) / BATCH for name, each in clipped.items()}


def main(out="audit", noise_factor=1.0):
    """Train a small network; a noise_factor of 0.5 is a bug, since NOISE is what everybody is told."""
    pixels, labels = load_digits(return_X_y=True)
    pixels, labels, rng = np.asarray(pixels / 16, np.float32), np.asarray(labels), np.random.default_rng()
    parameters = {name: jnp.asarray(0.1 * rng.standard_normal(shape), jnp.float32) for name, shape in SHAPES.items()}
    dim, key = sum(each.size for each in parameters.values()), jax.random.key(secrets.randbits(63))
    per_example = jax.jit(jax.vmap(jax.grad(loss), in_axes=(None, 0, 0)))
    for t in range(STEPS):
        drawn = rng.permutation(len(pixels))[:BATCH]
        gradients = per_example(parameters, pixels[drawn], labels[drawn])
        release = noisy_mean(gradients, jax.random.fold_in(key, t), noise_factor * NOISE)
        parameters = {name: each - 0.5 * release[name] for name, each in parameters.items()}
    print(f"{dim} parameters trained for {STEPS} steps")


if __name__ == "__main__":
    main()

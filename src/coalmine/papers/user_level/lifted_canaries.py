"""Canaries of lifted audits on Fashion-MNIST: vectors, and examples that a client could really send.

    sphere        random unit vectors that are added to the sum of gradients
    mislabelled   real images with a random wrong label
    crafted       images of random pixels with a random label: gradients that are nearly orthogonal to those of everybody else

An example's gradient in the linear model is (e_y - p) x^T, clipped to norm 1 as everybody's. Its score is the inner product of
the gradient's direction with what the adversary has of a step, or in the final model the log-likelihood of its label.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from coalmine.contracts import Array

KINDS = ("sphere", "mislabelled", "crafted")


class LiftedCanaries(Protocol):
    """k canaries of one run."""

    def at(self, weights: Array) -> Array:
        """Their part of the sum at these weights; what is scored next is scored there."""

    def score(self, seen: Array) -> Array:
        """Inner products with what the adversary has of a step."""

    def final(self, weights: Array, moved: Array) -> Array:
        """Scores by the final weights, which have moved so far in units of a step's sum."""


class Sphere:
    """Random unit vectors."""

    def __init__(self, rng: np.random.Generator, count: int, shape: tuple[int, int]):
        self.shape = shape
        self.directions = rng.standard_normal((count, shape[0] * shape[1]), np.float32)
        self.directions /= np.linalg.norm(self.directions, axis=1, keepdims=True)
        self.together: Array = self.directions.sum(axis=0).reshape(shape)

    def at(self, weights: Array) -> Array:
        """Their part of the sum."""
        return self.together

    def score(self, seen: Array) -> Array:
        """Inner products."""
        found: Array = self.directions @ seen.ravel()
        return found

    def final(self, weights: Array, moved: Array) -> Array:
        """Scores by the final weights."""
        return self.score(moved)


class ImageCanaries:
    """Images with labels, in the form in which the model takes them (a one at the end)."""

    def __init__(self, images: Array, labels: Any, classes: int):
        self.images, self.labels = images, labels
        self.wanted = np.eye(classes, dtype=np.float32)[labels]
        self.lengths = np.linalg.norm(images, axis=1)
        self.directions = self.wanted  # of the gradients over their images, set by `at`

    def at(self, weights: Array) -> Array:
        """Their part of the sum."""
        wrong = self.wanted - chances(self.images @ weights.T)
        norms = np.maximum(np.linalg.norm(wrong, axis=1) * self.lengths, 1e-12)
        self.directions = wrong / norms[:, None]
        found: Array = (self.directions * np.minimum(norms, 1.0)[:, None]).T @ self.images
        return found

    def score(self, seen: Array) -> Array:
        """Inner products."""
        found: Array = np.einsum("kc,kc->k", self.directions, self.images @ seen.T)
        return found

    def final(self, weights: Array, moved: Array) -> Array:
        """Scores by the final weights."""
        outputs = self.images @ weights.T
        found: Array = np.log(np.maximum(chances(outputs)[np.arange(len(outputs)), self.labels], 1e-300))
        return found


def make(kind: str, rng: np.random.Generator, count: int, images: Array, labels: Any, classes: int) -> LiftedCanaries:
    """Fresh canaries; `images` and `labels` are examples that nobody trains on."""
    if kind == "sphere":
        return Sphere(rng, count, (classes, images.shape[1]))
    chosen = rng.choice(len(images), count, replace=False)
    own = images[chosen].copy()
    if kind == "crafted":
        own[:, :-1] = rng.random((count, images.shape[1] - 1), np.float32) - np.float32(0.5)
    wrong = (labels[chosen] + rng.integers(1, classes, count)) % classes
    return ImageCanaries(own, wrong, classes)


def chances(outputs: Array) -> Array:
    """Softmax of every row."""
    raised = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    found: Array = raised / raised.sum(axis=1, keepdims=True)
    return found

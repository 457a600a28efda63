"""Training with user-level guarantees: correlated noise, its theory, and what it gains in training."""

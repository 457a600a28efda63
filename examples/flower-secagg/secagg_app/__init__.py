"""Digits, learned under secure aggregation with differential privacy, and audited."""

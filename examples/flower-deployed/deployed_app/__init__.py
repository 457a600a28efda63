"""Digits, learned by clients of a real deployment with differential privacy, and audited."""

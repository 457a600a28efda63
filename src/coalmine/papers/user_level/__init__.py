"""Audits, attacks and training with the user as unit.

correlated_*      training with correlated noise, its theory, and what it gains in training
lifted            Pillutla et al. 2023, "Unleashing the power of randomization in auditing differentially private ML"
user_inference    Kandpal et al. 2024, "User inference attacks on LLMs"
"""

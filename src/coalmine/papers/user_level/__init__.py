"""Audits and attacks with the user as unit: lifted audits over many models, and user inference.

lifted            Pillutla et al. 2023, "Unleashing the power of randomization in auditing differentially private ML"
user_inference    Kandpal et al. 2024, "User inference attacks on LLMs"
"""

"""Attacks on trained models that need no canaries in the training: model and users to scores.

user_inference    was this user's data used in fine-tuning? (Kandpal et al. 2024)
exposure          how easily is an inserted secret guessed? (Carlini et al. 2019)
ngram             a language model of characters that is fitted in seconds
fine_tuning       fine-tuning of a transformer, with and without differential privacy
"""

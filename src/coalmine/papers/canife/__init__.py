"""Maddock, Sablayrolles & Stock (2023), "CANIFE: crafting canaries for empirical privacy measurement in federated learning".

tasks      the paper's three trainings as numbers, and what a perfect canary shows in them by the paper's own estimator
canife_*   the experiments, one file each
"""

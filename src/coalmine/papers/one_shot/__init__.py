"""Andrew et al., "One-shot empirical privacy estimation for federated learning" (ICLR 2024), and its first version (`v1_…`).

An experiment is a file with `reproduce(ask)`, named as its command is: table1 to table6, figure1 to figure3, v1_table1 to
v1_table3, assumptions. What several of them need:

numbers          what the papers print
noise_model      runs of canaries and noise alone; `modelled` makes rows of them
families         the configurations of runs that train
trained          finished runs, and the papers' numbers of them; `real` makes rows of them, `presentations` the figures
run_checks       what must be true of every run; `linear` says what canaries leave in a model
vectors, figure4 parts of table1
drawings         the figures
"""

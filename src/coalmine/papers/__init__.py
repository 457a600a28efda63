"""Tables and figures of papers as code: ours beside theirs, with the distance in standard errors.

kit         what experiments of all papers share; its `registry` has a line for each of them
one_shot    Andrew et al., "One-shot empirical privacy estimation for federated learning" (ICLR 2024), and its first version
"""

"""An audit of one simulated Gaussian release, twice: once with the noise that is claimed, once with half of it.

python examples/simulated_audit.py
"""

import coalmine

CLAIMED_NOISE, DELTA = 1.0, 1e-5
claim = coalmine.claim(coalmine.Once(), noise_multiplier=CLAIMED_NOISE, delta=DELTA)

for title, noise in (("the noise that is claimed", CLAIMED_NOISE), ("half the noise that is claimed", CLAIMED_NOISE / 2)):
    scores = coalmine.simulate_gaussian_mechanism(dim=1_000_000, canaries=1_000, sigma=noise, seed=1)
    print(f"\nOne release in 1,000,000 dimensions, 1,000 canaries, {title}\n")
    print(coalmine.audit_scores(scores, delta=DELTA, claim=claim))

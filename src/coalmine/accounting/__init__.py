"""What is claimed: a mechanism, a participation pattern and a relation to a `Claim`, with dp-accounting as the accountant."""

from coalmine.accounting.claims import RELATIONS, Relation, calibrate_noise, claim, claimed_delta, game

__all__ = ["RELATIONS", "Relation", "calibrate_noise", "claim", "claimed_delta", "game"]

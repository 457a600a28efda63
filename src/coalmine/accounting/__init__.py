"""What is claimed: a mechanism's description, a pattern and a relation to a `Claim`, with dp-accounting as the accountant."""

from coalmine.accounting.claims import calibrate_noise, claim, claim_of, claimed_delta, game, plain_gaussian
from coalmine.accounting.events import MOVED, RELATIONS, Relation

__all__ = ["MOVED", "RELATIONS", "Relation", "calibrate_noise", "claim", "claim_of", "claimed_delta", "game", "plain_gaussian"]

"""An audit from what was observed to what that proves, the same for every trainer.

spec          what decides, and what is shown beside it; named before the first release
observe       an observed round to rows of inner products
score         rows to tables of scores, each beside the claim of its game
statements    scores and claims to estimates, bounds and a verdict
conclude      one end for every audit: result, files, page
session       one training under audit: `begin`, `observe`, `end`
assignment    who the canaries are, and when they take part, where another engine trains
planning      before training: how many canaries, and what they can decide
attached      `coalmine.Audit`: the audit of training that somebody else's engine runs
"""

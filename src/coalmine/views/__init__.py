"""Views: what an adversary sees of a run, and the one number per canary that it makes of it.

    view           needs            the adversary has                                    its number
    FinalModel     "total_change"   the model, and knows how it started                  cosine with the whole change
    EveryRelease   "mean"           every released mean                                  largest cosine over rounds
    KnownRounds    "mean"           the same, and the rounds of its target               matched filter over those rounds
    KnownOthers    "residual"       the same, and what all clients but the target sent   the same filter without the clients
    Afterwards     "residual"       the same                                             a sum from its first round on
    UnknownRounds  "residual"       the same, but not the rounds of its target           likelihood ratio over all rounds
    WholeModel     "model"          as FinalModel, the start included (papers)           cosine with the parameters
    EveryStep      "step"           as EveryRelease, after the server's momentum         largest cosine over rounds
    Whitened       "whitened"       as KnownOthers, and all covariances (aimed canaries) projection in units of the noise
    LikelihoodRatio "ratio"         the same                                             likelihood ratio, which is quadratic

A view is a pure function of `Projections`: inner products of released vectors with the canaries and with directions that were
never to be inserted, made by `project_row` row by row and put together by `stack`. All views can be taken of one run, and
all of them of a layer: `groups_of`. What each may be compared with is its `claim`.
"""

from coalmine.views.cosines import EveryRelease, EveryStep, FinalModel, WholeModel
from coalmine.views.power import Hiding, Visible, norms_of_unknown_clients
from coalmine.views.projections import ProjectionRow, groups_of, norms_in_group, project_row, stack
from coalmine.views.rounds import Afterwards, KnownOthers, KnownRounds
from coalmine.views.running import Weighted, WhitenedRounds, anytime_scores, round_scores
from coalmine.views.unknown import UnknownRounds
from coalmine.views.view import Threat, choose_null
from coalmine.views.whitened import LikelihoodRatio, Whitened, aimed_row

__all__ = [
    "AIMED_VIEWS",
    "PAPER_VIEWS",
    "VIEWS",
    "Afterwards",
    "EveryRelease",
    "EveryStep",
    "FinalModel",
    "Hiding",
    "KnownOthers",
    "KnownRounds",
    "LikelihoodRatio",
    "ProjectionRow",
    "Threat",
    "UnknownRounds",
    "Visible",
    "Weighted",
    "Whitened",
    "WhitenedRounds",
    "WholeModel",
    "aimed_row",
    "anytime_scores",
    "choose_null",
    "groups_of",
    "norms_in_group",
    "norms_of_unknown_clients",
    "project_row",
    "round_scores",
    "stack",
]

VIEWS: dict[str, type[Threat]] = {
    view.key: view
    for view in (
        *(FinalModel, EveryRelease, KnownRounds, KnownOthers, Afterwards, UnknownRounds, WholeModel, EveryStep),
        *(Whitened, LikelihoodRatio),
    )
}
AIMED_VIEWS = (Whitened.key, LikelihoodRatio.key)  # of canaries that are aimed; all others are of random directions
PAPER_VIEWS = (WholeModel.key, EveryStep.key)  # the papers' variants of two of them

"""Coalmine measures what differentially private training really leaks.

Names are loaded when they are first used, so that `import coalmine` is quick and needs no scipy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coalmine.accounting.attacked import attack_epsilon as attack_epsilon
    from coalmine.accounting.claims import calibrate_noise as calibrate_noise
    from coalmine.accounting.claims import claim as claim
    from coalmine.accounting.claims import claimed_delta as claimed_delta
    from coalmine.accounting.composition import compose_optimal as compose_optimal
    from coalmine.accounting.gaussian_sampling import average_leakage as average_leakage
    from coalmine.accounting.gaussian_sampling import claim_gaussian_sampling as claim_gaussian_sampling
    from coalmine.accounting.gaussian_sampling import record_epsilon as record_epsilon
    from coalmine.accounting.rounds import compose_canife as compose_canife
    from coalmine.accounting.rounds import compose_measured as compose_measured
    from coalmine.accounting.water_filling import claim_waterfilling as claim_waterfilling
    from coalmine.adapters.door import Audit as Audit
    from coalmine.audit.statements import audit_scores as audit_scores
    from coalmine.canaries.crafted.design import Crafted as Crafted
    from coalmine.canaries.crafted.design import design_canaries as design_canaries
    from coalmine.canaries.crafted.options import Crafting as Crafting
    from coalmine.canaries.crafted.vectors import CraftedCanaries as CraftedCanaries
    from coalmine.canaries.sphere import SphereCanaries as SphereCanaries
    from coalmine.canaries.transform import TransformCanaries as TransformCanaries
    from coalmine.contracts.statements import Claim as Claim
    from coalmine.contracts.statements import Game as Game
    from coalmine.contracts.statements import LowerBound as LowerBound
    from coalmine.contracts.statements import PointEstimate as PointEstimate
    from coalmine.contracts.statements import Verdict as Verdict
    from coalmine.data.grouped import open_grouped as open_grouped
    from coalmine.data.grouping import group_by_user as group_by_user
    from coalmine.estimators._rates import AllThresholds as AllThresholds
    from coalmine.estimators._rates import Fixed as Fixed
    from coalmine.estimators._rates import Split as Split
    from coalmine.estimators.anytime import anytime_epsilons as anytime_epsilons
    from coalmine.estimators.anytime import bound_anytime as bound_anytime
    from coalmine.estimators.band import bound_band as bound_band
    from coalmine.estimators.bayesian import bound_bayesian as bound_bayesian
    from coalmine.estimators.composed import bound_rounds as bound_rounds
    from coalmine.estimators.composed import estimate_round_canife as estimate_round_canife
    from coalmine.estimators.composed import perfect_canary as perfect_canary
    from coalmine.estimators.composed import pooled_rounds as pooled_rounds
    from coalmine.estimators.gaussian_fit import estimate_gaussian as estimate_gaussian
    from coalmine.estimators.gdp import bound_gdp as bound_gdp
    from coalmine.estimators.lifted import bound_lifted as bound_lifted
    from coalmine.estimators.one_run import Guesses as Guesses
    from coalmine.estimators.one_run import bound_one_run as bound_one_run
    from coalmine.estimators.one_run import bound_one_run_fdp as bound_one_run_fdp
    from coalmine.estimators.power import Design as Design
    from coalmine.estimators.power import best_guesses as best_guesses
    from coalmine.estimators.power import canaries_needed as canaries_needed
    from coalmine.estimators.power import ceilings as ceilings
    from coalmine.estimators.power import detectable as detectable
    from coalmine.estimators.power import plan as plan
    from coalmine.estimators.ranking import estimate_auroc as estimate_auroc
    from coalmine.estimators.threshold import bound_pointwise as bound_pointwise
    from coalmine.estimators.threshold import bound_threshold as bound_threshold
    from coalmine.front import frozen_scores as frozen_scores
    from coalmine.front import run as run
    from coalmine.gaussian import gaussian_delta as gaussian_delta
    from coalmine.gaussian import gaussian_epsilon as gaussian_epsilon
    from coalmine.gaussian import gaussian_gap as gaussian_gap
    from coalmine.gaussian_pairs import pair_delta as pair_delta
    from coalmine.gaussian_pairs import pair_epsilon as pair_epsilon
    from coalmine.gaussian_pairs import renyi_divergence as renyi_divergence
    from coalmine.gaussian_pairs import standard_pair as standard_pair
    from coalmine.mechanisms.spectrum import leverages as leverages
    from coalmine.mechanisms.spectrum import outside_span as outside_span
    from coalmine.mechanisms.spectrum import water_fill as water_fill
    from coalmine.mechanisms.spectrum import water_level as water_level
    from coalmine.nulls import CosineNull as CosineNull
    from coalmine.nulls import GaussianNull as GaussianNull
    from coalmine.nulls import MaxNull as MaxNull
    from coalmine.participation.epochs import Epochs as Epochs
    from coalmine.participation.examples import ExamplePoisson as ExamplePoisson
    from coalmine.participation.patterns import MinSeparation as MinSeparation
    from coalmine.participation.patterns import Once as Once
    from coalmine.participation.patterns import Periods as Periods
    from coalmine.participation.patterns import Repeated as Repeated
    from coalmine.participation.sampled import FixedSize as FixedSize
    from coalmine.participation.sampled import Poisson as Poisson
    from coalmine.participation.trace import Trace as Trace
    from coalmine.result import AuditResult as AuditResult
    from coalmine.scores import Scores as Scores
    from coalmine.simulation import simulate_gaussian_mechanism as simulate_gaussian_mechanism
    from coalmine.verdict import judge as judge

_HOMES = {
    "accounting.attacked": ("attack_epsilon",),
    "accounting.claims": ("calibrate_noise", "claim", "claimed_delta"),
    "accounting.composition": ("compose_optimal",),
    "accounting.gaussian_sampling": ("average_leakage", "claim_gaussian_sampling", "record_epsilon"),
    "accounting.rounds": ("compose_canife", "compose_measured"),
    "accounting.water_filling": ("claim_waterfilling",),
    "adapters.door": ("Audit",),
    "audit.statements": ("audit_scores",),
    "canaries.crafted.design": ("Crafted", "design_canaries"),
    "canaries.crafted.options": ("Crafting",),
    "canaries.crafted.vectors": ("CraftedCanaries",),
    "canaries.sphere": ("SphereCanaries",),
    "canaries.transform": ("TransformCanaries",),
    "contracts.statements": ("Claim", "Game", "LowerBound", "PointEstimate", "Verdict"),
    "data.grouped": ("open_grouped",),
    "data.grouping": ("group_by_user",),
    "estimators._rates": ("AllThresholds", "Fixed", "Split"),
    "estimators.anytime": ("anytime_epsilons", "bound_anytime"),
    "estimators.band": ("bound_band",),
    "estimators.bayesian": ("bound_bayesian",),
    "estimators.composed": ("bound_rounds", "estimate_round_canife", "perfect_canary", "pooled_rounds"),
    "estimators.gaussian_fit": ("estimate_gaussian",),
    "estimators.gdp": ("bound_gdp",),
    "estimators.lifted": ("bound_lifted",),
    "estimators.one_run": ("Guesses", "bound_one_run", "bound_one_run_fdp"),
    "estimators.power": ("Design", "best_guesses", "canaries_needed", "ceilings", "detectable", "plan"),
    "estimators.ranking": ("estimate_auroc",),
    "estimators.threshold": ("bound_pointwise", "bound_threshold"),
    "front": ("frozen_scores", "run"),
    "gaussian": ("gaussian_delta", "gaussian_epsilon", "gaussian_gap"),
    "gaussian_pairs": ("pair_delta", "pair_epsilon", "renyi_divergence", "standard_pair"),
    "mechanisms.spectrum": ("leverages", "outside_span", "water_fill", "water_level"),
    "nulls": ("CosineNull", "GaussianNull", "MaxNull"),
    "participation.epochs": ("Epochs",),
    "participation.examples": ("ExamplePoisson",),
    "participation.patterns": ("MinSeparation", "Once", "Periods", "Repeated"),
    "participation.sampled": ("FixedSize", "Poisson"),
    "participation.trace": ("Trace",),
    "result": ("AuditResult",),
    "scores": ("Scores",),
    "simulation": ("simulate_gaussian_mechanism",),
    "verdict": ("judge",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__version__ = "0.2.0"
__all__ = sorted([*_HOME_OF, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'coalmine' has no attribute {name!r}")
    value = getattr(import_module(f"coalmine.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__

"""What an audit is told before the first release: what decides, and what is shown beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from coalmine import _validate
from coalmine.contracts import Description
from coalmine.contracts.conformance import LEVEL
from coalmine.estimators import BOUNDS
from coalmine.views import AIMED_VIEWS, PAPER_VIEWS, VIEWS, LikelihoodRatio, Threat, Whitened

PRIMARY = "known-others"
WITHOUT_OTHERS = "known-rounds"  # where an engine does not show what the clients sent
SHOWN = ("final-model", "every-release", "known-rounds", "known-others")
NULLS = ("auto", "theory", "empirical")
OF_THE_MODEL = ("total_change", "model")  # kinds of projections that exist once, at the end
LEAST_POOL = 10
LEAST_ROWS = 100
LARGEST_LEVEL = 0.1  # of the tests of the mechanism: a gate that fails more often than this on correct code is none


@dataclass(frozen=True)
class AuditSpec:
    """The primary statement, which alone decides, and what is shown beside it; all named before the run.

    The names mean what they mean in the section [audit] of a configuration; `unit` and `relation` are those of the game.
    """

    delta: float
    view: str = PRIMARY
    bound: str = "band"
    also: tuple[str, ...] = ()
    views: tuple[str, ...] = SHOWN
    paper_views: bool = False
    null: str = "auto"
    confidence: float = 0.95
    layers: bool = False
    unused_rows: int = 8192
    conformance_level: float = LEVEL
    unit: str = "client"
    relation: str | None = None

    def __post_init__(self) -> None:
        _validate.delta(self.delta)
        _validate.confidence(self.confidence)
        _validate.one_of("audit.null", self.null, NULLS)
        _validate.one_of("privacy.unit", self.unit, ("client", "example"))
        _validate.whole("audit.unused_rows", self.unused_rows, least=LEAST_ROWS)
        if not 0 < self.conformance_level <= LARGEST_LEVEL:
            raise ValueError(
                f"audit.conformance_level={self.conformance_level!r} is not allowed: the rate of false alarms of all tests of "
                f"the mechanism together must be above 0 and at most {LARGEST_LEVEL:g}; {LEVEL:g} is the default."
            )
        for name in ("also", "views"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        for name in (self.view, *self.views):
            _validate.one_of("audit.view", name, VIEWS)
        self._check_bounds()

    def _check_bounds(self) -> None:
        for name in (self.bound, *self.also):
            if name not in BOUNDS or BOUNDS[name].needs_runs:
                known = ", ".join(key for key, bound in BOUNDS.items() if not bound.needs_runs)
                raise ValueError(f"audit: {name!r} is no bound of one run; known are {known}.")
        bound, view = BOUNDS[self.bound], VIEWS[self.view]
        if not bound.decides:
            raise ValueError(f"audit: {self.bound!r} is approximate and cannot decide; name it in audit.also.")
        unfit = [name for name in (self.bound, *self.also) if BOUNDS[name].of_sums or BOUNDS[name].needs_coins]
        if view.empirical_only and unfit:
            raise ValueError(
                f"audit: {unfit[0]!r} does not go with view {self.view!r}, whose likelihood ratios are no shifted normals "
                "and are compared with unused directions, which had no coins; use 'band'."
            )
        if view.combined == "maximum" and bound.of_sums:
            raise ValueError(f"audit: the {self.bound} bound is for sums of scores, not for the maximum of view {self.view!r}.")
        if bound.needs_coins and self.null == "empirical":
            raise ValueError("audit: one-run bounds need coins, which unused directions did not have; use null = 'theory'.")

    def check_noise(self, description: Description) -> None:
        """Refuse bounds that take the noise for new in every round where it is not, and nobody knows how to whiten it."""
        unfit = [name for name in (self.bound, *self.also) if BOUNDS[name].of_sums]
        if unfit and not description.fresh and description.design is None:
            raise ValueError(
                f"audit: the {unfit[0]} bound takes the noise for new in every round, and this mechanism's noise is correlated "
                "over rounds in a way that its description does not say; use 'band'."
            )

    def threats(self) -> tuple[Threat, ...]:
        """The views, the primary one first, then the papers' variants if asked for."""
        names = dict.fromkeys((self.view, *self.views, *(PAPER_VIEWS if self.paper_views else ())))
        return tuple(VIEWS[name](unit=self.unit, relation=self.relation) for name in names)

    def for_family(self, family: str, aim: str) -> AuditSpec:
        """The same for a family of canaries: aimed ones have views of their own, and no other family has these.

        The primary view of aimed canaries is `Whitened` unless another is named; outside the span, where a weight of random
        sign is all that shows, `LikelihoodRatio`. The layers of aimed directions are not looked at.
        """
        if family != "aimed":
            unfit = [name for name in (self.view, *self.views) if name in AIMED_VIEWS]
            if unfit:
                raise ValueError(f"audit: view {unfit[0]!r} is for aimed canaries; set canaries.family = 'aimed'.")
            return self
        usual = LikelihoodRatio.key if aim == "outside-span" else Whitened.key
        view = usual if self.view == PRIMARY else self.view
        if view not in AIMED_VIEWS:
            raise ValueError(
                f"audit: view {view!r} is for canaries in random directions, and these are aimed; use one of "
                f"{', '.join(AIMED_VIEWS)}."
            )
        if self.layers or self.paper_views:
            raise ValueError("audit: layers and paper_views are for canaries in random directions, and these are aimed.")
        return replace(self, view=view, views=AIMED_VIEWS if self.views else ())

    def without_others(self, primary: str | None = None) -> AuditSpec:
        """The same where nobody shows what the clients sent: views that need it fall away."""
        views = tuple(name for name in self.views if not VIEWS[name].knows_others)
        return replace(self, view=primary or self.view, views=views)

    def without_model(self) -> AuditSpec:
        """The same where nobody shows the model: only releases are seen."""
        unseen = [name for name in (self.view, *self.views) if VIEWS[name].needs in OF_THE_MODEL]
        if self.view in unseen:
            raise ValueError(f"audit: view {self.view!r} looks at the model, which this training does not show.")
        return replace(self, views=tuple(name for name in self.views if name not in unseen))


@dataclass(frozen=True)
class Statement:
    """What decides, and what is shown beside it, in an audit of another engine's training; fixed before the first release.

    `view` is the adversary; "auto" knows what all others sent, or only the rounds, if the engine does not show the others.
    Every other name means what it means in the section `[audit]` of a configuration.
    """

    view: str = "auto"
    bound: str = "band"
    also: Sequence[str] = ()
    views: Sequence[str] = SHOWN
    null: str = "auto"
    confidence: float = 0.95
    layers: bool = False
    unused_rows: int = 8192
    conformance_level: float = LEVEL

    def spec(self, delta: float, unit: str = "client") -> AuditSpec:
        """As the specification of an audit."""
        stated = {**vars(self), "also": tuple(self.also), "views": tuple(self.views)}
        return AuditSpec(delta, unit=unit, **(stated | {"view": PRIMARY if self.view == "auto" else self.view}))

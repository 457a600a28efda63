"""`audited_legacy`: the same for strategies of Flower's older API (`flwr.server.strategy`), which secure aggregation needs.

Under SecAgg+ the server sees the mean of all clients and nothing else, so that it can neither add replies nor know the others.
Canaries must be clients: `canary_mod` works for both APIs, inside of what clips and masks:

    ClientApp(client_fn, mods=[secaggplus_mod, fixedclipping_mod, canary_mod(audit, who=last_partitions(30))])
    strategy = audited_legacy(strategy, audit)        in the LegacyContext of a SecAggPlusWorkflow, or anywhere else

Who is a canary does not come through the masks. The audit therefore counts on every canary taking part in every round; one that
did not is looked for in vain, and epsilon is measured too low, never too high.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from flwr.app import ArrayRecord
from flwr.common import parameters_to_ndarrays
from flwr.server.strategy import Strategy

from coalmine.adapters.flower.reading import Reading, concluded
from coalmine.adapters.flower.records import ArrayLayout
from coalmine.audit.application import Application, described, difference, observed
from coalmine.audit.attached import AttachedAudit
from coalmine.errors import MismatchError


def audited_legacy(strategy: Strategy, audit: AttachedAudit) -> AuditedLegacy:
    """The same strategy, audited; canaries are clients with `canary_mod`, all of them in every round."""
    return AuditedLegacy(strategy, audit)


class AuditedLegacy(Strategy):
    """A strategy of the older API that another one is wrapped in; `audit.result` holds what was found."""

    def __init__(self, strategy: Strategy, audit: AttachedAudit):
        super().__init__()
        self.strategy, self.audit = strategy, audit
        self._reading = Reading(strategy, audit, canary_clients=True)
        self._layout: ArrayLayout | None = None
        self._asked = 0

    def initialize_parameters(self, client_manager: Any) -> Any:
        """As the wrapped strategy does."""
        return self.strategy.initialize_parameters(client_manager)

    def configure_fit(self, server_round: int, parameters: Any, client_manager: Any) -> Any:
        """As the wrapped strategy does; the first call introduces the application to the audit."""
        self._before, self._clip = _record(parameters), self._reading.clip_norm
        asked = self.strategy.configure_fit(server_round, parameters, client_manager)
        self._asked = len(asked)
        if self._layout is None:
            self._reading.refuse_wrong_cohort(self._asked)
            self._layout = self._begin(ArrayLayout.of(self._before))
        if self._asked < client_manager.num_available():
            self.audit.note("canaries", "not all clients were asked, and those who were not count as present", server_round - 1)
        return asked

    def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> Any:
        """As the wrapped strategy does; what comes out is observed."""
        number, came = server_round - 1, len(results)
        if came < self._asked:
            self.audit.note("missing replies", "clients failed or did not answer; canaries among them count as present", number)
        aggregated = self.strategy.aggregate_fit(server_round, results, failures)
        if aggregated is None or aggregated[0] is None:
            self.audit.note("no release", "the strategy aggregated nothing", number)
        else:
            self._observe(number, _record(aggregated[0]), came)
        if server_round == self.audit.rounds:
            concluded(self.audit)
        return aggregated

    def configure_evaluate(self, server_round: int, parameters: Any, client_manager: Any) -> Any:
        """As the wrapped strategy does."""
        return self.strategy.configure_evaluate(server_round, parameters, client_manager)

    def aggregate_evaluate(self, server_round: int, results: Any, failures: Any) -> Any:
        """As the wrapped strategy does."""
        return self.strategy.aggregate_evaluate(server_round, results, failures)

    def evaluate(self, server_round: int, parameters: Any) -> Any:
        """As the wrapped strategy does."""
        return self.strategy.evaluate(server_round, parameters)

    def _begin(self, layout: ArrayLayout) -> ArrayLayout:
        said = self._reading
        self.audit.begin(
            Application(
                name=said.name,
                engine=said.engine,
                initial=layout.vector(self._before),
                groups=layout.floats,
                description=described(self._clip, said.noise_multiplier(self._asked)),
                knows_others=False,
                stated=said.stated,
            )
        )
        return layout

    def _observe(self, number: int, after: ArrayRecord, came: int) -> None:
        layout, private, pool = self._layout, self._reading.private, self.audit.schedule.pool
        if layout is None or not layout.fits(after):
            raise MismatchError(
                f"{self._reading.name} returned other arrays than the model's: it hides the aggregate. Wrap the strategy that "
                "returns the aggregated model itself."
            )
        moved, resolution = difference(layout.vector(after), layout.vector(self._before))
        self.audit.observe(
            observed(
                number,
                moved,
                clip_norm=self._clip,
                denominator=float(private.num_sampled_clients if private is not None else came),
                clients=max(came - pool, 0),
                inserted=int(self.audit.schedule.inserted.sum()),
                places=pool,
                assigned=np.arange(pool),
                resolution=resolution,
            )
        )


def _record(parameters: Any) -> ArrayRecord:
    return ArrayRecord([np.asarray(array) for array in parameters_to_ndarrays(parameters)])

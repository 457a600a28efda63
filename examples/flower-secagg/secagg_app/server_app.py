"""The server: SecAgg+ around federated averaging, noise on the mean, which is all that it sees; audited."""

from flwr.app import Context
from flwr.common import ndarrays_to_parameters
from flwr.server import LegacyContext, ServerConfig
from flwr.server.strategy import (
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
)
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
from flwr.serverapp import Grid, ServerApp

from coalmine.adapters.flower import audited_legacy
from secagg_app.task import audit_of, initial

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train, audited. Clipping on the server is the fault that `clip-on = "server"` shows."""
    config = context.run_config
    together = int(config["clients"]) + int(config["canaries"])
    kinds = {"clients": DifferentialPrivacyClientSideFixedClipping, "server": DifferentialPrivacyServerSideFixedClipping}
    inner = FedAvg(
        fraction_evaluate=0.0,
        min_fit_clients=together,
        min_available_clients=together,
        initial_parameters=ndarrays_to_parameters(list(initial().values())),
    )
    private = kinds[str(config["clip-on"])](inner, float(config["noise-multiplier"]), float(config["clip-norm"]), together)
    audit = audit_of(context, out=str(config["audit-dir"]))
    legacy = LegacyContext(
        context, config=ServerConfig(num_rounds=int(config["rounds"])), strategy=audited_legacy(private, audit)
    )
    shares = int(config["shares"])
    workflow = SecAggPlusWorkflow(num_shares=shares, reconstruction_threshold=shares // 2 + 1, max_weight=2.0)
    DefaultWorkflow(fit_workflow=workflow)(grid, legacy)
    print(audit.result, flush=True)

"""The server: federated averaging with clipping and noise. The three lines of the audit are marked."""

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg

from coalmine.adapters.flower import Audit, audited
from quickstart.task import Model

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train, audited."""
    config, rounds = context.run_config, int(context.run_config["rounds"])
    audit = Audit(delta=1e-5, rounds=rounds, pool=int(config["canaries"]), out=str(config["audit-dir"]))  # 1
    clients = int(config["clients"])
    strategy = DifferentialPrivacyServerSideFixedClipping(
        FedAvg(fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients),
        noise_multiplier=float(config["noise-multiplier"]),
        clipping_norm=float(config["clip-norm"]),
        num_sampled_clients=clients + audit.places,  # 2
    )
    strategy = audited(strategy, audit)  # 3
    strategy.start(grid=grid, initial_arrays=ArrayRecord(Model().state_dict()), num_rounds=rounds)
    print(audit.result, flush=True)

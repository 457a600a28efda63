"""The server: federated averaging with clipping and noise. The three lines of the audit are marked."""

from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg

from coalmine.adapters.flower import Audit, audited
from deployed_app.task import initial

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train, audited."""
    config, rounds = context.run_config, int(context.run_config["rounds"])
    audit = Audit(delta=1e-5, rounds=rounds, pool=int(config["canaries"]), out=str(config["audit-dir"]))  # 1
    strategy = DifferentialPrivacyServerSideFixedClipping(
        FedAvg(fraction_evaluate=0.0, min_train_nodes=2, min_available_nodes=int(config["least-nodes"])),
        noise_multiplier=float(config["noise-multiplier"]),
        clipping_norm=float(config["clip-norm"]),
        num_sampled_clients=int(config["clients"]) + audit.places,  # 2
    )
    strategy = audited(strategy, audit)  # 3
    start = ArrayRecord({name: Array(value) for name, value in initial().items()})
    strategy.start(grid=grid, initial_arrays=start, num_rounds=rounds, timeout=float(config["timeout"]))
    print(audit.result, flush=True)

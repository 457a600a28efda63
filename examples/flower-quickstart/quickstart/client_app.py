"""The client: local training, one user each. Every client weighs the same, as the noise of the server assumes."""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from quickstart.task import Model, train

app = ClientApp()


@app.train()
def local_training(message: Message, context: Context) -> Message:
    """One pass over the messages of this client's user."""
    torch.set_num_threads(1)
    model = Model()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    loss = train(model, int(context.node_config["partition-id"]), float(context.run_config["learning-rate"]))
    metrics = MetricRecord({"num-examples": 1, "loss": loss})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)

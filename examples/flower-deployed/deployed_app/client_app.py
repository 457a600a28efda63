"""The client: local training on its share. Every client weighs the same, as the noise of the server assumes."""

from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from deployed_app.task import train

app = ClientApp()


@app.train()
def local_training(message: Message, context: Context) -> Message:
    """One pass over this client's images."""
    model = {name: array.numpy() for name, array in message.content["arrays"].items()}
    node = context.node_config
    moved = train(model, int(node["partition-id"]), int(node["num-partitions"]))
    arrays = ArrayRecord({name: Array(value) for name, value in moved.items()})
    return Message(RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 1})}), reply_to=message)

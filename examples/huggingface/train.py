"""A Hugging Face Trainer with Opacus, audited: the Trainer gets the private model and the audited optimizer.

The model is tiny and untrained, so that nothing is downloaded. The Trainer makes its own batches, which are shuffled and not
sampled by Poisson's rule; poisson_sampling=False says so. It also seeds all generators with 42 unless it is told another seed,
so that anybody could draw the noise again: the noise gets a generator of its own.
"""

import tempfile

import torch
from opacus import PrivacyEngine
from torch.utils.data import DataLoader, Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments
from transformers.optimization import get_constant_schedule

import coalmine


class Sentences(Dataset):
    """Random token ids with a label that depends on them."""

    def __init__(self, count=320):
        self.ids = torch.randint(5, 60, (count, 8))

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, place):
        """One sentence."""
        return {"input_ids": self.ids[place], "labels": int(self.ids[place, 0] > 30)}


class ClearGradients(TrainerCallback):
    """Opacus wants optimizer.zero_grad() after every step, and the Trainer calls that of the model."""

    def on_step_end(self, args, state, control, optimizer=None, **_):
        """After the optimizer's step."""
        optimizer.zero_grad()


def main(out="audit", noise_factor=1.0, epochs=2):
    """Train a small classifier; a noise_factor of 0.5 is a bug, since a noise multiplier of 1 is what everybody is told."""
    data = Sentences()
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 64}
    model = BertForSequenceClassification(BertConfig(**sizes, max_position_embeddings=8))
    for parameter in model.bert.embeddings.parameters():
        parameter.requires_grad = False
    model.train()
    optimizer = torch.optim.SGD([each for each in model.parameters() if each.requires_grad], lr=0.05)
    engine, loader = PrivacyEngine(accountant="rdp"), DataLoader(data, batch_size=16)
    generator = torch.Generator()
    generator.seed()  # from the operating system
    audit = coalmine.Audit(delta=1e-5, out=out)
    private, optimizer, _ = audit.opacus(engine).make_private(
        module=model, optimizer=optimizer, data_loader=loader, noise_multiplier=1.0, max_grad_norm=1.0,
        noise_generator=generator, poisson_sampling=False,
    )  # fmt: skip
    if noise_factor != 1.0:
        wrong = optimizer.add_noise

        def add_noise():
            optimizer.noise_multiplier = noise_factor
            wrong()
            optimizer.noise_multiplier = 1.0

        optimizer.add_noise = add_noise
    with tempfile.TemporaryDirectory() as folder:
        told = TrainingArguments(
            folder, num_train_epochs=epochs, per_device_train_batch_size=16, max_grad_norm=0.0, report_to=[], use_cpu=True,
            disable_tqdm=True, save_strategy="no", logging_strategy="no", remove_unused_columns=False,
        )  # fmt: skip
        schedule = get_constant_schedule(optimizer)
        Trainer(private, told, train_dataset=data, optimizers=(optimizer, schedule), callbacks=[ClearGradients()]).train()
    print(audit.result)


if __name__ == "__main__":
    main()

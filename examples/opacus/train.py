"""Digits with Opacus, audited: three lines differ from plain.py, beside the import."""

import torch
from opacus import PrivacyEngine
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import coalmine


def main(out="audit", epochs=2, engine_kind=PrivacyEngine):
    """Train a small network privately."""
    pixels, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(labels))
    loader = DataLoader(data, batch_size=64, shuffle=True)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    engine = engine_kind()
    audit = coalmine.Audit(delta=1e-5, out=out)
    model, optimizer, loader = audit.opacus(engine).make_private(
        module=model, optimizer=optimizer, data_loader=loader, noise_multiplier=1.0, max_grad_norm=1.0
    )
    for _ in range(epochs):
        for inputs, targets in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
    print(f"epsilon = {engine.get_epsilon(1e-5):.2f}")
    print(audit.result)


if __name__ == "__main__":
    main()

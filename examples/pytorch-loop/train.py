"""DP-SGD by hand in PyTorch, audited: four lines more than plain.py, beside the import."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.func import functional_call, grad, vmap

import coalmine

BATCH, STEPS, CLIP, NOISE, RATE = 64, 75, 1.0, 1.0, 64 / 1797


def main(out="audit", noise_factor=1.0):
    """Train a small network; a noise_factor of 0.5 is a bug, since NOISE is what everybody is told."""
    pixels, labels = load_digits(return_X_y=True)
    pixels, labels = torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(labels)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    parameters = {name: each.detach() for name, each in model.named_parameters()}
    dim = sum(each.numel() for each in parameters.values())

    def loss(values, image, label):
        return nn.functional.cross_entropy(functional_call(model, values, image[None]), label[None])

    audit = coalmine.Audit(delta=1e-5, out=out).loop(dim=dim, steps=STEPS, clip_norm=CLIP, noise_multiplier=NOISE, batch=BATCH)
    for t in range(STEPS):
        drawn = torch.rand(len(pixels)) < RATE
        gradients = vmap(grad(loss), in_dims=(None, 0, 0))(parameters, pixels[drawn], labels[drawn])
        gradients = audit.plant(t, gradients)
        norms = sum(each.flatten(1).square().sum(1) for each in gradients.values()).sqrt()
        factors = (CLIP / norms).clamp(max=1.0)
        release = {
            name: (torch.einsum("i,i...", factors, each) + noise_factor * NOISE * CLIP * torch.randn(each.shape[1:])) / BATCH
            for name, each in gradients.items()
        }
        audit.release(t, release)
        parameters = {name: each - 0.5 / (1 + t / STEPS) * release[name] for name, each in parameters.items()}
    print(audit.result)
    print(f"{dim} parameters trained for {STEPS} steps")


if __name__ == "__main__":
    main()

"""The same training with one bug: the optimizer adds half of the noise that it says. The audit finds it."""

import runpy
from pathlib import Path

import opacus.privacy_engine
from opacus.optimizers import DPOptimizer


class HalfNoise(DPOptimizer):
    """Divides the noise by two, as code does that takes the batch of two devices for one."""

    def add_noise(self):
        """Half of it."""
        stated = self.noise_multiplier
        self.noise_multiplier = stated / 2
        super().add_noise()
        self.noise_multiplier = stated


def main(out="audit-half-noise", epochs=2):
    """Train with the wrong optimizer in the place of Opacus's."""
    right, opacus.privacy_engine.get_optimizer_class = opacus.privacy_engine.get_optimizer_class, lambda *_, **__: HalfNoise
    try:
        runpy.run_path(str(Path(__file__).with_name("train.py")))["main"](out, epochs)
    finally:
        opacus.privacy_engine.get_optimizer_class = right


if __name__ == "__main__":
    main()

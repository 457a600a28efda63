"""The same loop with one bug: half of the noise that is stated. The audit finds it."""

import runpy
from pathlib import Path


def main(out="audit-half-noise"):
    """Train with half the noise."""
    runpy.run_path(str(Path(__file__).with_name("train.py")))["main"](out, noise_factor=0.5)


if __name__ == "__main__":
    main()

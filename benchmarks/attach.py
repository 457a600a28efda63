"""What must be true of audits that are attached to Opacus: coverage, faults, the amplified claim, assert_conforms, overhead.

    python benchmarks/attach.py coverage --runs 20       MNIST and digits, noise 0.5, 1, 2
    python benchmarks/attach.py faults --runs 20         never CONSISTENT
    python benchmarks/attach.py seeds --runs 20          scripts that begin with torch.manual_seed, and the remedy
    python benchmarks/attach.py sampling --runs 20       a loop that shows its examples, and assert_samples
    python benchmarks/attach.py amplified --runs 20      rounds unknown; the loader's rate as stated, and four times as high
    python benchmarks/attach.py conforms --runs 50       assert_conforms on Opacus's optimizer, right and wrong
    python benchmarks/attach.py overhead                 seconds of a step with the audit over those without it, in one run
    python benchmarks/attach.py versions                 the tests of the adapter on several versions of Opacus

Each study replaces its own part of benchmarks/results/attach.json. MNIST is read from COALMINE_DATA.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import venv
import warnings
from pathlib import Path

import numpy as np
import opacus
import torch
from opacus.optimizers import DPOptimizer
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import coalmine
from coalmine.adapters import Statement
from coalmine.data.idx import read_images
from coalmine.testing import assert_conforms, assert_samples

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "attach.json"
VERSIONS = ("1.4.0", "1.5.4", "1.6.0")


def digits():
    pixels, labels = load_digits(return_X_y=True)
    return torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(labels), 64, 64


def mnist():
    folder = Path(os.environ["COALMINE_DATA"]) / "mnist"
    images, labels = read_images(folder / "train-images-idx3-ubyte.gz", folder / "train-labels-idx1-ubyte.gz")
    inputs = torch.tensor(images[:6000].reshape(6000, -1) / 255, dtype=torch.float32)
    return inputs, torch.tensor(labels[:6000]), 16, 128


def private(audit, task, noise, epochs=1, **options):
    """One training under audit, with fresh noise."""
    inputs, labels, width, batch = task
    model = nn.Sequential(nn.Linear(inputs.shape[1], width), nn.ReLU(), nn.Linear(width, 10))
    loader = DataLoader(TensorDataset(inputs, labels), batch_size=batch, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    engine = opacus.PrivacyEngine(accountant="rdp")
    told = {"module": model, "optimizer": optimizer, "data_loader": loader, "noise_multiplier": noise, "max_grad_norm": 1.0}
    model, optimizer, loader = audit.opacus(engine).make_private(**told, **options)
    return lambda: fit(model, optimizer, loader, epochs), loader


def fit(model, optimizer, loader, epochs):
    for _ in range(epochs):
        for inputs, targets in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()


def new_audit(**options):
    return coalmine.Audit(delta=1e-5, **options)


def audited(task, noise, epochs=1, **options):
    torch.seed()  # of the operating system
    audit = new_audit()
    train, _ = private(audit, task, noise, epochs, **options)
    train()
    return audit.result


def coverage(runs):
    found = {}
    for name, task in (("digits", digits()), ("mnist", mnist())):
        for noise in (0.5, 1.0, 2.0):
            results = [audited(task, noise) for _ in range(runs)]
            covers = sum(each.estimate.low <= each.claim.epsilon <= each.estimate.high for each in results)
            words = [each.verdict.word for each in results]
            found[f"{name}, noise {noise:g}"] = {"runs": runs, "covers": covers, "words": counted(words)}
            print(name, noise, found[f"{name}, noise {noise:g}"], flush=True)
    return found


class HalfNoise(DPOptimizer):
    def add_noise(self):
        stated, self.noise_multiplier = self.noise_multiplier, self.noise_multiplier / 2
        super().add_noise()
        self.noise_multiplier = stated


class NoClipping(DPOptimizer):
    def clip_and_accumulate(self):
        stated, self.max_grad_norm = self.max_grad_norm, 1e9
        super().clip_and_accumulate()
        self.max_grad_norm = stated


class LayersWithTheTotalBound(DPOptimizer):
    def clip_and_accumulate(self):
        for parameter in self.params:
            _add(parameter, self._get_flat_grad_sample(parameter), self._get_flat_grad_sample(parameter), self.max_grad_norm)


class NormOfHalf(DPOptimizer):
    """The norm is taken over the first parameters only, up to half of all numbers."""

    def clip_and_accumulate(self):
        rows = torch.cat([each.reshape(len(each), -1) for each in self.grad_samples], dim=1)
        seen = rows[:, : rows.shape[1] // 2]
        for parameter in self.params:
            _add(parameter, self._get_flat_grad_sample(parameter), seen, self.max_grad_norm)


def _add(parameter, rows, seen, bound):
    factors = (bound / (seen.reshape(len(seen), -1).norm(2, dim=-1) + 1e-6)).clamp(max=1.0)
    total = torch.einsum("i,i...", factors, rows)
    parameter.summed_grad = total if parameter.summed_grad is None else parameter.summed_grad + total


def faults(runs):
    found, right = {}, opacus.privacy_engine.get_optimizer_class
    for name, kind in (("half the noise", HalfNoise), ("no clipping", NoClipping), ("layers", LayersWithTheTotalBound)):
        opacus.privacy_engine.get_optimizer_class = lambda *_, kind=kind, **__: kind
        found[name] = counted(audited(digits(), 1.0).verdict.word for _ in range(runs))
        print(name, found[name], flush=True)
    opacus.privacy_engine.get_optimizer_class = right
    name = "noise from manual_seed(0)"
    words = (audited(digits(), 1.0, noise_generator=torch.Generator().manual_seed(0)).verdict.word for _ in range(runs))
    found[name] = counted(words)
    print(name, found[name], flush=True)
    return found


def seeds(runs):
    """The noise of a script that is seeded, and of the same script whose noise has a generator of its own."""
    found = {}
    for name in (
        "manual_seed(42) at the beginning",
        "Generator() without a seed",
        "seeded, the noise from a generator of its own",
    ):
        words = []
        for _ in range(runs):
            torch.seed()
            options = {} if name.startswith("manual") else {"noise_generator": torch.Generator()}
            if not name.startswith("Generator"):
                torch.manual_seed(42)
            if name.startswith("seeded"):
                options["noise_generator"].seed()
            audit = new_audit()
            private(audit, digits(), 1.0, **options)[0]()
            words.append(audit.result.verdict.word)
        found[name] = counted(words)
        print(name, found[name], flush=True)
    return found


def sampling(runs):
    """A correct loop at noise 2, where canaries alone are too few, and loops that draw otherwise; then `assert_samples`."""
    found, rng, population, rate = {}, np.random.default_rng(), 1280, 0.05
    draws = {
        "as stated": lambda: np.flatnonzero(rng.random(population) < rate),
        "4 times the rate": lambda: np.flatnonzero(rng.random(population) < 4 * rate),
        "1.1 times the rate": lambda: np.flatnonzero(rng.random(population) < 1.1 * rate),
        "batches of one size": lambda: rng.permutation(population)[:64],
    }
    for name, draw in draws.items():
        words = counted(_looped(rng, draw, population, rate) for _ in range(runs))
        passed = sum(_samples(draw, population, rate) for _ in range(10 * runs))
        found[name] = {"loop": words, "assert_samples": f"{passed} of {10 * runs} pass"}
        print(name, found[name], flush=True)
    return found


def _looped(rng, draw, population, rate, dim=2000, steps=40, noise=2.0):
    batch = population * rate
    told = {"sampling": "poisson", "rate": rate, "population": population}
    audit = new_audit().loop(dim=dim, steps=steps, clip_norm=1.0, noise_multiplier=noise, batch=batch, **told)
    for t in range(steps):
        drawn = draw()
        rows = audit.plant(t, rng.standard_normal((len(drawn), dim)).astype(np.float32) / 10, examples=drawn)
        clipped = rows * np.minimum(1, 1 / np.linalg.norm(rows, axis=1))[:, None]
        audit.release(t, (clipped.sum(axis=0) + noise * rng.standard_normal(dim)) / batch, contributions=clipped)
    return audit.result.verdict.word


def _samples(draw, population, rate):
    try:
        assert_samples(draw, population=population, rate=rate)
    except AssertionError:
        return False
    return True


def amplified(runs):
    found = {}
    for times in (1, 4):
        results = []
        for _ in range(runs):
            torch.seed()
            audit = new_audit(pool=2000, statement=Statement(view="unknown-rounds"))
            train, loader = private(audit, digits(), 1.0, 4)
            loader.batch_sampler._sampler.sample_rate *= times
            train()
            results.append(audit.result)
        violated = sum(each.bound.epsilon > each.claim.epsilon for each in results)
        found[f"rate times {times}"] = {
            "runs": runs,
            "claim": round(results[0].claim.epsilon, 3),
            "bounds": sorted(round(each.bound.epsilon, 2) for each in results),
            "bound above the claim": violated,
            "words": counted(each.verdict.word for each in results),
        }
        print(times, found[f"rate times {times}"], flush=True)
    return found


def private_step(kind):
    """One step of an optimizer of Opacus, as a function of gradients."""
    model = nn.Sequential(nn.Linear(64, 40), nn.ReLU(), nn.Linear(40, 10))
    inner = torch.optim.SGD(model.parameters(), lr=0.0)
    optimizer = kind(inner, noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=64)

    def step(rows):
        optimizer.zero_grad()
        start = 0
        for parameter in model.parameters():
            part = rows[:, start : start + parameter.numel()]
            parameter.grad_sample = torch.tensor(part).reshape(len(rows), *parameter.shape)
            start += parameter.numel()
        optimizer.step()
        return [parameter.grad for parameter in model.parameters()]

    return step, sum(parameter.numel() for parameter in model.parameters())


def conforms(runs):
    found = {}
    kinds = [("right", DPOptimizer, runs)]
    kinds += [
        ("half the noise", HalfNoise, 5),
        ("no clipping", NoClipping, 5),
        ("norm of half of the parameters", NormOfHalf, 5),
    ]
    for name, kind, times in kinds:
        passed, messages, began = 0, [], time.process_time()
        for _ in range(times):
            torch.seed()
            step, dim = private_step(kind)
            try:
                assert_conforms(step, dim=dim, clip_norm=1.0, noise_multiplier=1.0)
                passed += 1
            except AssertionError as error:
                messages.append(str(error)[:160])
        seconds = (time.process_time() - began) / times
        found[name] = {"runs": times, "passed": passed, "cpu seconds each": round(seconds, 1), "message": messages[:1]}
        print(name, found[name], flush=True)
    return found


def overhead(runs):
    """CPU time of steps with the audit over that of steps without it, in one process and one thread.

    Blocks of 16 steps in turn, as one step of 16 has canaries; all steps count, with their loading. What is made once (tables
    of the first block, and the result) is no part of a step, and stands beside the ratio.
    """
    torch.set_num_threads(1)
    found = {}
    for width, blocks in ((125, 8), (1258, 2)):
        pairs = [_compared(width, blocks) for _ in range(runs)]
        plain, audited, first, last = np.sum(pairs, axis=0)
        dim = 784 * width + width + width * 10 + 10
        found[f"{dim} parameters"] = {
            "steps": 16 * blocks * runs,
            "ratio": round(float(audited / plain), 3),
            "ratios": [round(float(each[1] / each[0]), 3) for each in pairs],
            "milliseconds of a plain step": round(1e3 * float(plain) / (16 * blocks * runs), 1),
            "seconds once": {"first block": round(float(first) / runs, 2), "result": round(float(last) / runs, 2)},
        }
        print(dim, found[f"{dim} parameters"], flush=True)
    return found


def _compared(width, blocks):
    """(seconds without, seconds with the audit, what the first block took longer, the result)."""
    inputs, labels = torch.randn(128 * 469, 784), torch.randint(0, 10, (128 * 469,))
    audit, data = new_audit(), DataLoader(TensorDataset(inputs, labels), batch_size=128)
    steps, seconds = [], [0.0, 0.0]
    for kind in (lambda engine: engine, audit.opacus):
        model = nn.Sequential(nn.Linear(784, width), nn.ReLU(), nn.Linear(width, 10))
        optimizer, engine = torch.optim.SGD(model.parameters(), lr=0.01), opacus.PrivacyEngine(accountant="rdp")
        told = {"module": model, "optimizer": optimizer, "data_loader": data, "noise_multiplier": 1.0, "max_grad_norm": 1.0}
        steps.append(_steps(*kind(engine).make_private(**told)))
    first = [_seconds(each, 16) for each in steps]
    for block in range(blocks):
        for which in (0, 1) if block % 2 else (1, 0):
            seconds[which] += _seconds(steps[which], 16)
    began = time.process_time()
    assert audit.result.conformance.rounds == blocks + 1
    return *seconds, first[1] - first[0], time.process_time() - began


def _steps(model, optimizer, loader):
    for inputs, targets in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        yield


def _seconds(steps, number):
    began = time.process_time()
    for _ in range(number):
        next(steps)
    return time.process_time() - began


def versions(runs):
    found, folder = {}, ROOT / ".venv-opacus-versions"
    for version in VERSIONS:
        python = _prepared(folder / version, version)
        tests = [python, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "-rs", "tests/attach/test_opacus.py"]
        lines = subprocess.run(tests, cwd=ROOT, capture_output=True, text=True).stdout.splitlines()
        said = next((line for line in reversed(lines) if "passed" in line or "failed" in line), "none")
        skipped = [line.partition(": ")[2] for line in lines if line.startswith("SKIPPED")]
        found[version] = {"tests": said.partition(" in ")[0], "skipped": sorted(set(skipped))}
        failed = [line for line in lines if line.startswith("FAILED")]
        print(version, found[version], *failed, sep="\n", flush=True)
    return found


def _prepared(place, version):
    python = place / "bin" / "python"
    if not (place / "installed").is_file():
        venv.create(place, with_pip=True, clear=True)
        paths = [each for each in sys.path if each.endswith("site-packages")]
        site = subprocess.run(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], capture_output=True, text=True, check=True
        ).stdout.strip()
        Path(site, "main-environment.pth").write_text(
            "".join(f"import site; site.addsitedir({each!r})\n" for each in paths), encoding="utf-8"
        )
        subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", f"opacus=={version}"], check=True)
        (place / "installed").touch()
    return str(python)


def counted(words):
    words = list(words)
    return {word: words.count(word) for word in sorted(set(words))}


def main():
    studies = {each.__name__: each for each in (coverage, faults, seeds, sampling, amplified, conforms, overhead, versions)}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=studies)
    parser.add_argument("--runs", type=int, default=3)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    found = studies[asked.study](asked.runs)
    kept = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    RESULTS.write_text(json.dumps({**kept, asked.study: found}, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()

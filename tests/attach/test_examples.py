"""The examples: as many added lines as the documentation says, correct code that conforms, and a half-noise twin that is found.

A correct run is found false with probability 0.001 (the level of the tests), VIOLATED with at most 0.05.
"""

import difflib
import runpy
from pathlib import Path

import pytest

from coalmine.report.words import not_shown
from coalmine.result import AuditResult

EXAMPLES = Path(__file__).parents[2] / "examples"
NEEDS = {
    "opacus": "opacus",
    "pytorch-loop": "torch",
    "jax-loop": "jax",
    "jax-privacy": "jax_privacy",
    "huggingface": "transformers",
}
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def large_seed(request):
    """Noise from PyTorch's own generator: the same in every run of a test, and from no seed that anybody would try."""
    pytest.importorskip("torch").manual_seed(2**60 + sum(request.node.name.encode()))


@pytest.mark.parametrize(("name", "lines"), [("opacus", 3), ("pytorch-loop", 4), ("jax-loop", 4)])
def test_added_lines(name, lines):
    """Beside the import; a line that was changed counts."""
    texts = [(EXAMPLES / name / file).read_text(encoding="utf-8").splitlines() for file in ("plain.py", "train.py")]
    code = [[line for line in text if line.strip() and not line.startswith(('"""', "import coalmine"))] for text in texts]
    added = [line for line in difflib.ndiff(*code) if line.startswith("+ ")]
    assert len(added) == lines, added


def run(name, file, tmp_path, monkeypatch):
    pytest.importorskip(NEEDS[name])
    if name == "huggingface":
        pytest.importorskip("opacus")
        pytest.importorskip("accelerate")
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / name / file))["main"]("audit")
    assert (tmp_path / "audit" / "training.json").is_file()
    return AuditResult.load(tmp_path / "audit")


@pytest.mark.parametrize("name", NEEDS)
def test_correct_examples_conform(name, tmp_path, monkeypatch):
    result = run(name, "train.py", tmp_path, monkeypatch)
    assert result.conformance.deviations == ()
    assert result.game.unit == "example"
    assert result.verdict.word in ("CONSISTENT", "INCONCLUSIVE")
    assert "client" not in "\n".join([str(result), *not_shown(result)])


@pytest.mark.parametrize("name", NEEDS)
def test_half_of_the_noise_is_found(name, tmp_path, monkeypatch):
    result = run(name, "half_noise.py", tmp_path, monkeypatch)
    assert result.verdict.word in ("VIOLATED", "DEVIATES")
    assert result.conformance.noise.measured == pytest.approx(0.5, rel=0.05)


def test_an_optimizer_in_its_own_suite():
    """The example's tests pass, and its step fails for an optimizer with half the noise."""
    opacus = pytest.importorskip("opacus")
    made = runpy.run_path(str(EXAMPLES / "opacus" / "test_step.py"))
    made["test_step"]()
    made["test_sampling"]()

    class HalfNoise(opacus.optimizers.DPOptimizer):
        def add_noise(self):
            self.noise_multiplier = 0.5
            super().add_noise()

    step, dim = made["private_step"](HalfNoise)
    with pytest.raises(AssertionError, match=r"measured 0\.[45]"):
        made["assert_conforms"](step, dim=dim, clip_norm=1.0, noise_multiplier=1.0)

"""Opacus itself: every kind of clipping, virtual steps, both kinds of loaders, and faults. Noise comes from fixed seeds."""

import copy
import inspect
import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch")
opacus = pytest.importorskip("opacus")

from opacus.optimizers import DPOptimizer  # noqa: E402
from opacus.utils.batch_memory_manager import BatchMemoryManager  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from coalmine.adapters import Statement  # noqa: E402
from coalmine.adapters.opacus import attach  # noqa: E402
from coalmine.errors import MismatchError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
ADAPTIVE = {
    "clipping": "adaptive",
    "target_unclipped_quantile": 0.5,
    "clipbound_learning_rate": 0.2,
    "max_clipbound": 10.0,
    "min_clipbound": 0.01,
    "unclipped_num_std": 5.0,
}
KINDS = {
    "flat": {},
    "layers": {"clipping": "per_layer", "max_grad_norm": [0.5] * 4},
    "adaptive": ADAPTIVE,
    "ghost": {"grad_sample_mode": "ghost", "criterion": nn.CrossEntropyLoss()},
    "sum": {"loss_reduction": "sum", "criterion": nn.CrossEntropyLoss(reduction="sum")},
    "shuffled": {"poisson_sampling": False},
}


def task(seed=0):
    generator = torch.Generator().manual_seed(1000 + seed)
    data = TensorDataset(torch.randn(320, 20, generator=generator), torch.randint(0, 5, (320,), generator=generator))
    torch.manual_seed(2**60 + seed)  # a large one: nobody tries so many
    model = nn.Sequential(nn.Linear(20, 40), nn.ReLU(), nn.Linear(40, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return {"module": model, "optimizer": optimizer, "data_loader": DataLoader(data, batch_size=16, shuffle=True)}


def fit(made, epochs=1, criterion=None, physical=None):
    model, optimizer, *wrapped, loader = made
    criterion = wrapped[0] if wrapped else criterion or nn.CrossEntropyLoss()
    for _ in range(epochs):
        batches = loader
        if physical is not None:
            batches = BatchMemoryManager(data_loader=loader, max_physical_batch_size=physical, optimizer=optimizer).__enter__()
        for inputs, targets in batches:
            optimizer.zero_grad()
            criterion(model(inputs), targets).backward()
            optimizer.step()


def train(audit, physical=None, seed=0, **options):
    engine = opacus.PrivacyEngine(accountant="rdp")
    if "criterion" in options:
        options["criterion"] = copy.deepcopy(options["criterion"])  # Opacus 1.5 changes the one that it is given
    wrapped = options.get("grad_sample_mode") == "ghost"  # only there Opacus takes the criterion
    told = {name: value for name, value in options.items() if name != "criterion" or wrapped}
    told = {**task(seed), "noise_multiplier": 1.0, "max_grad_norm": 1.0, **told}
    made = audit.opacus(engine).make_private(**told)
    fit(made, epochs=2, criterion=options.get("criterion"), physical=physical)
    return made, engine


@pytest.mark.parametrize("kind", KINDS)
def test_right_code_conforms_however_it_clips(new_audit, kind):
    if kind == "ghost" and not hasattr(opacus.optimizers, "DPOptimizerFastGradientClipping"):
        pytest.skip("before ghost clipping")
    if kind == "adaptive" and "kwargs" not in inspect.signature(opacus.PrivacyEngine.make_private).parameters:
        pytest.skip("before make_private took the options of adaptive clipping")
    audit = new_audit()
    (_, optimizer, *_), engine = train(audit, **KINDS[kind])
    result = audit.result
    assert isinstance(optimizer, DPOptimizer)
    assert result.conformance.deviations == ()
    assert result.conformance.rounds == 40
    assert result.verdict.word in ("CONSISTENT", "INCONCLUSIVE")
    assert result.game.unit == "example"
    if kind == "shuffled":
        assert result.training["participation"]["times"] == 2
        assert any("as if it sampled by Poisson's rule" in caveat for caveat in result.caveats)
    else:
        assert result.training["epsilon_of_clients"] == pytest.approx(engine.get_epsilon(1e-5))
    if kind not in ("layers",):  # whose clipping turns a canary
        estimate = next(each for each in result.estimates if each.key == "gaussian-mean")
        assert abs(estimate.details["mean"] - 1.0) < 4.9 / np.sqrt(estimate.details["count"])


@pytest.fixture
def sparse(monkeypatch):
    """As in a large model: one step of 16 has canaries."""
    monkeypatch.setattr("coalmine.adapters.opacus.engine._LARGE", 100)


@pytest.mark.parametrize("kind", [*KINDS, "virtual"])
def test_right_code_conforms_in_steps_between_the_audited_ones(new_audit, sparse, kind):
    if kind == "ghost" and not hasattr(opacus.optimizers, "DPOptimizerFastGradientClipping"):
        pytest.skip("before ghost clipping")
    if kind == "adaptive" and "kwargs" not in inspect.signature(opacus.PrivacyEngine.make_private).parameters:
        pytest.skip("before make_private took the options of adaptive clipping")
    audit = new_audit(pool=None)
    train(audit, **KINDS.get(kind, {}), physical=6 if kind == "virtual" else None)
    found = audit.result.conformance
    assert found.deviations == () and found.rounds <= 4
    assert found.noise.details["factor"] > 0.98  # of all 40 steps: those with canaries alone would not see 2 %


def at_step(number, method, fault):
    """Opacus's optimizer with a fault in one step of many."""

    class Faulty(DPOptimizer):
        def pre_step(self, closure=None):
            self.steps_before = vars(self).get("steps_before", -1) + 1
            return super().pre_step(closure)

    def changed(self):
        wrong = self.steps_before == number
        kept = {name: vars(self)[name] for name in fault}
        vars(self).update(fault if wrong else {})
        getattr(super(Faulty, self), method)()
        vars(self).update(kept)

    setattr(Faulty, method, changed)
    return Faulty


@pytest.mark.parametrize("number", [3, 22])
@pytest.mark.parametrize(
    ("method", "fault", "sentence"),
    [
        ("add_noise", {"noise_multiplier": 0.5}, "noise-by-round"),
        ("add_noise", {"noise_multiplier": 1.5}, "noise-by-round"),
        ("clip_and_accumulate", {"max_grad_norm": 30.0}, "clipping"),
    ],
)
def test_a_fault_in_a_single_step_is_seen_wherever_it_is(new_audit, sparse, monkeypatch, number, method, fault, sentence):
    """Without looking at every step 15 of 16 such faults were missed, and the code was called as claimed."""
    faulty = at_step(number, method, fault)
    monkeypatch.setattr(opacus.privacy_engine, "get_optimizer_class", lambda *_, **__: faulty)
    audit = new_audit(pool=None)
    train(audit)
    assert sentence in [each.key for each in audit.result.conformance.deviations]
    assert audit.result.verdict.word != "CONSISTENT"


def test_virtual_steps_are_one_step(new_audit):
    audit = new_audit()
    train(audit, physical=6)
    assert audit.result.conformance.deviations == ()
    assert audit.result.conformance.rounds == 40
    assert audit.result.training["mean_clients"] == pytest.approx(16, abs=3)


def test_examples_learn_the_same_where_no_canary_is(new_audit):
    """The optimizer that comes back shares all state with Opacus's own: schedulers and checkpoints see one optimizer."""
    audit = new_audit()
    made = audit.opacus(opacus.PrivacyEngine(accountant="rdp")).make_private(**task(), noise_multiplier=1.0, max_grad_norm=1.0)
    optimizer = made[1]
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    fit(made)
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == optimizer.original_optimizer.param_groups[0]["lr"] == 0.05
    assert optimizer.state_dict()["param_groups"]


def test_with_epsilon_canaries_are_spread_over_all_epochs(new_audit):
    audit = new_audit()
    told = {"target_epsilon": 3.0, "target_delta": 1e-5, "epochs": 2, "max_grad_norm": 1.0}
    fit(audit.opacus(opacus.PrivacyEngine(accountant="rdp")).make_private_with_epsilon(**task(), **told), epochs=2)
    assert audit.rounds == 40
    assert audit.result.training["epsilon_of_clients"] == pytest.approx(3.0, abs=0.1)


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


class ByLayer(DPOptimizer):
    """Each array is clipped to the bound that is meant for all of them."""

    def clip_and_accumulate(self):
        for parameter in self.params:
            rows = self._get_flat_grad_sample(parameter)
            factors = (self.max_grad_norm / (rows.reshape(len(rows), -1).norm(2, dim=-1) + 1e-6)).clamp(max=1.0)
            found = torch.einsum("i,i...", factors, rows)
            parameter.summed_grad = found if parameter.summed_grad is None else parameter.summed_grad + found


class TwiceTheNorm(DPOptimizer):
    def clip_and_accumulate(self):
        stated, self.max_grad_norm = self.max_grad_norm, 2.5 * self.max_grad_norm
        super().clip_and_accumulate()
        self.max_grad_norm = stated


class NotDivided(DPOptimizer):
    def scale_grad(self):
        pass


@pytest.mark.parametrize("fault", [TwiceTheNorm, NotDivided])
def test_a_scale_that_is_opacus_own_is_no_mistake_of_the_user(new_audit, monkeypatch, fault):
    monkeypatch.setattr(opacus.privacy_engine, "get_optimizer_class", lambda *_, **__: fault)
    audit = new_audit()
    train(audit, physical=6)
    assert audit.result.verdict.word in ("VIOLATED", "DEVIATES")


def test_steps_without_examples(new_audit):
    audit, told = new_audit(), task()
    told["data_loader"] = DataLoader(told["data_loader"].dataset, batch_size=1)
    made = audit.opacus(opacus.PrivacyEngine(accountant="rdp")).make_private(**told, noise_multiplier=1.0, max_grad_norm=1.0)
    fit((*made[:2], itertools.islice(made[2], 60)))
    assert audit.result.conformance.deviations == ()
    assert audit.result.conformance.rounds == 60


@pytest.mark.parametrize(
    ("seeded", "kind"),
    [
        ("script", "flat"),
        ("script", "layers"),
        ("script", "virtual"),
        ("generator", "flat"),
        ("generator without a seed", "flat"),
    ],
)
def test_noise_that_anybody_can_draw_again_is_found(new_audit, seeded, kind):
    """A script that begins with manual_seed, as most do, whatever it draws before the noise."""
    audit, told = new_audit(), task()
    if seeded == "script":
        torch.manual_seed(42)
    else:
        made = torch.Generator().manual_seed(20_261_118) if seeded == "generator" else torch.Generator()
        torch.randn(1000, generator=made)
        told["noise_generator"] = made
    engine = opacus.PrivacyEngine(accountant="rdp")
    options = KINDS["layers"] if kind == "layers" else {}
    made = audit.opacus(engine).make_private(**{**told, "noise_multiplier": 1.0, "max_grad_norm": 1.0, **options})
    fit(made, physical=6 if kind == "virtual" else None)
    found = audit.result.conformance.finding("noise-unpredictable")
    assert "without a seed" in found.where if "without" in seeded else "with seed" in found.where
    assert audit.result.verdict.word == "DEVIATES"


@pytest.mark.parametrize("fault", [HalfNoise, NoClipping, ByLayer])
def test_faults_are_found(new_audit, monkeypatch, fault):
    monkeypatch.setattr(opacus.privacy_engine, "get_optimizer_class", lambda *_, **__: fault)
    audit = new_audit()
    train(audit)
    assert audit.result.verdict.word in ("VIOLATED", "DEVIATES")
    assert audit.result.conformance.side in ("less", "unknown")


def test_a_generator_with_a_public_seed_is_found(new_audit):
    audit = new_audit()
    train(audit, noise_generator=torch.Generator().manual_seed(0))
    assert audit.result.conformance.finding("noise-unpredictable").side == "unknown"
    assert audit.result.verdict.word == "DEVIATES"


def test_a_loader_that_samples_four_times_too_often_is_found(new_audit):
    audit = new_audit(statement=Statement(view="unknown-rounds", unused_rows=1000))
    engine = opacus.PrivacyEngine(accountant="rdp")
    made = audit.opacus(engine).make_private(**task(), noise_multiplier=1.0, max_grad_norm=1.0)
    made[-1].batch_sampler._sampler.sample_rate *= 4
    fit(made, epochs=2)
    result = audit.result
    assert result.game.knowledge == "rounds unknown"
    assert result.conformance.finding("cohorts").side == "less"
    assert result.verdict.word in ("VIOLATED", "DEVIATES")


def test_sampled_canaries_of_right_code(new_audit):
    audit = new_audit(statement=Statement(view="unknown-rounds", unused_rows=1000))
    train(audit)
    assert audit.result.conformance.deviations == ()
    assert audit.result.game.participation.rate == 0.05
    assert audit.result.verdict.word != "VIOLATED"


# Those who make the optimizer themselves, and what is refused


def bare(kind=DPOptimizer, **options):
    model = nn.Linear(30, 20)
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    told = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "expected_batch_size": 8, **options}
    return model, kind(inner, **told)


def test_attach_after_make_private(new_audit, capsys):
    """What the engine's accountant was told is the claim of the examples; the pool follows from claim and model."""
    audit, engine = new_audit(rounds=20, pool=None), opacus.PrivacyEngine(accountant="rdp")
    module, optimizer, loader = engine.make_private(**task(), noise_multiplier=1.0, max_grad_norm=1.0)
    fit((module, attach(optimizer, audit, engine=engine, module=module), loader))
    assert (
        "canaries cannot tell half the noise from the claim 4.38; 1,120 would, and this model has room"
        in capsys.readouterr().err
    )
    assert audit.result.training["epsilon_of_clients"] == pytest.approx(engine.get_epsilon(1e-5))
    with pytest.raises(MismatchError, match="takes the PrivacyEngine of Opacus; got int"):
        new_audit().opacus(3)


def test_attach_to_an_optimizer_of_ones_own(new_audit):
    audit = new_audit(rounds=20)
    model, optimizer = bare()
    optimizer = attach(optimizer, audit)
    generator = torch.Generator().manual_seed(2**60 + 77_000_001)
    for _ in range(20):
        for parameter in model.parameters():
            parameter.grad_sample = torch.randn(8, *parameter.shape, generator=generator)
        optimizer.step()
        optimizer.zero_grad()
    assert audit.result.conformance.deviations == ()
    assert [view.view for view in audit.result.views]


def test_what_cannot_be_audited_is_one_sentence(new_audit):
    optimizer = bare()[1]
    with pytest.raises(MismatchError, match="needs the DPOptimizer of Opacus; got SGD"):
        attach(optimizer.original_optimizer, new_audit(rounds=5))
    with pytest.raises(MismatchError, match="trains in several processes"):
        attach(bare(type("DistributedDPOptimizer", (DPOptimizer,), {}))[1], new_audit(rounds=5))
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    with pytest.raises(MismatchError, match="attach the audit before it is made"):
        attach(optimizer, new_audit(rounds=5))
    with pytest.raises(MismatchError, match=r"give Audit\(rounds=...\)"):
        attach(bare()[1], new_audit())


def test_noise_that_changes_ends_the_audit_and_not_the_training(new_audit, capsys):
    audit = new_audit()
    made = audit.opacus(opacus.PrivacyEngine(accountant="rdp")).make_private(**task(), noise_multiplier=1.0, max_grad_norm=1.0)
    fit(made)
    made[1].noise_multiplier = 0.5
    fit(made)
    assert "noise multiplier 0.5 in step 21: an audit is of one mechanism" in capsys.readouterr().err
    with pytest.raises(MismatchError, match="one mechanism"):
        audit.result  # noqa: B018

"""Mechanisms of others in whole runs: noise of the clients under audit, names in a configuration, entry points, errors."""

import json
import sys
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint

import numpy as np
import pytest
import toys

import coalmine
from coalmine.audit.spec import AuditSpec
from coalmine.contracts import Clip, Contribution, Description, Noise, Opaque, Public, Release
from coalmine.errors import CoalmineError, NonFiniteError
from coalmine.mechanisms import Gaussian, registry
from coalmine.training import resume, run
from coalmine.training.assembly import federation, load_task
from coalmine.training.config import changed, read_config
from coalmine.training.running import run_in_memory

pytestmark = pytest.mark.usefixtures("undrawn")

FALSE_ALARM = 1e-3  # of the statements about client noise, by chance over seeds; the seed is fixed
CLIENTS = 30  # of a round; noise of canaries is the auditor's, and no claim counts on it
AUDITED = (
    *("participation.rounds=6", "participation.epochs=1", "data.held_out=0", "canaries.pool=600", "audit.unused_rows=1500"),
    *('audit.views=["known-others","known-rounds"]', "run.workers=1", f"audit.confidence={1 - FALSE_ALARM}"),
)
SMALL = (
    *("participation.rounds=4", "participation.epochs=1", "data.held_out=0", "data.users=40", "canaries.pool=20"),
    *("audit.unused_rows=100", 'audit.views=["known-others"]', "run.workers=1"),
)


# noise of the clients


@pytest.mark.parametrize(("kind", "violated"), [(toys.ByTheClients, False), (toys.HalfByTheClients, True)])
def test_clients_that_add_all_of_the_noise_pass_and_clients_that_add_half_of_it_do_not(kind, violated, tmp_path):
    mechanism = kind(1.0, 0.7, honest=CLIENTS)
    result = run(read_config("tiny", AUDITED), tmp_path / "run", mechanism=mechanism, secret_seed=3, quiet=True).result
    assert result.setting["view"] == "known-others" and result.claim.game.randomness == "noise of the clients"
    assert (result.verdict.word == "VIOLATED") == violated
    assert (result.estimate.low <= result.claim.epsilon <= result.estimate.high) != violated
    assert json.loads((tmp_path / "run/result.json").read_text())["claim"]["description"]["noise"]["added_by"] == {
        "kind": "clients",
        "parameters": {"count": CLIENTS, "honest": CLIENTS},
    }


def test_others_are_the_parts_of_the_clients_without_their_noise():
    """An adversary who knows all other updates does not know the noise that they added."""
    config = read_config("tiny", SMALL)
    seen = {}
    for kind in (Gaussian, toys.ByTheClients):
        job = federation(config, load_task(config), 5, kind(1.0, 0.0) if kind is Gaussian else kind(1.0, 0.7))
        found = []
        run_in_memory(config.spec, job, 5, lambda observed, found=found: found.append(observed))
        seen[kind] = found[0]
    plain, noisy = seen[Gaussian], seen[toys.ByTheClients]
    assert abs(plain.others - noisy.others).max() == 0
    assert (
        abs(plain.canaries.part - noisy.canaries.part).max() < 1e-6
        and abs(plain.canaries.own - noisy.canaries.own).max() < 1e-6
    )
    assert abs(plain.release.vector - noisy.release.vector).max() > 1e-3


# by its name in a configuration

MODULE = '''
from dataclasses import dataclass
from coalmine.audit.spec import AuditSpec
from coalmine.contracts import Clip, Contribution, Description, Noise, Opaque, Public, Release
from coalmine.mechanisms import Gaussian

@dataclass(frozen=True)
class Mine(Gaussian):
    taste: str = "sweet"

class Usual(Gaussian):
    """Has defaults of its own, and is no dataclass."""
    def __init__(self, clip_norm=0.25, noise_multiplier=3.0):
        super().__init__(clip_norm, noise_multiplier)

class OtherWords(Gaussian):
    def __init__(self, spread):
        super().__init__(1.0, spread)
    def without_noise(self):
        return OtherWords(0.0)

CALLED = []
def call(**options):
    CALLED.append(options)

class Silent:
    """Says nothing of itself."""
    def __init__(self, clip_norm, noise_multiplier):
        CALLED.append("silent")

class Made:
    """Made from its options and what it may know of the run."""
    @classmethod
    def from_config(cls, options, context):
        assert context.cohort == 10.0 and context.population == 40 and context.rounds == 4 and context.groups
        return Mine(options["clip"], options["noise"])
'''


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "somebodys_package").mkdir()
    (tmp_path / "somebodys_package" / "__init__.py").write_text("")
    (tmp_path / "somebodys_package" / "noise.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield "somebodys_package.noise"
    for name in [name for name in sys.modules if name.startswith("somebodys_package")]:
        del sys.modules[name]


def small(tmp_path, section, *changes):
    from importlib import resources

    preset = resources.files("coalmine").joinpath("presets/tiny.toml").read_text(encoding="utf-8")
    before, _, after = preset.partition("[mechanism]")
    text = f"{before}[mechanism]\n{section}\n[participation]{after.partition('[participation]')[2]}"
    (tmp_path / "config.toml").write_text(text)
    return read_config(tmp_path / "config.toml", [*SMALL, *changes])


def test_a_class_is_named_by_its_path(module, tmp_path):
    section = f'kind = "{module}:Mine"\nclip_norm = 1.0\nnoise_multiplier = 0.5\ntaste = "sour"'
    done = run(small(tmp_path, section), tmp_path / "run", secret_seed=5, quiet=True)
    same = run(read_config("tiny", SMALL), tmp_path / "same", secret_seed=5, quiet=True)
    assert done.result.setting["sha256"] == same.result.setting["sha256"], "another name, the same noise"
    assert done.result.claim == same.result.claim
    assert f'kind = "{module}:Mine"' in (tmp_path / "run/config.toml").read_text()
    assert resume(tmp_path / "run").result == done.result


def test_a_factory_makes_what_it_likes_of_options_and_context(module, tmp_path):
    config = small(tmp_path, f'kind = "{module}:Made"\nclip = 1.0\nnoise = 0.5')
    done = run(config, tmp_path / "run", secret_seed=5, quiet=True)
    assert done.result.claim.description == Gaussian(1.0, 0.5).describe()
    with pytest.raises(ValueError, match="cannot be made from clip: 'noise'"):
        run(small(tmp_path, f'kind = "{module}:Made"\nclip = 1.0'), tmp_path / "other", secret_seed=5, quiet=True)


def test_a_mechanism_that_does_not_describe_itself_gets_the_lines_to_add(module, tmp_path):
    config = small(tmp_path, f'kind = "{module}:Silent"')
    assert sys.modules[module].CALLED == []
    with pytest.raises(ValueError, match=r"Silent does not say what it is[\s\S]*def describe\(self\):[\s\S]*Noise\(accounted="):
        run(config, tmp_path / "run", quiet=True)
    with pytest.raises(ValueError, match=r"Nameless does not say what it is[\s\S]*from coalmine\.contracts import Clip"):
        run(read_config("tiny", SMALL), tmp_path / "run", mechanism=type("Nameless", (), {})(), quiet=True)
    assert not (tmp_path / "run").exists() and sys.modules[module].CALLED == []


def test_a_configuration_calls_nothing_but_classes_of_mechanisms(module, tmp_path):
    """It may come from somebody else: `os:system` with a command must not run."""
    with pytest.raises(ValueError, match="is neither a class nor has it a `from_config`"):
        run(small(tmp_path, f'kind = "{module}:call"\ncommand = "whatever"'), tmp_path / "run", quiet=True)
    assert sys.modules[module].CALLED == [] and not (tmp_path / "run").exists()


def test_a_kind_keeps_its_own_defaults(module, tmp_path):
    assert small(tmp_path, f'kind = "{module}:Usual"').mechanism.options == {}
    config = small(tmp_path, f'kind = "{module}:Usual"\nnoise_multiplier = 0.5')
    assert federation(config, load_task(config), 5).mechanism.describe() == Gaussian(0.25, 0.5).describe()
    assert small(tmp_path, 'kind = "gaussian"').mechanism.options == {"clip_norm": 1.0, "noise_multiplier": 1.0}


def test_the_comparison_without_noise_writes_a_configuration_that_can_be_read(module, tmp_path):
    """Of a mechanism that has no key `noise_multiplier`, too."""
    config = small(tmp_path, f'kind = "{module}:OtherWords"\nspread = 0.5', "run.reference=true")
    run(config, tmp_path / "run", secret_seed=5, quiet=True)
    assert read_config(tmp_path / "run/reference/config.toml").mechanism.options == {"spread": 0.5}


def without(*names):
    """An object with the methods of a mechanism, but for these."""
    return type("Partial", (Gaussian,), dict.fromkeys(names))(1.0, 0.5)


def saying(description):
    """A mechanism that describes itself so."""
    return type("Saying", (Gaussian,), {"describe": lambda self: description})(1.0, 0.5)


@pytest.mark.parametrize(
    ("mechanism", "changes", "message"),
    [
        (Gaussian, (), r"mechanism=Gaussian is a class; make an object of it: Gaussian\(\.\.\.\)"),
        (
            without("init", "client"),
            (),
            r"Partial is no mechanism: it has no init, client\. See coalmine\.contracts\.Mechanism",
        ),
        (without("without_noise"), ("run.reference=true",), "it has no without_noise"),
        (saying({"clip": 1.0}), (), "gave a dict; it must return a Description"),
        (saying(Description(Clip(1.0), Noise(-1.0, 1.0))), (), r"Saying\.describe\(\) cannot be right: noise\.accounted=-1\.0"),
        (saying(Description(Clip(1.0), Noise(1.0, float("nan")))), (), r"noise\.multiplier is NaN"),
        (saying(Description(Clip((1.0, 0.0)), Noise(1.0, 1.0))), (), r"clip\.norm=0\.0 is not allowed"),
        (saying(Description(Clip(1.0, over="layers"), None)), (), "clip.over='layers' is not allowed: it must be one of 'upd"),
        (saying(Description(Clip(1.0), None, denominator="n")), (), "denominator='n' is not allowed"),
    ],
)
def test_what_is_no_mechanism_is_refused_before_there_is_a_directory(mechanism, changes, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        run(read_config("tiny", [*SMALL, *changes]), tmp_path / "run", mechanism=mechanism, quiet=True)
    assert not (tmp_path / "run").exists()


class Released(Gaussian):
    """Releases something else."""

    def release(self, state, total, public, secret):
        made, state = super().release(state, total, public, secret)
        return replace(made, vector=self.change(made.vector)), state


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda vector: vector[:5], ValueError, r"round 0: Wrong\.release gave a vector of shape \(5,\); the model has 2410"),
        (lambda vector: vector * float("nan"), NonFiniteError, "round 0: the release of Wrong has NaN or infinite entries"),
    ],
)
def test_a_release_that_is_wrong_is_not_blamed_on_the_learning_rates(change, error, message, tmp_path):
    wrong = type("Wrong", (Released,), {"change": staticmethod(change)})(1.0, 0.5)
    with pytest.raises(error, match=message):
        run(read_config("tiny", SMALL), tmp_path / "run", mechanism=wrong, quiet=True)


def given(method, answer):
    """A mechanism of which one method answers so."""
    return type("Mine", (Gaussian,), {method: lambda self, *asked: answer(self, *asked)})(1.0, 0.5)


@pytest.mark.parametrize(
    ("method", "answer", "message"),
    [
        ("init", lambda mine, dim: None, r"Mine\.init gave None \(is a `return` missing\?\) as its state"),
        ("init", lambda mine, dim: {"clip_norm": "1"}, r"the state 'clip_norm' as '1' \(str\); it must be an array"),
        ("announce", lambda *_: None, r"Mine\.announce gave None .* must return Public\(round, clip_norm, denominator\)"),
        ("announce", lambda *_: 1.0, r"Mine\.announce gave 1\.0 \(float\)"),
        ("announce", lambda mine, state, at, n: Public(at + 1, 1.0, n), r"Mine\.announce gave round=1 in round 0"),
        ("announce", lambda mine, state, at, n: Public(at, float("nan"), n), "round 0: clip_norm is NaN"),
        ("announce", lambda mine, state, at, n: Public(at, "1", n), "'1' is text"),
        ("announce", lambda mine, state, at, n: Public(at, 1.0, 0.0), "denominator=0.0 is not allowed"),
        ("client", lambda *_: None, r"Mine\.client gave None; it must return a Contribution"),
        ("client", lambda mine, update, *_: Contribution(update * 1j, True), "a vector of complex64; it must be of real"),
        ("release", lambda *_: None, r"round 0: Mine\.release gave None .* it must return a Release .* and the next state"),
        ("release", lambda mine, state, total, public, secret: public, "it must return a Release"),
        ("release", lambda mine, state, *_: (Release(0, [0.0] * 2410, 1.0, 24.0), state), "it must be an array of 2410"),
        ("release", lambda *_: (Release(0, np.zeros(2410), 1.0, 24.0), None), r"gave None .* as its state"),
        ("release", lambda mine, state, *_: (Release(0, np.zeros(2410), 1.0, 0.0), state), "denominator=0.0 is not"),
        ("noise", lambda *_: None, r"Mine\.noise gave None; it must return 2410 numbers"),
        ("noise", lambda *_: np.zeros(3), r"Mine\.noise gave numbers of shape \(3,\)"),
    ],
)
def test_what_a_method_gives_back_is_looked_at_where_it_comes_from(method, answer, message, tmp_path):
    """All of these ended deep inside: no attribute of None, cannot unpack, index out of bounds."""
    with pytest.raises((ValueError, CoalmineError), match=message):
        run(read_config("tiny", SMALL), tmp_path / "run", mechanism=given(method, answer), quiet=True)


def test_a_method_that_takes_too_little_is_refused_before_there_is_a_directory(tmp_path):
    mine = type("Mine", (Gaussian,), {"client": lambda self, update, public: None})(1.0, 0.5)
    with pytest.raises(ValueError, match=r"Mine\.client\(update, public\) cannot be called with \(update, public, examples\)"):
        run(read_config("tiny", SMALL), tmp_path / "run", mechanism=mine, quiet=True)
    assert not (tmp_path / "run").exists()


def test_the_lines_to_add_are_all_that_is_needed():
    """The error's own lines, put into a class."""
    namespace = {}
    code = "from coalmine.contracts import Clip, Description, Noise\nclass Added:\n    clip_norm, noise_multiplier = 2.0, 0.7\n"
    exec(code + registry._EXAMPLE, namespace)
    assert namespace["Added"]().describe() == Gaussian(2.0, 0.7).describe()


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ('kind = "gausian"', r"'gausian' is not known, did you mean 'gaussian'\?"),
        ('kind = "gaussian"\nnoise_multiplyer = 1.0', r"no key 'noise_multiplyer', did you mean 'noise_multiplier'\?"),
        ('kind = "gaussian"\ntarget_quantile = 0.5', "kind 'gaussian' has no key 'target_quantile'"),
        ('kind = "no_such_module:Name"', r"cannot be loaded: No module named 'no_such_module'\. Write package\.module:Name"),
        ('kind = "coalmine.mechanisms:Nobody"', "cannot be loaded: .*'Nobody'"),
        ('kind = "coalmine.mechanisms:"', "cannot be loaded"),
        ('kind = ":Name"', "cannot be loaded"),
    ],
)
def test_names_that_are_wrong_are_told_apart(section, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        small(tmp_path, section)


def test_a_key_of_a_class_of_ones_own_is_suggested(module, tmp_path):
    with pytest.raises(ValueError, match=r"no key 'tast', did you mean 'taste'\? It has clip_norm, noise_multiplier"):
        small(tmp_path, f'kind = "{module}:Mine"\ntast = "sour"')


def test_a_package_may_register_an_entry_point(module, tmp_path, monkeypatch):
    point = EntryPoint("somebodys", f"{module}:Mine", registry.GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda *, group: [point] if group == registry.GROUP else [])
    done = run(small(tmp_path, 'kind = "somebodys"\nnoise_multiplier = 0.5'), tmp_path / "run", secret_seed=5, quiet=True)
    assert done.result.claim.description == Gaussian(1.0, 0.5).describe()
    assert resume(tmp_path / "run").result == done.result
    with pytest.raises(ValueError, match=r"did you mean 'somebodys'\? Known are gaussian, adaptive, .*, somebodys"):
        small(tmp_path, 'kind = "somebody"')


def test_an_entry_point_that_cannot_be_loaded_is_one_error(tmp_path, monkeypatch):
    point = EntryPoint("broken", "no_such_module:Name", registry.GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda *, group: [point])
    with pytest.raises(ValueError, match=r"kind='broken' cannot be loaded: No module named 'no_such_module'"):
        small(tmp_path, 'kind = "broken"')


def test_values_that_do_not_fit_are_one_error(module, tmp_path):
    with pytest.raises(ValueError, match=r"mechanism\.noise_multiplier=-1\.0 is not allowed"):
        small(tmp_path, f'kind = "{module}:Mine"\nnoise_multiplier = -1.0')
    with pytest.raises(ValueError, match=r"'noise_multiplier'|clip_norm=0"):
        run(small(tmp_path, f'kind = "{module}:Made"\nclip = 0.0\nnoise = 1.0'), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("config", "changes", "message"),
    [
        ({"mechanism": {}}, (), "a dict is no configuration: give the name of a preset"),
        (None, (), "a NoneType is no configuration"),
        ("tiny", "run.workers=1", r"set='run\.workers=1' is a single text; write a list of changes"),
    ],
)
def test_what_run_cannot_take_is_one_error(config, changes, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        coalmine.run(config, tmp_path / "run", set=changes)
    assert not (tmp_path / "run").exists()


def test_a_subclass_that_only_overrides_what_scripts_override_keeps_working(tmp_path):
    @dataclass(frozen=True)
    class Half(Gaussian):
        @property
        def update_noise_multiplier(self):
            return self.noise_multiplier / 2

    done = run(read_config("tiny", SMALL), tmp_path / "run", mechanism=Half(1.0, 1.0), secret_seed=5, quiet=True)
    assert done.result.claim.description == Gaussian(1.0, 1.0).describe(), "judged by what it inherits"


def test_statements_that_take_the_noise_for_new_are_made_of_whitened_rows_or_not_at_all(tmp_path):
    """Given the past, correlated noise has a mean: the epsilon so far is that of whitened rows."""
    config = read_config("tiny", ["participation.rounds=4", "run.workers=1", "run.evaluate_every=0", "canaries.pool=40"])
    config = changed(config, ["audit.bound=anytime"])
    finished = run(config, tmp_path / "run", mechanism=toys.Correlated(1.0, 0.5), secret_seed=1, quiet=True)
    assert finished.result.verdict.word != "VIOLATED"
    bound = finished.result.bounds[0]
    assert bound.key == "anytime" and bound.valid and bound.epsilon <= finished.result.claim.epsilon
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    assert len(events) == 4 and all(event["epsilon_measured"] <= event["epsilon_claimed"] for event in events)


@pytest.mark.parametrize("how", [{"bound": "anytime"}, {"also": ("anytime",)}])
def test_the_bound_for_any_time_is_refused_where_nobody_knows_how_to_whiten(how):
    said = Description(Clip(1.0), Noise(1.0, 1.0, rounds=Opaque("two-tap", {"coupling": 0.8})))
    with pytest.raises(ValueError, match="correlated over rounds in a way that its description does not say; use 'band'"):
        AuditSpec(1e-5, **how).check_noise(said)

"""Shared by tests of several kinds: rounds of a linear mechanism, without any training."""

import contextlib
import importlib
import io
import json
import re
import shutil
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from coalmine._random import stream
from coalmine.canaries import SphereCanaries, TransformCanaries
from coalmine.canaries.schedule import Schedule
from coalmine.views import norms_in_group, project_row, stack

sys.path.insert(0, str(Path(__file__).parent))  # `import conforming`

# The same examples every time, and no example that fails because the machine is busy.
settings.register_profile(
    "steady", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("steady")

FAMILIES = {"transform": TransformCanaries, "sphere": SphereCanaries}


@pytest.fixture(autouse=True)
def generator_of_torch():
    """What a test does to PyTorch's own generator ends with it: audits of later ones would find seed 42 there."""
    torch = sys.modules.get("torch")
    before = None if torch is None else torch.get_rng_state()
    yield
    torch = sys.modules.get("torch")
    if before is not None:
        torch.set_rng_state(before)
    elif torch is not None:
        torch.seed()  # from the operating system, as it was loaded


@pytest.fixture
def one_thread():
    """As in a worker: training is repeatable bit for bit with one thread of torch."""
    import torch  # few tests need it

    from coalmine.clients import quiet_threads

    before = torch.get_num_threads()
    quiet_threads()
    yield
    torch.set_num_threads(before)


@dataclass(frozen=True)
class Called:
    """What a command printed, and how it ended."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def called(monkeypatch):
    """`called("zoo", "--list", folder=...)`: the command line as its own process runs it, without the time to import it all."""
    from coalmine.__main__ import main

    def call(*words, folder):
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "argv", ["coalmine", *(str(word) for word in words)])
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as ended:
            main()
        return Called(ended.value.code or 0, out.getvalue(), err.getvalue())

    return call


@pytest.fixture(scope="module")
def undrawn():
    """Pages of runs have a line for each figure: drawing is half of the time of a small run. Tests of pages have them drawn."""
    from markupsafe import Markup

    from coalmine.report import page

    draw = page.element

    def name(figure, name, description):
        return Markup("<p>{}: {}</p>").format(name, description)

    name.drawn = draw
    page.element = name
    yield
    page.element = draw


@pytest.fixture
def without(monkeypatch):
    """`without("matplotlib", package)`: from here on a package of ours is loaded anew, where this one is not installed."""

    def take(missing, package):
        loaded = importlib.import_module(package)
        parent, _, name = package.rpartition(".")
        monkeypatch.setattr(sys.modules[parent], name, loaded)  # so that the one that all others use is put back
        for each in [each for each in sys.modules if each.startswith(package)]:
            monkeypatch.delitem(sys.modules, each)
        monkeypatch.setitem(sys.modules, missing, None)

    return take


@dataclass(frozen=True)
class LinearRun:
    seen: dict  # kind -> Projections, or (kind, layer) -> Projections
    schedule: Schedule
    canaries: object
    client_norms: np.ndarray

    def scores(self, view, null="theory", layer=None):
        seen = self.seen[view.needs if layer is None else (view.needs, layer)]
        return view.scores(seen, self.schedule, self.canaries, null=null)


def simulate(
    family,
    pattern,
    *,
    rounds,
    noise,
    seed,
    dim=5000,
    pool=200,
    spare=1000,
    clients=0.0,
    effect=1.0,
    amplitude=1.0,
    reuse=False,
    correlation=0.0,
    layers=None,
    silent=None,
    kinds=("mean",),
):
    """release_t = effect amplitude_t (sum of canaries) + X_t + noise Z_t, with |X_t| about `clients`; `silent` has no noise."""
    sphere = family == "sphere"
    canaries = FAMILIES[family](dim, pool, secret_seed=seed)
    unused = FAMILIES["transform"](dim, spare, secret_seed=seed + 10**6) if sphere and spare else None
    spare = 0 if sphere else spare
    schedule = Schedule.draw(pattern, pool=pool, rounds=rounds, secret_seed=seed)
    sizes = np.broadcast_to(np.asarray(amplitude, dtype=float), (rounds,))
    rng = stream(seed, "linear rounds")
    places = {None: None, **(layers or {})}
    reaches = {name: place and norms_in_group(canaries, place, spare=spare, unused=unused) for name, place in places.items()}
    rows, norms, drift, last = {}, [], np.zeros(dim), rng.standard_normal(dim)
    for number in range(rounds):
        who = schedule.taking_part(number)
        taking_part = effect * sizes[number] * canaries.combine(who, np.ones(who.size)).astype(float)
        others = clients * rng.standard_normal(dim) / np.sqrt(dim)
        if not reuse:
            last = correlation * last + np.sqrt(1 - correlation**2) * rng.standard_normal(dim)
        drawn = noise * last
        if silent is not None:
            drawn[silent] = 0.0
        drift += taking_part + others + drawn
        norms.append(np.linalg.norm(others))
        vectors = {"mean": taking_part + others + drawn, "residual": taking_part + drawn, "total_change": drift}
        for kind in kinds:
            if kind == "total_change" and number < rounds - 1:
                continue
            for name, place in places.items():
                vector = vectors[kind].astype(np.float32)
                seen = project_row(canaries, vector, spare=spare, unused=unused, group=place, norm_in_group=reaches[name])
                rows.setdefault((kind, name), []).append(seen)
    tables = {}
    for (kind, name), sights in rows.items():
        place = places[name]
        tables[kind if name is None else (kind, name)] = stack(
            sights,
            kind=kind,
            rounds=np.arange(rounds) if len(sights) == rounds else [rounds - 1],
            amplitude=sizes if len(sights) == rounds else 1.0,
            pool=pool,
            dim=dim if place is None else place.stop - place.start,
            group=name,
            norm_in_group=reaches[name],
        )
    return LinearRun(tables, schedule, canaries, np.array(norms))


@pytest.fixture(scope="session")
def linear_run():
    return simulate


HOSTILE = "<script>alert(1)</script>\"'&$x_1$ </style><img src=x onerror=alert(2)>"


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """`finished("canaries.pool=0")`: the directory of a real small run with changes, each made once."""
    found = {}

    def make(*changes):
        if changes not in found:
            from coalmine.report import page
            from coalmine.training import run
            from coalmine.training.config import read_config

            small = (
                "participation.rounds=6",
                "canaries.pool=40",
                "audit.unused_rows=100",
                "run.workers=1",
                "run.evaluate_every=2",
            )
            config = read_config("tiny", [*small, *changes])
            found[changes] = tmp_path_factory.mktemp("finished") / f"run-{len(found)}"
            with pytest.MonkeyPatch.context() as patch:  # shared with tests of pages, whoever asks first
                patch.setattr(page, "element", getattr(page.element, "drawn", page.element))
                run(config, found[changes], secret_seed=5, quiet=True)
        return found[changes]

    def copy(out, *changes):
        """A copy as an earlier version left it, without a manifest: to be edited, and still read."""
        shutil.copytree(make(*changes), out)
        (out / "manifest.json").unlink()
        text = (out / "config.toml").read_text()
        (out / "config.toml").write_text(re.sub(r'manifest = ".*"\n', "", text))
        return out

    make.copy = copy
    return make


@pytest.fixture(scope="session")
def hostile(finished, tmp_path_factory):
    """A run directory whose every free string tries to become markup."""
    out = tmp_path_factory.mktemp("hostile") / "run"
    finished.copy(out)
    result = json.loads((out / "result.json").read_text())
    result["caveats"].append({"code": HOSTILE, "data": {}, "name": HOSTILE, "text": HOSTILE})
    result["versions"][HOSTILE] = HOSTILE
    result["bounds"][0] |= {"method": HOSTILE, "multiplicity": HOSTILE, "assumptions": [HOSTILE]}
    result["claim"] |= {"accountant": HOSTILE, "assumptions": [HOSTILE]}
    result["claim"]["game"] = dict.fromkeys(result["claim"]["game"], HOSTILE)
    result["verdict"] |= {"reason": HOSTILE, "code": HOSTILE}
    result["views"][0]["view"] = HOSTILE
    result["training"] |= {"model": HOSTILE, "participation": HOSTILE, "model_sha256": HOSTILE}
    result["training"]["in_words"] = dict.fromkeys(("training", "learned", "canaries"), HOSTILE)
    result["setting"] |= {"statistic": HOSTILE, "null": HOSTILE, "assignment": HOSTILE}
    (out / "result.json").write_text(json.dumps(result))
    text = (out / "config.toml").read_text().replace('"digits"', json.dumps(HOSTILE))
    (out / "config.toml").write_text(text.replace('"transform"', json.dumps(HOSTILE)))
    return out


@pytest.fixture(scope="session")
def hostile_text():
    return HOSTILE


def wandb_records(path):
    """The records of an offline run: a log of LevelDB's layout, blocks of 32 kB after a head of seven bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, place, whole = path.read_bytes(), 7, b""
    while place + 7 <= len(data):
        if 32768 - place % 32768 < 7:
            place += 32768 - place % 32768
            continue
        _, size, kind = struct.unpack_from("<IHB", data, place)
        if place + 7 + size > len(data):  # cut off
            return
        whole += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield Record.FromString(whole)
            whole = b""


def history(records):
    """The rows among records, as mappings."""
    rows = [{(item.key or "/".join(item.nested_key)): item.value_json for item in each.history.item} for each in records]
    return [{name: json.loads(value) for name, value in row.items()} for row in rows if row]


class WandbRun:
    """What Weights & Biases wrote offline about one run, in one part for every process."""

    def __init__(self, folder):
        self.parts = sorted(folder.glob("offline-run-*/run-*.wandb"))
        self.records = [record for path in self.parts for record in wandb_records(path)]
        self.rows_by_part = [history(wandb_records(path)) for path in self.parts]
        self.rows = [row for rows in self.rows_by_part for row in rows]
        self.steps = [row["_step"] for row in self.rows]
        self.summary = {
            "/".join(item.nested_key) or item.key: json.loads(item.value_json)
            for each in self.records
            for item in each.summary.update
        }


@pytest.fixture(scope="session")
def read_wandb():
    """`read_wandb(folder)`: what is in the files that the tracker left there."""
    pytest.importorskip("wandb")
    return WandbRun

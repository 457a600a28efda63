"""The secret seed is in `secret.json`, for its owner alone, and nowhere else; its fingerprint is in the result."""

import hashlib
import json
import stat

import pytest

MORE = ("run.reference=true", "audit.layers=true")


def traces(seed):
    """The seed in every form in which it might be found."""
    size = (seed.bit_length() + 7) // 8
    digits = f"{seed:x}"
    texts = (str(seed), digits, digits.upper(), ",".join(str(byte) for byte in seed.to_bytes(size, "big")))
    return [text.encode() for text in texts] + [seed.to_bytes(size, order) for order in ("little", "big")]


def seed_of(out):
    return int(json.loads((out / "secret.json").read_text())["secret_seed"], 16)


def found(out, seed):
    """Files that hold the seed, also if they are archives."""
    import zipfile

    holding = []
    for path in sorted(out.rglob("*")):
        if not path.is_file():
            continue
        parts = [path.read_bytes()]
        if path.suffix == ".npz":
            with zipfile.ZipFile(path) as archive:
                parts += [archive.read(name) for name in archive.namelist()]
        if any(trace in part for trace in traces(seed) for part in parts):
            holding.append(path.relative_to(out).as_posix())
    return holding


@pytest.fixture(scope="module")
def fresh(coalmine, small, tmp_path_factory):
    """A run that was given no secret: killed, resumed with all progress shown, and read again as JSON."""
    out = tmp_path_factory.mktemp("fresh") / "run"
    sets = [word for change in (*small, *MORE) for word in ("--set", change)]
    fault = {"at": "write", "file": "checkpoint/state.safetensors.part", "do": "half", "nth": 4}
    first = coalmine("run", "tiny", *sets, "--workers", 1, "--out", out, fault=fault)
    assert first.killed
    during = found(out, seed_of(out))
    rest = [coalmine("resume", out, "--workers", 1, drawn=True), coalmine("resume", out, "--json")]
    assert all(ended.code in (0, 1) for ended in rest)
    return out, during, "".join(ended.out + ended.err for ended in (first, *rest))


def test_it_is_in_no_other_file(fresh):
    out, during, _ = fresh
    assert during == found(out, seed_of(out)) == ["secret.json"]
    assert len(list(out.rglob("*"))) > 15


def test_it_is_not_printed(fresh):
    out, _, printed = fresh
    assert "training: 6 of 6" in printed and '"secret_sha256"' in printed
    assert not any(trace in printed.encode() for trace in traces(seed_of(out)))


def test_its_owner_alone_may_read_it(fresh):
    assert stat.S_IMODE((fresh[0] / "secret.json").stat().st_mode) == 0o600


def test_the_result_shows_its_fingerprint(fresh):
    out, _, _ = fresh
    result = json.loads((out / "result.json").read_text())
    shown = result["training"]["secret_sha256"]
    assert shown == hashlib.sha256(f"coalmine secret seed {seed_of(out):x}".encode()).hexdigest()
    assert not any(caveat["code"] == "secret-given" for caveat in result["caveats"])


def test_one_that_was_given_is_a_caveat(whole, secret):
    out, _ = whole()
    result = json.loads((out / "result.json").read_text())
    assert seed_of(out) == secret
    assert any(caveat["code"] == "secret-given" and "not private" in caveat["text"] for caveat in result["caveats"])
    assert result["training"]["secret_sha256"] is None  # a small number could be found by trying
    assert found(out, secret) == ["secret.json"]


def test_a_fresh_one_each_time(coalmine, fresh, small, tmp_path):
    """128 bits from the operating system; with the public seed equal, the runs differ in all that is secret."""
    out = tmp_path / "run"
    assert coalmine.run(out, sets=(*small, *MORE), secret=None).code in (0, 1)
    seeds = seed_of(out), seed_of(fresh[0])
    assert seeds[0] != seeds[1]
    assert all(seed.bit_length() > 80 for seed in seeds)  # false alarm: 2**-47
    first, second = (json.loads((path / "training.json").read_text()) for path in (out, fresh[0]))
    assert first["config_sha256"] == second["config_sha256"]
    assert first["reference_accuracy"] == second["reference_accuracy"]  # neither noise nor canaries, and public cohorts
    for name in ("model_sha256", "secret_sha256"):
        assert first[name] != second[name]
    assert (out / "scores.npz").read_bytes() != (fresh[0] / "scores.npz").read_bytes()


@pytest.mark.parametrize("seed", ["-5", "0x10", "1.5", "none"])
def test_a_bad_one_is_refused(coalmine, small, tmp_path, seed):
    ended = coalmine("run", "tiny", "--secret-seed", seed, "--out", tmp_path / "run", "--quiet")
    assert (ended.code, ended.out) == (2, "") and "Traceback" not in ended.err
    assert "secret" in ended.err
    assert not (tmp_path / "run").exists()

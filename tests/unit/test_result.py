"""The result of an audit: its JSON schema, the way to disk and back, broken files, and what is printed."""

import copy
import json
import re
import socket
from functools import cache
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from scipy.special import ndtri

from coalmine import AuditResult, Claim, CosineNull, GaussianNull, MaxNull, Once, Scores, audit_scores, claim
from coalmine.contracts import Caveat, Game, LowerBound, PointEstimate, Power, Verdict, from_plain, percent, plain
from coalmine.errors import InputFileError
from coalmine.estimators import BOUNDS
from coalmine.result import SCHEMA, schema

DELTA = 1e-5


def normals(count, mean=0.0):
    """Deterministic 'normal' scores: the quantiles themselves."""
    return ndtri((np.arange(count) + 0.5) / count) + mean


def with_runs():
    """Coin-flipped canaries in several runs, for which every method is defined."""
    inserted = np.tile([True, False], 200)
    values = np.where(inserted, np.repeat(normals(200, 1.5), 2), np.repeat(normals(200), 2))
    return Scores(values, inserted, labels={"run": np.arange(400) // 20}, assignment="coins")


KINDS = {
    "exact null": lambda: audit_scores(
        Scores.of(normals(100, 1.0) / 100, dim=10_000), delta=DELTA, claim=claim(Once(), noise_multiplier=1.0, delta=DELTA)
    ),
    "held out": lambda: audit_scores(Scores.of(normals(200, 1.0), normals(300)), delta=DELTA, claim=Claim(4.0, DELTA)),
    "no claim": lambda: audit_scores(Scores.of(normals(50, 1.0), null=GaussianNull()), delta=DELTA),
    "violated": lambda: audit_scores(Scores.of(normals(100, 5.0), null=GaussianNull()), delta=DELTA, claim=Claim(1.0, DELTA)),
    "inconclusive": lambda: audit_scores(Scores.of(normals(20), normals(20)), delta=DELTA, claim=Claim(30.0, DELTA)),
    "infinite claim": lambda: audit_scores(
        Scores.of(normals(20), null=GaussianNull()), delta=DELTA, claim=claim(Once(), noise_multiplier=0.0, delta=DELTA)
    ),
    "delta zero": lambda: audit_scores(Scores.of(normals(50, 1.0), null=GaussianNull()), delta=0, claim=Claim(3.0, 0.0)),
    "maximum over rounds": lambda: audit_scores(
        Scores.of(normals(50, 4.0) / 100, null=MaxNull(CosineNull(10_000), 30)), delta=DELTA, claim=Claim(5.0, DELTA)
    ),
    "single canary": lambda: audit_scores(Scores.of([0.3], dim=400), delta=DELTA, claim=Claim(1.0, DELTA)),
    "one of each": lambda: audit_scores(Scores.of([1.0], [0.0]), delta=DELTA),
    "infinite bound": lambda: audit_scores(Scores.of(np.ones(30), dim=50), delta=DELTA, claim=Claim(8.0, DELTA)),
    "all methods": lambda: audit_scores(with_runs(), delta=DELTA, claim=Claim(5.0, DELTA), also=tuple(BOUNDS)),
    "lifted first": lambda: audit_scores(with_runs(), delta=DELTA, method="lifted"),
    "approximate first": lambda: audit_scores(with_runs(), delta=DELTA, method="pointwise"),
    "one run first": lambda: audit_scores(with_runs(), delta=DELTA, claim=Claim(2.0, DELTA), method="one-run"),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


@cache
def audit(kind):
    return KINDS[kind]()


@cache
def text_of(kind):
    return audit(kind).to_json()


def document():
    """A document with a claim, a verdict, estimates and more than one bound, to be broken."""
    return json.loads(text_of("all methods"))


@cache
def validator():
    return jsonschema.Draft202012Validator(schema())


def test_the_schema_is_a_schema_and_describes_every_field():
    jsonschema.Draft202012Validator.check_schema(schema())
    found = schema()
    parts = [found, *(found["$defs"][name] for name in ("claim", "bound", "estimate", "verdict"))]
    for part in parts:
        assert "additionalProperties" not in part  # entries of a later version are ignored
        assert all("description" in entry for entry in part["properties"].values())
    assert found["properties"]["schema"]["const"] == SCHEMA
    assert found["properties"]["method"]["enum"] == list(BOUNDS)


@every_kind
def test_every_kind_of_result_fits_the_schema(kind):
    assert [error.message for error in validator().iter_errors(json.loads(text_of(kind)))] == []


@every_kind
def test_there_and_back_gives_the_same_text(kind):
    assert AuditResult.from_json(text_of(kind)).to_json() == text_of(kind)


@every_kind
def test_there_and_back_gives_the_same_print(kind):
    assert str(AuditResult.from_json(text_of(kind))) == str(audit(kind))


@every_kind
def test_infinity_is_a_word_and_nan_never_occurs(kind):
    assert not re.search(r"\bNaN\b|Infinity", text_of(kind))
    json.loads(text_of(kind), parse_constant=lambda word: pytest.fail(word))


def test_infinities_come_back_as_numbers():
    loaded = AuditResult.from_json(text_of("infinite claim"))
    assert json.loads(text_of("infinite claim"))["claim"]["epsilon"] == "inf"
    assert loaded.claim.epsilon == float("inf") == loaded.bound.ceiling
    assert AuditResult.from_json(text_of("infinite bound")).bound.epsilon == float("inf")


@every_kind
def test_the_print_is_short_and_says_all(kind):
    result, lines = audit(kind), str(audit(kind)).splitlines()
    assert 7 <= len(lines) - len(result.caveats) <= 10
    assert lines[0].startswith(result.verdict.word if result.verdict else "NO CLAIM")
    assert str(result.claim or "none given") in lines[1]
    assert any(line.strip().startswith("lower bound") and str(result.bound) in line for line in lines)
    for caveat in result.caveats:
        assert any(line.strip().startswith("caveat") and line.endswith(caveat) for line in lines)
    assert result.caveats
    assert "epsilon inf on" not in str(result)


def test_the_print_says_when_nothing_could_be_found():
    assert "power         no leak of any size" in str(audit("one of each"))
    assert "power         not known at delta = 0" in str(audit("delta zero"))
    assert "known null, its tail at most 3.4 nats too large" in str(audit("maximum over rounds"))


def test_results_without_an_estimate_say_why():
    for kind in ("delta zero", "maximum over rounds", "one of each"):
        assert audit(kind).estimate is None
        assert audit(kind).caveats[0].startswith("no estimate")
    assert audit("exact null").estimate == audit("exact null").estimates[0]


def test_only_what_both_sides_state_can_be_compared_and_the_rest_is_a_caveat():
    unstated = "claim: unit, relation, participation, knowledge not stated on both sides"
    assert any(caveat.startswith(unstated) for caveat in audit("exact null").caveats)
    assert not any("not stated" in caveat for caveat in audit("no claim").caveats)
    game = Game("client", "add-or-remove-one", "once", "rounds known")
    scores = Scores(normals(20), np.ones(20, bool), null=GaussianNull(), game=game)
    stated = audit_scores(scores, delta=DELTA, claim=claim(Once(), noise_multiplier=1.0, delta=DELTA))
    assert not any("not stated" in caveat for caveat in stated.caveats)


def test_no_time_host_or_path_in_the_file(tmp_path):
    texts = []
    for number, folder in enumerate(("first", "second")):
        path = tmp_path / folder / f"some-name-{number}.csv"
        path.parent.mkdir()
        path.write_text("inserted,held_out\n" + "".join(f"{a!r},{b!r}\n" for a, b in zip([1.0, 2.0], [0.0, 1.0], strict=True)))
        texts.append(audit_scores(Scores.from_csv(path), delta=DELTA).to_json())
    assert texts[0] == texts[1]
    for secret in (str(tmp_path), "some-name", str(Path.home()), str(Path.cwd())):
        assert len(secret) < 4 or secret not in texts[0]
    assert len(socket.gethostname()) < 4 or socket.gethostname() not in texts[0]
    assert not re.search(r"\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d", texts[0])


def test_the_order_of_the_scores_does_not_matter():
    values, reverse = normals(60, 1.0), normals(60, 1.0)[::-1]
    first, second = (audit_scores(Scores.of(v, null=GaussianNull()), delta=DELTA).to_dict() for v in (values, reverse))
    assert first["setting"] == second["setting"]
    assert first["bounds"] == second["bounds"]


@pytest.mark.parametrize("kind", ["exact null", "held out", "maximum over rounds", "one run first"])
@pytest.mark.parametrize("other", [0.5, 2.5])
def test_a_loaded_result_can_still_be_asked_about_other_claims(kind, other):
    loaded = AuditResult.from_json(text_of(kind))
    assert loaded.bound.detectable_above(other) == audit(kind).bound.detectable_above(other)
    assert loaded.bound.detectable == audit(kind).bound.detectable


def test_a_loaded_result_says_so_if_it_cannot_know():
    """The design does not hold the sizes of several runs; what could be found above another claim is not known."""
    loaded = AuditResult.from_json(text_of("lifted first"))
    assert loaded.bound.detectable_above(1.0) == float("inf")


def test_a_loaded_result_does_not_know_a_limit_above_its_ceiling():
    loaded = AuditResult.from_json(text_of("held out"))
    assert loaded.bound.detectable_above(loaded.bound.ceiling) == float("inf")


def test_save_and_load_from_a_file_and_from_a_directory(tmp_path):
    audit("held out").save(tmp_path / "result.json")
    assert AuditResult.load(tmp_path / "result.json").to_json() == text_of("held out")
    assert AuditResult.load(tmp_path).to_json() == text_of("held out")
    assert AuditResult.load(str(tmp_path)).to_json() == text_of("held out")


def test_a_missing_or_unreadable_file_is_an_input_file_error(tmp_path):
    with pytest.raises(InputFileError, match="No such file"):
        AuditResult.load(tmp_path / "nothing.json")
    with pytest.raises(InputFileError, match=r"result\.json"):
        AuditResult.load(tmp_path)
    (tmp_path / "garbage.json").write_bytes(bytes(range(256)))
    with pytest.raises(InputFileError, match="cannot read"):
        AuditResult.load(tmp_path / "garbage.json")


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_truncated_file_is_an_input_file_error(share):
    text = text_of("held out")
    with pytest.raises(InputFileError, match="not a JSON document"):
        AuditResult.from_json(text[: int(share * (len(text) - 2))])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "3",
        "[]",
        '"text"',
        "{}",
        '{"schema": "coalmine-result/2"}',
        '{"schema": ["coalmine-result/1"]}',
        "[" * 100_000,
    ],
    ids=lambda text: text[:20],
)
def test_other_documents_are_input_file_errors(text):
    with pytest.raises(InputFileError, match="not a"):
        AuditResult.from_json(text)


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_json_does_not_know_are_refused(word):
    epsilon = json.dumps(document()["bounds"][0]["epsilon"])
    with pytest.raises(InputFileError, match=word):
        AuditResult.from_json(text_of("all methods").replace(f'"epsilon": {epsilon}', f'"epsilon": {word}', 1))


def leaves(value, path=()):
    """The paths of all entries whose type the layout fixes; of the numbers of a long list, the first and the last."""
    items = list(value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ())
    numbers = isinstance(value, list) and all(isinstance(item, int | float) for item in value)
    for key, item in [items[0], items[-1]] if numbers and len(items) > 2 else items:
        if (*path, key) not in (("setting",), ("diagnostics",)):
            yield (*path, key)
            yield from leaves(item, (*path, key))


def broken(path, change):
    data = copy.deepcopy(document())
    holder = data
    for key in path[:-1]:
        holder = holder[key]
    change(holder, path[-1])
    return data


def refused(data):
    """Both the schema and the reader must refuse."""
    with pytest.raises(InputFileError):
        AuditResult.from_json(json.dumps(data))
    return not validator().is_valid(data)


def in_words(path):
    """Copies of sentences, which nothing reads back, and the data that a sentence is made from."""
    about = {"caveats", "flags"} & set(path)
    return path[-1] == "reason" or path[0] == "attacker" or (bool(about) and (path[-1] in ("name", "text") or "data" in path))


def test_an_entry_of_another_type_is_refused_anywhere():
    for path in leaves(document()):
        if in_words(path):
            continue
        for wrong in (True, [[]], {"unexpected": 1}):
            free = ("details", "training", "options", "law", "parameters", "conformance", "numbers")
            if (path[-1] == "valid" and wrong is True) or (path[-1] in free and isinstance(wrong, dict)):
                continue  # those fit
            if path[-1] in ("rankings", "computed") and wrong == [[]]:
                continue
            assert refused(broken(path, lambda holder, key, wrong=wrong: holder.__setitem__(key, wrong))), (path, wrong)


def test_a_missing_entry_is_refused_anywhere():
    free = {"details", "versions", "numbers"}  # mappings of any names
    later = {"histogram", "conformance", "rankings", "computed", "neighbours"}  # which may be left out
    later |= {"side", "found_false", "otherwise"}  # of a verdict
    for path in leaves(document()):
        if isinstance(path[-1], str) and not free & set(path[:-1]) and path[-1] not in later and not in_words(path):
            assert refused(broken(path, lambda holder, key: holder.pop(key))), path


def test_an_entry_of_a_later_version_is_ignored_anywhere():
    for path in [(), ("claim",), ("verdict",), ("bounds", 0), ("estimates", 0), ("design",), ("game",), ("claim", "game")]:
        later = broken((*path, "unexpected"), lambda holder, key: holder.__setitem__(key, 1))
        assert validator().is_valid(later), path
        assert AuditResult.from_json(json.dumps(later)).to_dict() == document(), path


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        (("method",), "magic"),
        (("bounds",), []),
        (("bounds", 0, "delta"), 5),
        (("bounds", 0, "delta"), -1),
        (("bounds", 0, "confidence"), 95),
        (("bounds", 1, "confidence"), 0),
        (("claim", "epsilon"), -1),
        (("claim", "delta"), 1),
        (("design", "inserted"), 0),
        (("verdict", "word"), "GUILTY"),
    ],
)
def test_an_entry_out_of_range_is_refused(path, wrong):
    assert refused(broken(path, lambda holder, key: holder.__setitem__(key, wrong)))


@pytest.mark.parametrize("name", ["statistic", "view"])
def test_the_setting_must_say_what_the_scores_are(name):
    assert refused(broken(("setting", name), lambda holder, key: holder.pop(key)))


def test_plain_takes_numbers_of_numpy_and_refuses_nan():
    task = {"a": np.int64(3), "b": np.float32(0.5), "c": np.bool_(True), "d": (-np.inf, None), "e": 2}
    assert plain(task) == {"a": 3, "b": 0.5, "c": True, "d": ["-inf", None], "e": 2}
    assert json.dumps(plain(task))
    with pytest.raises(ValueError, match="NaN"):
        plain({"a": float("nan")})


def test_from_plain_is_the_inverse_of_plain():
    bound = LowerBound(1.0, DELTA, 0.9, "m", True, ("a",), float("inf"), "paid", {"x": 2, "y": float("-inf")})
    point = PointEstimate(1.0, 0.0, float("inf"), DELTA, 0.9, "m", 0.1, 0.5, (Caveat("reversed"),))
    verdict = Verdict("VIOLATED", "claim-infinite", Power(1.0, 2.0, None), {"x": 1.0})
    for value in (bound, point, verdict, Game(unit="client"), Claim(0.0, 0.0)):
        assert from_plain(type(value), plain(value)) == value


def test_confidence_is_never_rounded_up_to_certainty():
    assert [percent(share) for share in (0.95, 0.975, 0.999, 0.999999)] == ["95%", "97.5%", "99.9%", "99.9999%"]
    assert "97.5% confidence" in str(LowerBound(1.0, DELTA, 0.975, "m", True, (), 2.0))


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(float("nan"), DELTA), (-1.0, DELTA), (1.0, float("nan")), (1.0, 1.0), (1.0, -0.1)]
)
def test_a_claim_of_nothing_sensible_is_refused(epsilon, delta):
    with pytest.raises(ValueError, match=r"epsilon|delta"):
        Claim(epsilon, delta)


def test_a_result_is_written_aside_and_renamed(tmp_path, monkeypatch):
    """A kill while writing leaves the old file whole."""
    result = audit_scores(Scores.of(np.linspace(0, 3, 50), null=GaussianNull()), delta=1e-5)
    path = tmp_path / "result.json"
    result.save(path)
    assert [file.name for file in tmp_path.iterdir()] == ["result.json"]
    before = path.read_text()

    def killed(self, target):
        raise KeyboardInterrupt

    monkeypatch.setattr(type(path), "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        result.save(path)
    assert path.read_text() == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data["verdict"].update(word="VIOLATED"), "VIOLATED contradicts a bound of"),
        (lambda data: data["bounds"][0].update(epsilon=1e3), "contradicts a bound of 1000 beside"),
        (lambda data: data.update(claim=None), "no claim that it could be about"),
    ],
    ids=["word", "bound", "claim"],
)
def test_a_verdict_that_its_own_numbers_contradict_is_refused(change, message):
    data = document()
    assert data["verdict"]["word"] != "VIOLATED"
    change(data)
    with pytest.raises(InputFileError, match=message):
        AuditResult.from_json(json.dumps(data))


def test_a_file_without_counts_of_its_scores_is_read():
    data = document()
    del data["histogram"]
    validator().validate(data)
    assert AuditResult.from_json(json.dumps(data)).histogram == {}

"""A finished run's files, edited, halved, flipped, removed and added: every reader says so; and what `verify` can know."""

import hashlib
import json
import shutil
import sys

import pytest

from coalmine import cli, manifest
from coalmine.errors import RunDirectoryError
from coalmine.report.card import card
from coalmine.report.compare import compare
from coalmine.report.evidence import Evidence
from coalmine.report.page import report
from coalmine.result import AuditResult
from coalmine.training import resume, run
from coalmine.training.config import read_config

SETS = ["participation.rounds=6", "canaries.pool=40", "audit.unused_rows=100", "run.workers=1", "run.reference=true"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("manifest") / "run"
    run(read_config("tiny", SETS), out, secret_seed=1, quiet=True)
    return out


@pytest.fixture
def copy(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "copy")


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGE = {
    "flipped": flip,
    "halved": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "removed": lambda path: path.unlink(),
    "emptied": lambda path: path.write_bytes(b""),
}
READERS = {
    "load": AuditResult.load,
    "report": Evidence.of,
    "compare": lambda path: compare([path, path]),
    "resume": lambda path: resume(path, quiet=True),
}
FILES = ("config.toml", "events.jsonl", "scores.npz", "result.json", "model.safetensors", "views/final-model.npz")
MORE = ("checkpoint/state.safetensors", "reference/events.jsonl", "reference/checkpoint/state.safetensors")


def test_it_lists_all_files_but_the_secret_and_the_page(finished):
    listed = set(json.loads((finished / "manifest.json").read_text())["files"])
    there = {path.relative_to(finished).as_posix() for path in finished.rglob("*") if path.is_file()}
    assert there - listed == {".lock", "secret.json", "report.html", "manifest.json"}
    assert listed <= there


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", (*FILES, *MORE))
def test_every_reader_names_a_damaged_file(copy, name, damage):
    DAMAGE[damage](copy / name)
    assert manifest.verify(copy).status == "damaged"
    for reader in READERS.values():
        with pytest.raises(RunDirectoryError) as error:
            reader(copy)
        gone = name == "config.toml" and damage == "removed"  # then it is no run directory any more
        assert gone or name in str(error.value), error.value


def test_several_files_are_one_message(copy):
    result = json.loads((copy / "result.json").read_text())
    result["bounds"][0]["epsilon"] = 0.001
    (copy / "result.json").write_text(json.dumps(result))
    (copy / "events.jsonl").unlink()
    shutil.copy(copy / "scores.npz", copy / "views" / "another.npz")
    said = "not what the run wrote: result.json; missing: events.jsonl; not written by the run: views/another.npz"
    with pytest.raises(RunDirectoryError, match=said):
        AuditResult.load(copy / "result.json")


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"schema": "coalmine-manifest/1", "files": {"../x": "' + "0" * 64 + '"}}'])
def test_a_manifest_that_is_none(copy, text):
    (copy / "manifest.json").write_text(text)
    with pytest.raises(RunDirectoryError, match=r"not what the run wrote: manifest\.json"):
        AuditResult.load(copy)


def test_a_manifest_that_was_removed_is_missed(copy):
    (copy / "manifest.json").unlink()
    with pytest.raises(RunDirectoryError, match=r"missing: manifest\.json"):
        AuditResult.load(copy)


def test_results_are_written_again_from_the_checkpoint(copy, finished):
    (copy / "result.json").unlink()
    (copy / "training.json").unlink()
    resume(copy, quiet=True)
    assert manifest.verify(copy, manifest.digest(finished)).status == "intact"


def test_an_edit_with_a_new_manifest_is_seen_by_the_digest_only(copy, finished):
    before = manifest.digest(finished)
    assert hashlib.sha256((finished / "manifest.json").read_bytes()).hexdigest() == before
    (copy / "training.json").write_text((copy / "training.json").read_text().replace("6", "7"))
    manifest.write(copy, {})
    without, with_digest = manifest.verify(copy), manifest.verify(copy, before)
    assert (without.status, with_digest.status) == ("intact", "damaged")
    assert without.sentence.startswith("NOT DAMAGED BY ACCIDENT") and "--digest" in without.sentence
    assert with_digest.sentence.startswith("ANOTHER RUN, OR EDITED")
    assert manifest.verify(finished, f"SHA256:{before.upper()}").sentence.startswith("VERIFIED")
    with pytest.raises(ValueError, match="64 digits"):
        manifest.verify(finished, "abc")


def test_the_page_and_the_result_of_a_run_print_the_digest(finished):
    found = manifest.digest(finished)
    assert found in (finished / "report.html").read_text() and resume(finished, quiet=True).digest == found


def test_a_lone_result_and_an_older_run_are_unverified(copy, tmp_path):
    lone = tmp_path / "lone.json"
    shutil.copy(copy / "result.json", lone)
    text = (copy / "config.toml").read_text()
    (copy / "config.toml").write_text(text.replace(f'manifest = "{manifest.SCHEMA}"\n', ""))
    (copy / "manifest.json").unlink()
    for path in (lone, copy):
        assert manifest.verify(path).status == "unverified" and AuditResult.load(path)
    with pytest.raises(RunDirectoryError, match="there is no"):
        manifest.verify(tmp_path / "nothing")
    with pytest.raises(RunDirectoryError, match="not the directory of a finished run"):
        manifest.verify(tmp_path)


def test_a_lone_result_is_called_unverified_by_the_page_and_by_check(copy, finished, tmp_path, monkeypatch, capsys):
    lone = tmp_path / "lone.json"
    shutil.copy(copy / "result.json", lone)
    assert "unverified: there is no manifest" in report(Evidence.of(lone)) and "unverified" not in report(Evidence.of(finished))
    for path, said in ((lone, True), (finished, False), (finished / "result.json", False)):
        monkeypatch.setattr(sys, "argv", ["coalmine", "check", str(path), "--max-epsilon", "1000"])
        with pytest.raises(SystemExit):
            cli.main()
        assert ("notice: unverified" in capsys.readouterr().err) == said
        monkeypatch.setattr(sys, "argv", ["coalmine", "check", str(path), "--max-epsilon", "1000", "--json", "--quiet"])
        with pytest.raises(SystemExit):
            cli.main()
        assert json.loads(capsys.readouterr().out)["files"] == ("unverified" if said else "intact")


def test_a_fragment_for_a_model_card_says_what_its_files_can_be_compared_with(copy, finished, tmp_path):
    lone = tmp_path / "lone.json"
    shutil.copy(copy / "result.json", lone)
    assert "**Unverified**" in card(lone) and manifest.digest(finished) not in card(lone)
    assert "nverified" not in card(finished) and manifest.digest(finished) in card(finished)


def test_a_run_that_goes_on_is_not_finished(copy):
    from coalmine.runs import RunDirectory

    directory = RunDirectory.open(copy)
    rounds, state = directory.load()
    directory.save(rounds + 1, state, {}, {})
    assert not directory.finished and not (copy / "manifest.json").exists()

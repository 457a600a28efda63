"""What an audit of a Flower application leaves: the same directory as a run of our own, and no secret outside its file."""

import json
import shutil
import stat

import jsonschema
import pytest
from typer.testing import CliRunner

from coalmine import AuditResult
from coalmine.adapters.flower import Audit, Statement
from coalmine.cli import app as command_line
from coalmine.errors import RunDirectoryError
from coalmine.result import schema
from coalmine.training import resume

SECRET = 0x5EC2E7_5EED_5EC2E7


@pytest.fixture
def finished(digits, tmp_path):
    heard = []
    audit = Audit(
        delta=1e-5,
        rounds=6,
        pool=120,
        statement=Statement(unused_rows=1000),
        out=tmp_path / "audit",
        hooks=[heard.append],
        secret_seed=SECRET,
    )
    digits.train(digits.fixed_clipping(audit, 0.5), audit)
    return audit, tmp_path / "audit", heard


def test_the_directory_of_a_run(finished):
    audit, path, heard = finished
    assert {
        "config.toml",
        "secret.json",
        "events.jsonl",
        "scores.npz",
        "views",
        "result.json",
        "report.html",
        "training.json",
    } <= {each.name for each in path.iterdir()}
    jsonschema.validate(json.loads((path / "result.json").read_text()), schema())
    assert AuditResult.load(path).to_json() == audit.result.to_json()
    assert [event["event"] for event in heard] == ["start", *["round"] * 6, "end"]
    assert "epsilon_claimed" in heard[1]


def test_the_secret_stays_in_its_file(finished):
    audit, path, heard = finished
    assert stat.S_IMODE((path / "secret.json").stat().st_mode) == 0o600
    spellings = [hex(SECRET)[2:], str(SECRET)]
    assert spellings[0] in (path / "secret.json").read_text()
    texts = [
        repr(audit),
        str(heard),
        *(each.read_text(errors="replace") for each in path.rglob("*") if each.name != "secret.json" and each.is_file()),
    ]
    assert not [text for text in texts for spelling in spellings if spelling in text]


def test_the_command_line_reads_it(finished, tmp_path):
    _, path, _ = finished
    run = CliRunner().invoke
    page = tmp_path / "page.html"
    assert run(command_line, ["report", str(path), "-o", str(page)]).exit_code == 0
    text = page.read_text()
    assert "DifferentialPrivacyServerSideFixedClipping around FedAvg" in text
    assert "coalmine run config.toml" not in text  # another engine trained it
    assert run(command_line, ["check", str(path), "--max-epsilon", "50"]).exit_code in (0, 3)
    shutil.copytree(path, tmp_path / "again")
    assert run(command_line, ["compare", str(path), str(tmp_path / "again")]).exit_code == 0
    assert run(command_line, ["resume", str(path)]).exit_code == 0  # finished: it is read


def test_an_interrupted_audit_cannot_be_resumed_here(digits, tmp_path):
    audit = Audit(delta=1e-5, rounds=6, pool=120, statement=Statement(unused_rows=1000), out=tmp_path / "audit", secret_seed=1)
    digits.rounds(digits.fixed_clipping(audit, 0.5), audit, 2)
    with pytest.raises(RunDirectoryError, match=r"was trained by flwr.*Run the application again"):
        resume(tmp_path / "audit")


def test_equal_audits_have_equal_files(digits, tmp_path):
    texts = []
    for number in range(2):
        digits.seed(3)
        audit = Audit(
            delta=1e-5, rounds=4, pool=40, statement=Statement(unused_rows=500), out=tmp_path / f"{number}", secret_seed=2
        )
        digits.train(digits.fixed_clipping(audit, 0.5), audit)
        texts.append((tmp_path / f"{number}" / "result.json").read_bytes())
    assert texts[0] == texts[1]


def test_a_fresh_secret_has_a_fingerprint(digits):
    audit = Audit(delta=1e-5, rounds=4, pool=40, statement=Statement(unused_rows=500))
    result = digits.train(digits.fixed_clipping(audit, 0.5), audit)
    assert len(result.training["secret_sha256"]) == 64
    assert not any("secret seed" in caveat for caveat in result.caveats)

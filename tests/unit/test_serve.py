"""`coalmine serve`: what is listed, and what is refused."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request

import pytest

pytest.importorskip("starlette", reason='Starlette is not installed: pip install "coalmine[serve]"')

from starlette.testclient import TestClient

from coalmine.serve import listing
from coalmine.serve.server import make_app


@pytest.fixture(scope="module")
def folder(finished, tmp_path_factory):
    """Runs of every state, links out of the folder, and a secret beside it."""
    outside = tmp_path_factory.mktemp("outside")
    root = outside / "runs"
    shutil.copytree(finished(), root / "first")
    secret = json.loads((root / "first" / "secret.json").read_text(encoding="utf-8"))
    (root / "first" / "secret.json").write_text(json.dumps({**secret, "secret_seed": hex(7**90)}), encoding="utf-8")
    shutil.copytree(finished("mechanism.noise_multiplier=1.0"), root / "deep" / "er" / "second & <b>last</b>")
    for name in ("running", "stopped"):
        shutil.copytree(root / "first", root / name)
        for file in ("result.json", "training.json", "report.html", "manifest.json"):
            (root / name / file).unlink()
    old = time.time() - 7200
    for file in ("events.jsonl", "config.toml"):
        os.utime(root / "stopped" / file, (old, old))
    os.utime(root / "running" / "events.jsonl", (time.time() + 3600,) * 2)  # it is running for as long as tests may take
    shutil.copytree(root / "first", root / "damaged")
    (root / "damaged" / "result.json").write_text("{", encoding="utf-8")
    shutil.copytree(root / "first", outside / "private")
    (root / "link").symlink_to(outside / "private", target_is_directory=True)
    shutil.copytree(root / "first", root / "linked-file")
    (root / "linked-file" / "result.json").unlink()
    (root / "linked-file" / "result.json").symlink_to(outside / "private" / "result.json")
    return root


@pytest.fixture(scope="module")
def client(folder):
    return TestClient(make_app(folder), base_url="http://127.0.0.1:8765", raise_server_exceptions=True)


def test_every_run_is_listed_with_its_state(client):
    found = {run["name"]: run for run in client.get("/runs.json").json()["runs"]}
    states = {name: run["state"] for name, run in found.items()}
    assert states == {
        "first": "finished", "deep/er/second & <b>last</b>": "finished", "running": "running", "stopped": "not finished",
        "damaged": "damaged", "linked-file": "damaged",
    }  # fmt: skip
    assert found["first"]["verdict"] in ("CONSISTENT", "INCONCLUSIVE", "VIOLATED", "DEVIATES")
    assert found["first"]["claim"] > 0 and "link out of the folder" in found["linked-file"]["about"]
    assert "2 hours" in found["stopped"]["about"] and found["running"]["rounds"] > 0
    page = client.get("/").text
    assert "&lt;b&gt;last&lt;/b&gt;" in page and "<b>last" not in page and "damaged" in page


def test_the_latest_round_without_clients_keeps_the_last_loss():
    rounds = ({"training_loss": 2.5, "clip_norm": 1.0}, {"training_loss": None, "clip_norm": 0.5, "clients": 0})
    assert dict(listing.latest(rounds)) == {"loss": "2.5", "clip norm": "0.5", "clients": "0"}
    assert listing.latest(()) == []


def test_reports_live_pages_and_comparisons(client):
    assert 'id="verdict"' in client.get("/run/first").text
    assert 'id="verdict"' in client.get("/run/deep/er/second%20%26%20%3Cb%3Elast%3C/b%3E").text
    live = client.get("/run/running").text
    for said in ("running", "loss", "clip norm", "epsilon claimed", "epsilon measured, about", "noise measured", "refresh"):
        assert said in live
    assert "refresh" not in client.get("/run/stopped").text
    both = client.get("/compare", params={"run": ["first", "deep/er/second & <b>last</b>"]})
    assert both.status_code == 200 and "privacy audits compared" in both.text
    assert client.get("/compare", params={"run": "first"}).status_code == 422
    assert client.get("/compare", params={"run": ["first", "../private"]}).status_code == 404
    broken = client.get("/run/damaged")
    assert broken.status_code == 422 and "cannot be shown" in broken.text


@pytest.mark.parametrize(
    "name",
    ["../private", "..%2fprivate", "%2e%2e/private", "first/../../private", "link", "linked-file", "/etc", "first/secret.json",
     "first/config.toml", "secret.json", "", ".", "first%00", "..%5cprivate", "first/views", "absent", "//first"],
)  # fmt: skip
def test_nothing_else_is_shown(client, folder, name):
    answer = client.get(f"/run/{name}")
    assert answer.status_code in (400, 404) and 'id="verdict"' not in answer.text
    seed = json.loads((folder / "first" / "secret.json").read_text(encoding="utf-8"))["secret_seed"]
    assert seed not in answer.text and str(folder) not in answer.text


def test_no_page_has_the_secret_or_the_path(client, folder):
    seed = json.loads((folder / "first" / "secret.json").read_text(encoding="utf-8"))["secret_seed"].removeprefix("0x")
    for page in ("/", "/runs.json", "/run/first", "/run/running", "/run/damaged", "/compare?run=first&run=linked-file"):
        text = client.get(page).text
        assert seed not in text and str(folder) not in text, page


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8765", "", "[::1]:8765"])
def test_another_name_of_this_machine_is_refused(client, host):
    assert client.get("/", headers={"Host": host}).status_code == 400


def test_it_only_reads_and_loads_nothing(client, folder):
    before = sorted(path.relative_to(folder) for path in folder.rglob("*"))
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert client.request(method, "/run/first").status_code == 405
    answer = client.get("/run/first")
    assert "default-src 'none'" in answer.headers["content-security-policy"] and answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["cache-control"] == "no-store" and "server" not in answer.headers
    assert sorted(path.relative_to(folder) for path in folder.rglob("*")) == before


def test_a_long_list_ends(folder, monkeypatch):
    monkeypatch.setattr(listing, "MOST", 2)
    found, more = listing.runs(folder)
    assert len(found) == 2 and more


def test_the_command_answers_on_loopback_and_ends(folder):
    command = [sys.executable, "-m", "coalmine", "serve", str(folder), "--port", "0", "--json", "--quiet"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            address = json.loads(process.stdout.readline())["url"]
            assert address.startswith("http://127.0.0.1:")
            with urllib.request.urlopen(f"{address}runs.json", timeout=300) as answer:
                assert "server" not in answer.headers and json.load(answer)["runs"]
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(300) == 0


@pytest.mark.parametrize("which", ["absent", "first"])
def test_a_folder_that_cannot_be_served(folder, which):
    command = [sys.executable, "-m", "coalmine", "serve", str(folder / which)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert said.returncode == 2 and ("is not a folder" in said.stderr or "is a run itself" in said.stderr)

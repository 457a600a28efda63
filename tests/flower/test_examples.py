"""The examples: their own server and client code in this process; and a real deployment with TLS that loses a SuperNode."""

import importlib
import json
import os
import socket
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from flwr.app import Context, RecordDict

from coalmine import AuditResult
from coalmine.adapters.flower import LocalGrid

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(monkeypatch):
    """(an application, its settings) of an example."""

    def load(folder, package, **settings):
        monkeypatch.syspath_prepend(str(EXAMPLES / folder))
        config = tomllib.loads((EXAMPLES / folder / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"] | settings
        modules = {name: importlib.import_module(f"{package}.{name}") for name in ("client_app", "server_app")}
        return SimpleNamespace(**modules, config=config)

    return load


def context(config):
    return Context(run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config=config)


def test_the_quickstart(example, one_thread, tmp_path, capsys):
    app = example("flower-quickstart", "quickstart", **{"audit-dir": str(tmp_path / "audit"), "rounds": 4, "clients": 6})
    app.server_app.main(LocalGrid(app.client_app.app, 6, app.config), context(app.config))
    result = AuditResult.load(tmp_path / "audit")
    assert result.claim.epsilon == pytest.approx(9.997, abs=1e-3)
    assert result.verdict.word != "VIOLATED"
    assert "view: known others" in capsys.readouterr().out


@pytest.mark.parametrize(("clip_on", "violated"), [("clients", False), ("server", True)])
def test_secure_aggregation(example, clip_on, violated, tmp_path):
    files = {"audit-dir": str(tmp_path / "audit"), "secret-file": str(tmp_path / "secret.json")}
    app = example("flower-secagg", "secagg_app", **files, **{"clip-on": clip_on, "rounds": 2, "clients": 4, "canaries": 16})
    app.server_app.main(LocalGrid(app.client_app.app, 20, app.config), context(app.config))
    assert (AuditResult.load(tmp_path / "audit").verdict.word == "VIOLATED") == violated


def free_port(count=20):
    """The first of so many neighbouring ports that nobody uses."""
    for first in range(18100 + os.getpid() % 400 * count, 30000, count):  # two runs of the tests at once begin apart
        try:
            for port in range(first, first + count):
                with socket.socket() as tried:
                    tried.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first
    raise RuntimeError("no free ports")


@pytest.mark.slow
def test_deployed_with_tls_and_a_lost_supernode(monkeypatch, tmp_path):
    """About a minute on a quiet machine; bounded in time, and nothing is left behind."""
    monkeypatch.syspath_prepend(str(EXAMPLES / "flower-deployed"))
    deployed = importlib.import_module("deployed")
    paths = [str(Path(__file__).parents[2] / "src"), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in paths if path))
    started = []
    begin = deployed.subprocess.Popen

    def remembering(*arguments, **options):
        started.append(begin(*arguments, **options))
        return started[-1]

    monkeypatch.setattr(deployed.subprocess, "Popen", remembering)
    out = tmp_path / "audit"
    deployed.run(out, nodes=3, base_port=free_port(), lose_one_after=2, timeout=90.0)
    assert len(started) == 5  # a SuperLink, three SuperNodes, the run
    assert all(process.poll() is not None for process in started)
    result = AuditResult.load(out)
    said = " ".join(result.caveats)
    assert "failed clients" in said or "missing replies" in said
    assert "not as many replies as num_sampled_clients" in said
    assert result.estimate.p_value < 1e-6  # the canaries were there
    assert result.verdict.word != "VIOLATED"
    assert json.loads((out / "events.jsonl").read_text().splitlines()[0])["clients"] == 3


def test_certificates_are_for_this_machine_alone(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(EXAMPLES / "flower-deployed"))
    deployed = importlib.import_module("deployed")
    files = deployed.make_certificates(tmp_path)
    x509 = sys.modules["cryptography"].x509
    server, ca = (x509.load_pem_x509_certificate(files[name].read_bytes()) for name in ("server", "ca"))
    server.verify_directly_issued_by(ca)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(each.value) for each in names] == ["127.0.0.1", "localhost"]
    assert files["key"].stat().st_mode & 0o777 == 0o600

"""A SuperLink and SuperNodes on this machine, with TLS, an audited application on top, and everything stopped by process id.

    python deployed.py --out audit --nodes 3 [--lose-one-after 2] [--base-port 18000]

It makes a certificate authority of its own for the test, for the loopback address alone. Nothing listens on any other address,
and nothing is left running, whatever happens: every process that was started is stopped by its id.
"""

from __future__ import annotations

import argparse
import datetime
import ipaddress
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from signal import SIGKILL, SIGTERM

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

HERE = Path(__file__).resolve().parent
HOST = "127.0.0.1"
BIN = Path(sys.executable).parent
READY = 120.0  # seconds that processes may take to come up
LONGEST = 420.0  # seconds of a whole run


def make_certificates(folder: Path) -> dict[str, Path]:
    """A certificate authority for this run, and a certificate for the loopback address that it signs."""
    now = datetime.datetime.now(datetime.UTC)
    begin, end = now - datetime.timedelta(minutes=5), now + datetime.timedelta(days=1)
    files = {name: folder / f"{name}.pem" for name in ("ca", "server", "key")}
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name, name = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)]) for text in ("test authority", HOST))

    def begun(subject: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(ca_name).public_key(public)
        return builder.serial_number(x509.random_serial_number()).not_valid_before(begin).not_valid_after(end)

    ca = begun(ca_name, ca_key.public_key()).add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST)), x509.DNSName("localhost")])
    server = begun(name, key.public_key()).add_extension(names, critical=False)
    pem = serialization.Encoding.PEM
    files["ca"].write_bytes(ca.sign(ca_key, hashes.SHA256()).public_bytes(pem))
    files["server"].write_bytes(server.sign(ca_key, hashes.SHA256()).public_bytes(pem))
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    with os.fdopen(os.open(files["key"], os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(private)
    return files


class Deployment:
    """The processes of one deployment, their logs, and their end."""

    def __init__(self, folder: Path, base_port: int):
        self.folder, self.port = folder, base_port
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.environment = {**os.environ, "FLWR_HOME": str(folder / "home"), "FLWR_TELEMETRY_ENABLED": "0"}
        self.environment["PATH"] = os.pathsep.join([str(BIN), os.environ.get("PATH", "")])
        (folder / "home").mkdir()

    def start(self, name: str, *command: str) -> None:
        """A process in a group of its own, which writes to a log."""
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [str(BIN / command[0]), *command[1:]], stdout=log, stderr=log, env=self.environment, start_new_session=True
            )

    def log(self, name: str) -> str:
        """What a process has said."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def wait_for(self, name: str, words: str) -> None:
        """Until a process says something, or is gone."""
        until = time.monotonic() + READY
        while words.lower() not in self.log(name).lower():
            if self.processes[name].poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"{name} did not say {words!r} within {READY:.0f} seconds:\n{self.log(name)}")
            time.sleep(0.2)

    def stop(self, name: str) -> None:
        """A process and those that it started itself, by their ids."""
        process = self.processes.pop(name)
        started = [process.pid, *_descendants(process.pid)]
        for signal in (SIGTERM, SIGKILL):
            for number in started:
                with suppress(ProcessLookupError):
                    os.kill(number, signal)
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=5)

    def stop_all(self) -> None:
        """Everything that is left."""
        for name in list(self.processes):
            self.stop(name)


def _descendants(parent: int) -> list[int]:
    """The processes that a process started, and those that they started: SuperLink and SuperNodes detach theirs."""
    parents = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError, IndexError):
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found = [child for child, its_parent in parents.items() if its_parent == parent]
    return [*found, *(each for child in found for each in _descendants(child))]


@contextmanager
def deployment(nodes: int, base_port: int) -> Iterator[Deployment]:
    """A SuperLink and SuperNodes with TLS, on the loopback address alone."""
    with tempfile.TemporaryDirectory() as name:
        running = Deployment(Path(name), base_port)
        try:
            files, address = make_certificates(running.folder), f"{HOST}:{base_port}"
            (running.folder / "home" / "config.toml").write_text(
                f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "{address}"\nroot-certificates = "{files["ca"]}"\n'
            )
            running.start(
                "superlink",
                *("flower-superlink", "--host", HOST, "--port", str(base_port), "--disable-runtime-dependency-installation"),
                *("--ssl-ca-certfile", str(files["ca"]), "--ssl-certfile", str(files["server"])),
                *("--ssl-keyfile", str(files["key"])),
            )
            running.wait_for("superlink", "uvicorn running")
            for place in range(nodes):
                running.start(
                    f"node-{place}",
                    *("flower-supernode", "--superlink", address, "--root-certificates", str(files["ca"])),
                    *("--port", str(base_port + 10 + place), "--node-config", f"partition-id={place} num-partitions={nodes}"),
                )
            for place in range(nodes):
                running.wait_for(f"node-{place}", "supernode id")
            yield running
        finally:
            running.stop_all()


def run(out: Path, *, nodes: int, base_port: int, lose_one_after: int | None = None, **settings: object) -> str:
    """Train and audit; returns what the application said."""
    config = {"audit-dir": str(out), "clients": nodes, **settings}
    words = " ".join(f"{key}={value!r}" for key, value in config.items())
    with deployment(nodes, base_port) as running:
        running.start("run", "flwr", "run", str(HERE), "here", "--stream", "--run-config", words)
        _watch(running, out, lose_one_after, nodes)
        said = running.log("run")
    if not (out / "result.json").is_file():
        raise RuntimeError(f"the run left no result:\n{said}")
    return said


def _watch(running: Deployment, out: Path, lose_one_after: int | None, nodes: int) -> None:
    """Until the audit is written; after some rounds a node may be lost."""
    until, events = time.monotonic() + LONGEST, out / "events.jsonl"
    while not (out / "training.json").is_file():
        if running.processes["run"].poll() not in (None, 0) or time.monotonic() > until:
            raise RuntimeError(f"the run failed or took too long:\n{running.log('run')}\n{running.log('superlink')[-4000:]}")
        done = len(events.read_text().splitlines()) if events.is_file() else 0
        if lose_one_after is not None and done >= lose_one_after and f"node-{nodes - 1}" in running.processes:
            running.stop(f"node-{nodes - 1}")
        time.sleep(0.2)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="An audited application, deployed on this machine with TLS.")
    parser.add_argument("--out", type=Path, required=True, help="a new directory for the audit")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--base-port", type=int, default=18000)
    parser.add_argument("--lose-one-after", type=int, help="stop a SuperNode after so many rounds")
    config = parser.parse_args()
    run(config.out.resolve(), nodes=config.nodes, base_port=config.base_port, lose_one_after=config.lose_one_after)
    sys.stdout.write(f"the audit is in {config.out}/report.html\n")


if __name__ == "__main__":
    main()

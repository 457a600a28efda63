"""The tables of a report: the numbers of every view, the setting they hold in, and how to make them again."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from coalmine.contracts import Claim, LowerBound, PointEstimate, percent
from coalmine.report.evidence import Evidence
from coalmine.report.words import game_of, number, power_of_ten
from coalmine.result import AuditResult

Rows = list[tuple[str, str]]


class Numbers(NamedTuple):
    """What one adversary sees: claim, bound and estimate of the same game."""

    view: str
    claim: Claim | None
    bound: LowerBound
    estimate: PointEstimate | None
    primary: bool = False

    @property
    def interval(self) -> str:
        """The interval of the estimate."""
        return f"{number(self.estimate.low)} – {number(self.estimate.high)}" if self.estimate else ""


def numbers(result: AuditResult) -> list[Numbers]:
    """The primary view first, then those beside it."""
    first = Numbers(result.setting["view"], result.claim, result.bound, result.estimate, primary=True)
    return [first, *(Numbers(each.view, each.claim, each.bound, each.estimate) for each in result.views)]


def title(evidence: Evidence) -> str:
    """What was audited, in a few words."""
    training, data = evidence.result.training, evidence.config.get("data", {})
    if not training.get("model"):
        return f"{evidence.result.design.inserted:,} canaries, {evidence.result.setting['statistic']}"
    source = f" on {data['source']}" if data.get("source") else ""
    return f"{training['model']}{source}"


def subtitle(evidence: Evidence) -> str:
    """How large it was."""
    told = evidence.result.training.get("in_words", {}).get("training", "")
    return str(told).partition(";")[0]


def setting(evidence: Evidence) -> Rows:
    """Unit, relation, threat model, participation, mechanism, accountant and method."""
    result, told = evidence.result, evidence.config
    game, design, about = game_of(result), result.design, result.setting
    privacy, canaries = told.get("privacy", {}), told.get("canaries", {})
    rows = [
        ("Unit", f"one {game.unit} is protected" if game.unit else "not stated"),
        ("Relation", game.relation or "not stated"),
        ("Threat model", f"{about['view']}; {game.knowledge or 'knowledge of rounds not stated'}"),
        ("Participation", _participation(result)),
        ("Mechanism", _mechanism(result, privacy)),
        ("Accountant", _accountant(result)),
        ("Canaries", _canaries(result, canaries)),
        ("Score", f"{about['statistic']}" + (f" in {about['dim']:,} dimensions" if isinstance(about.get("dim"), int) else "")),
        ("Compared with", f"{about.get('null', 'not stated')}" + (f" ({design.held_out:,})" if design.held_out else "")),
        ("Bound", f"{result.bound.method}, {percent(result.bound.confidence)} confidence; {result.bound.multiplicity}"),
        ("Assumes", "; ".join(result.bound.assumptions) or "nothing further"),
    ]
    if result.claim is not None and result.claim.assumptions:
        rows.append(("The claim assumes", "; ".join(result.claim.assumptions)))
    if told.get("data", {}).get("source"):
        users = result.training.get("users")
        rows.append(("Data", f"{told['data']['source']}" + (f", {users:,} users train" if isinstance(users, int) else "")))
    return rows


def reproduce(evidence: Evidence) -> Rows:
    """Seeds, versions and fingerprints."""
    result, told = evidence.result, evidence.config
    training = result.training
    rows: Rows = []
    if told:
        rows.append(("Public seed", str(told.get("run", {}).get("seed", "not recorded"))))
    if evidence.given_secret:
        rows.append(("Secret seed", "given: whoever has it gets the same bits; such a run is not private"))
    elif evidence.secret:
        rows.append(("Secret seed", f"fresh, SHA-256 {evidence.secret}"))
    rows.append(("Scores", f"SHA-256 {result.setting.get('sha256', 'not recorded')}"))
    for name, key in (("Model", "model_sha256"), ("Configuration", "config_sha256"), ("Inputs", "inputs_sha256")):
        if isinstance(training.get(key), str):
            rows.append((name, f"SHA-256 {training[key]}"))
    rows.append(("Versions", ", ".join(f"{name} {version}" for name, version in sorted(evidence.versions.items()))))
    return rows


def command(evidence: Evidence) -> str:
    """What to type."""
    if "application" in evidence.config:
        return f"# {evidence.config['application'].get('name', 'the application')}: run it again"
    if evidence.config:
        return "coalmine run config.toml" + (" --secret-seed …" if evidence.given_secret else "")
    result = evidence.result
    methods = "".join(f" --method {name}" for name in (result.method,) if name != "band")
    claim = f" --claim {result.claim.epsilon:.6g}" if result.claim is not None else ""
    return f"coalmine estimate SCORES --delta {power_of_ten(result.bound.delta)}{claim}{methods}"


def meaning(evidence: Evidence) -> str:
    """What the command gives."""
    if "application" in evidence.config:
        return (
            "Another engine trained this application, with the audit below. Its noise and samples are new in every run, and so "
            "are canaries and coins, unless the secret seed was given."
        )
    if not evidence.config:
        return "With the scores of this audit (their fingerprint is below) the same numbers come out."
    if evidence.given_secret:
        return "With the configuration below and the secret seed of this run the same bits come out."
    return (
        "With the configuration below. Noise, canaries and coins come fresh from the operating system, so another run gives "
        "other numbers of the same distribution, not the same bits; whoever holds secret.json can give its seed and gets them."
    )


def toml(config: Mapping[str, Any]) -> str:
    """The configuration as TOML."""
    return "\n".join(_toml(config, ())).strip() + "\n"


def _toml(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    inner = {name: value for name, value in table.items() if isinstance(value, Mapping)}
    plain = {name: value for name, value in table.items() if name not in inner}
    if path and (plain or not inner):
        yield f"\n[{'.'.join(_key(part) for part in path)}]"
    for name, value in plain.items():
        yield f"{_key(name)} = {json.dumps(value, default=str)}"
    for name, value in inner.items():
        yield from _toml(value, (*path, name))


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)


def _participation(result: AuditResult) -> str:
    canaries, clients = game_of(result).participation, result.training.get("participation")
    if canaries is None:
        return "not stated"
    return f"canaries {canaries}" + (f"; clients {clients}" if clients else "")


def _mechanism(result: AuditResult, privacy: Mapping[str, Any]) -> str:
    noise = result.claim.noise_multiplier if result.claim is not None else None
    parts = [f"Gaussian noise, multiplier {noise:g}" if noise is not None else "not stated"]
    if "clip_norm" in privacy:
        adaptive = privacy.get("adaptive_clipping")
        parts.append(f"{'adaptive clipping from' if adaptive else 'clip norm'} {privacy['clip_norm']}")
    if privacy.get("realised_denominator"):
        parts.append("divided by who came")
    return ", ".join(parts)


def _accountant(result: AuditResult) -> str:
    if result.claim is None:
        return "no claim was given"
    name = result.claim.accountant
    version = result.versions.get("dp-accounting")
    shown = "stated: someone typed the claim in" if name == "stated" else name
    return shown if version is None or "dp-accounting" in name or name == "stated" else f"{shown} (coalmine {_own(result)})"


def _own(result: AuditResult) -> str:
    return result.versions.get("coalmine", "of unknown version")


def _canaries(result: AuditResult, told: Mapping[str, Any]) -> str:
    shown = f"{result.design.inserted:,} inserted"
    pool = told.get("pool")
    if isinstance(pool, int):
        shown += f" of a pool of {pool:,}"
    parts = [shown, {"coins": "each by its own coin"}.get(str(result.setting.get("assignment")), "")]
    if told.get("family"):
        parts.append(f"{told['family']} directions, {told.get('over_long', 1):g} clip norms long")
    return ", ".join(part for part in parts if part)

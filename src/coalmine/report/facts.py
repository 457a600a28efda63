"""The tables of a report: the numbers of every view, the setting they hold in, and how to make them again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from coalmine.contracts import Claim, LowerBound, PointEstimate, percent
from coalmine.contracts.sentences import view_name
from coalmine.report.again import estimate_again
from coalmine.report.digits import number
from coalmine.report.evidence import Evidence, drawable
from coalmine.report.words import clients_attendance, game_of, label, shown_view
from coalmine.result import AuditResult
from coalmine.views import VIEWS

Rows = list[tuple[str, str]]
_STRUCTURE = (("rounds", "noise over rounds"), ("coordinates", "noise over coordinates"), ("added_by", "add the noise"))
_USUAL = ("fresh", "isotropic", "server")


class Numbers(NamedTuple):
    """What one adversary sees: claim, bound and estimate of the same game."""

    view: str  # in few words
    claim: Claim | None
    bound: LowerBound
    estimate: PointEstimate | None
    primary: bool = False
    name: str = ""  # the view's own, where `view` is another

    @property
    def interval(self) -> str:
        """The interval of the estimate."""
        return f"{number(self.estimate.low)} – {number(self.estimate.high)}" if self.estimate else ""


def numbers(result: AuditResult) -> list[Numbers]:
    """The primary view first, then those beside it."""
    view, layer = result.setting["view"], result.setting.get("layer")
    first = Numbers(label(view, layer), result.claim, result.bound, result.estimate, True, _own_name(view, layer))
    others = (
        Numbers(label(each.view, each.layer), each.claim, each.bound, each.estimate, False, _own_name(each.view, each.layer))
        for each in result.views
    )
    return [first, *others]


def _own_name(view: str, layer: str | None) -> str:
    """The name beside the few words; empty where the name stands in their place."""
    return view_name(view) if layer is None and view in VIEWS and VIEWS[view].short else ""


def title(evidence: Evidence) -> str:
    """What was audited, in a few words."""
    training, data = evidence.result.training, evidence.config.get("data", {})
    if not training.get("model"):
        return f"{evidence.result.design.inserted:,} canaries, {evidence.result.setting['statistic']}"
    source = f" on {data['source']}" if data.get("source") else ""
    return f"{training['model']}{source}"


def subtitle(evidence: Evidence) -> str:
    """How large it was."""
    return _trained(evidence.result.training)


def _trained(training: Mapping[str, Any]) -> str:
    rounds, clients, parameters = (training.get(name) for name in ("rounds", "mean_clients", "parameters"))
    if not (drawable(rounds) and drawable(clients) and drawable(parameters)):
        return ""
    of_steps = "engine" in training and training.get("unit") == "example"  # our own trainer has rounds of clients
    what = "steps of {:.0f} examples" if of_steps else "rounds of {:.0f} clients"
    return f"{rounds} {what.format(clients)}, {parameters:,} parameters"


def setting(evidence: Evidence) -> Rows:
    """Unit, relation, threat model, participation, mechanism, accountant and method."""
    result, stated = evidence.result, evidence.config
    game, design, about = game_of(result), result.design, result.setting
    canaries = stated.get("canaries", {})
    rows = [
        ("Unit", f"one {game.unit} is protected" if game.unit else "not stated"),
        ("Relation", game.relation or "not stated"),
        ("Threat model", f"{shown_view(result)}; {_knowledge(result)}"),
        ("Participation", _participation(result)),
        ("Mechanism", _mechanism(result, stated.get("mechanism", {}), evidence.handed.get("mechanism"))),
        ("Accountant", _accountant(result)),
        ("Canaries", _canaries(result, canaries)),
        ("Score", f"{about['statistic']}" + (f" in {about['dim']:,} dimensions" if isinstance(about.get("dim"), int) else "")),
        ("Compared with", f"{about.get('null', 'not stated')}" + (f" ({design.held_out:,})" if design.held_out else "")),
        ("Bound", f"{result.bound.method}, {percent(result.bound.confidence)} confidence; {result.bound.multiplicity}"),
        ("Assumes", "; ".join(result.bound.assumptions) or "nothing further"),
    ]
    if result.claim is not None and result.claim.assumptions:
        rows.append(("The claim assumes", "; ".join(result.claim.assumptions)))
    if stated.get("data", {}).get("source"):
        users = result.training.get("users")
        rows.append(("Data", f"{stated['data']['source']}" + (f", {users:,} users train" if isinstance(users, int) else "")))
    return rows


def reproduce(evidence: Evidence) -> Rows:
    """Seeds, versions and fingerprints."""
    result, stated = evidence.result, evidence.config
    training = result.training
    rows: Rows = []
    if stated:
        rows.append(("Public seed", str(stated.get("run", {}).get("seed", "not recorded"))))
    if evidence.given_secret:
        rows.append(("Secret seed", "given: whoever has it gets the same bits; such a run is not private"))
    elif evidence.secret:
        rows.append(("Secret seed", f"fresh, SHA-256 {evidence.secret}"))
    rows.append(("Scores", f"SHA-256 {result.setting.get('sha256', 'not recorded')}"))
    for name, key in (("Model", "model_sha256"), ("Configuration", "config_sha256"), ("Inputs", "inputs_sha256")):
        if isinstance(training.get(key), str):
            rows.append((name, f"SHA-256 {training[key]}"))
    if evidence.digest is not None:
        rows.append(("All files", f"SHA-256 {evidence.digest} of their manifest. To compare: coalmine verify DIR --digest …"))
    elif evidence.lone:
        rows.append(("All files", "unverified: there is no manifest beside this result; nobody can tell whether it was edited"))
    rows.append(("Versions", ", ".join(f"{name} {version}" for name, version in sorted(evidence.versions.items()))))
    return rows


def command(evidence: Evidence) -> str:
    """What to type."""
    if "application" in evidence.config:
        return f"# {evidence.config['application'].get('name', 'the application')}: run it again"
    if evidence.handed:
        secret = ", secret_seed=…" if evidence.given_secret else ""
        handed = "".join(f", {name}=…" for name in sorted(evidence.handed))
        return f'coalmine.training.run(read_config("config.toml"), "again"{handed}{secret})'
    if evidence.config:
        return "coalmine run config.toml" + (" --secret-seed …" if evidence.given_secret else "")
    return estimate_again(evidence.result)[0]


def meaning(evidence: Evidence) -> str:
    """What the command gives."""
    if "application" in evidence.config:
        return (
            "Another engine trained this application, with the audit below. Its noise and samples are new in every run, and so "
            "are canaries and coins, unless the secret seed was given."
        )
    if not evidence.config:
        missing = estimate_again(evidence.result)[1]
        if missing:
            return (
                f"With the scores of this audit (their fingerprint is below), and with what is not in it: {'; '.join(missing)}."
            )
        return "With the scores of this audit (their fingerprint is below) the same numbers come out."
    if evidence.handed:
        things = ", ".join(f"{name} ({found})" for name, found in sorted(evidence.handed.items()))
        return f"In Python, with the config.toml of this run and what the run was handed beside it: {things}."
    if evidence.given_secret:
        return "With the config.toml of this run and its secret seed the same bits come out."
    return (
        "With the config.toml of this run. Noise, canaries and coins come fresh from the operating system, so another run "
        "gives other numbers of the same distribution, not the same bits; whoever holds secret.json can give its seed and gets "
        "them."
    )


def toml(config: Mapping[str, Any]) -> str:
    """The configuration as TOML."""
    import tomli_w

    return tomli_w.dumps(config)


def _knowledge(result: AuditResult) -> str:
    """What the claim allows its adversary to know: it may be more than this view uses."""
    known = game_of(result).knowledge
    if known is None:
        return "knowledge of rounds not stated"
    return known if result.claim is None else f"claimed for: {known}"


def _participation(result: AuditResult) -> str:
    canaries, clients = game_of(result).participation, clients_attendance(result)
    if canaries is None:
        return "not stated"
    return f"canaries {canaries}" + (f"; {game_of(result).unit or 'client'}s {clients}" if clients else "")


def _mechanism(result: AuditResult, section: Mapping[str, Any], handed: str | None) -> str:
    """What the claim was computed for; the clip norm from the configuration where the description does not say it."""
    described = result.claim.description if result.claim is not None else None
    own = f"{handed}, handed to the run, claimed to be: " if handed else ""
    if described is None or described.noise is None:
        return f"{own}not stated"
    noise, clip = described.noise, described.clip
    parts = [f"{own}Gaussian noise, multiplier {noise.accounted:g}"]
    parts += [f"{getattr(noise, part).kind} {words}" for part, words in _STRUCTURE if getattr(noise, part).kind not in _USUAL]
    norm = section.get("clip_norm") if clip.norm is None else clip.norm
    if norm is not None:
        adaptive = any(extra.kind == "quantile" for extra in described.extras)
        over = "" if clip.over == "update" else f" for every {clip.over}"
        parts.append(f"{'adaptive clipping from' if adaptive else 'clip norm'} {norm}{over}")
    if described.denominator == "realised":
        parts.append("divided by the actual cohort")
    return ", ".join(parts)


def _accountant(result: AuditResult) -> str:
    if result.claim is None:
        return "no claim was given"
    name = result.claim.accountant
    version = result.versions.get("dp-accounting")
    shown = "stated: entered by the user" if name == "stated" else name
    return shown if version is None or "dp-accounting" in name or name == "stated" else f"{shown} (coalmine {_own(result)})"


def _own(result: AuditResult) -> str:
    return result.versions.get("coalmine", "of unknown version")


def _canaries(result: AuditResult, stated: Mapping[str, Any]) -> str:
    shown = f"{result.design.inserted:,} inserted"
    pool = stated.get("pool")
    if isinstance(pool, int):
        shown += f" of a pool of {pool:,}"
    parts = [shown, {"coins": "each by its own coin"}.get(str(result.setting.get("assignment")), "")]
    if stated.get("family"):
        length = stated.get("canary_norm", 1)
        long = f", {length:g} clip norms long" if isinstance(length, int | float) else ""
        parts.append(f"{stated['family']} directions{long}")
    return ", ".join(part for part in parts if part)

"""`coalmine infer`: fine-tune a small language model on users who join by coins, and ask who joined.

    DIR/reference.safetensors   the reference model, trained without any target user; the hashes of its users in inference.json
    DIR/scores.npz              T_u of every target user
    DIR/inference.json          rankings, losses, what was left out, how it was made
    DIR/result.json             the audit: rankings, the one-run bound, and the claim if the training made one
    DIR/report.html             the same on one page

Everything that could favour a user (cap, deduplication, attack texts) is decided before the coins.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from coalmine import data, manifest
from coalmine._random import stream
from coalmine.accounting import calibrate_noise, claim
from coalmine.attacks import user_inference
from coalmine.attacks.fine_tuning import LanguageModel, Tuning, windows_of
from coalmine.attacks.user_inference import Inferred, Target, Targets
from coalmine.audit.conclude import make_page
from coalmine.audit.statements import audit_scores
from coalmine.clients import quiet_threads
from coalmine.contracts import Claim, Game, Streams, plain
from coalmine.data.vocabulary import Vocabulary
from coalmine.errors import RunDirectoryError
from coalmine.estimators.one_run import Guesses
from coalmine.models.transformer import gpt, save_weights
from coalmine.participation import ExamplePoisson, Poisson
from coalmine.result import AuditResult
from coalmine.training.config import Config, changed
from coalmine.training.sections import InferenceSection

_REFERENCE_BATCH, _REFERENCE_RATE = 64, 2e-3


@dataclass(frozen=True)
class InferenceResult:
    """What `infer` found: the audit with its rankings, and the losses of the model."""

    result: AuditResult
    about: dict[str, Any]
    directory: Path | None = None

    def __str__(self) -> str:
        lines = [
            f"  {'ranking' if not number else '':<13} {each['label']}: {_ranked(each)}"
            for number, each in enumerate(self.result.rankings)
        ]
        lines.append(
            f"  {'loss':<13} {self.about['loss']:.4f} nats a token, {self.about['reference_loss']:.4f} before fine-tuning"
        )
        return "\n".join([str(self.result), *lines])

    def to_json(self) -> str:
        """As one JSON document."""
        return json.dumps({**plain(self.about), "result": self.result.to_dict()}, indent=2, sort_keys=True) + "\n"


@dataclass(frozen=True, eq=False)
class Setup:
    """Users, coins and reference model of an attack: fixed before fine-tuning, and shared by several of them."""

    config: Config
    secret: Streams
    quiet: bool = True

    def changed(self, changes: Sequence[str]) -> Setup:
        """The same users, coins and reference model with another configuration of fine-tuning."""
        made = Setup(changed(self.config, changes), self.secret, self.quiet)
        for name in ("users", "reference"):
            vars(made)[name] = getattr(self, name)
        return made

    @cached_property
    def options(self) -> InferenceSection:
        """The section [inference]."""
        return self.config.inference or InferenceSection()

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Characters, known without looking at anybody's text."""
        return Vocabulary.ascii()

    @cached_property
    def users(self) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
        """(texts of reference users, texts of real target users)."""
        source = data.read(self.config.data.source, **self.config.data.options)
        if not source.texts:
            raise ValueError(f"data.source = {self.config.data.source!r} has no texts; user inference is about texts.")
        source = source.at_least(max(self.config.data.at_least or 1, self.options.attack_texts + 1))
        chosen = np.array(source.users)[stream(self.config.run.seed, "reference users").permutation(len(source))]
        count = self.options.reference_users
        if count >= len(chosen):
            raise ValueError(f"inference.reference_users={count} leaves no target among {len(chosen)} users.")
        last = None if self.config.data.users is None else count + self.config.data.users
        load: Any = source.load
        texts = [{str(user): load(str(user)).texts for user in part} for part in (chosen[:count], chosen[count:last])]
        return texts[0], texts[1]

    @cached_property
    def split(self) -> Targets:
        """Real target users with their attack texts, then canary users."""
        reference, real = self.users
        o = self.options
        found = user_inference.split_texts(
            real, attack_texts=o.attack_texts, cap=self.config.data.cap, dedup=o.dedup is not None, seed=self.config.run.seed
        )
        most = self.config.data.cap or 40
        planted = user_inference.canary_users(
            reference, count=o.canary_users, shared=o.shared, attack_texts=o.attack_texts, most=most, secret=self.secret
        ) if o.canary_users else ()  # fmt: skip
        user_inference.check_reference(list(reference), found.targets)
        return replace(found, targets=(*found.targets, *planted))

    @property
    def targets(self) -> tuple[Target, ...]:
        """All users who may join."""
        return self.split.targets

    @cached_property
    def inserted(self) -> Any:
        """Who joins."""
        return user_inference.throw_coins(self.targets, self.secret)

    @cached_property
    def reference(self) -> LanguageModel:
        """The reference model, trained on reference users alone, as a model with all weights."""
        options = {**self.config.model.options, "lora_rank": 0}
        model = gpt(vocabulary=len(self.vocabulary), context=self.config.data.length, **options)
        begun = LanguageModel(model, self.vocabulary, self.config.data.length, model.initial(self.config.run.seed))
        tuning = Tuning(_REFERENCE_RATE, _REFERENCE_BATCH, self.options.reference_steps)
        secret = partial(stream, self.config.run.seed, "reference")
        return begun.fine_tuned(
            list(self.users[0].values()), tuning, secret, progress="training the reference model", quiet=self.quiet
        )

    def begin(self, directory: Path) -> LanguageModel:
        """The model that is fine-tuned: the reference itself, or with adapters on it."""
        rank = self.config.model.options.get("lora_rank", 0)
        flat = self.reference.model.flat()
        flat.put(self.reference.parameters)
        path = directory / "reference.safetensors"
        save_weights(flat.module, path, {"model": "gpt"})
        if not rank:
            return self.reference
        model = gpt(
            vocabulary=len(self.vocabulary), context=self.config.data.length, initial=str(path), **self.config.model.options
        )
        return LanguageModel(model, self.vocabulary, self.config.data.length, model.initial(self.config.run.seed))

    @cached_property
    def joined(self) -> list[Sequence[str]]:
        """Training texts of those who join."""
        return [target.training for target, joins in zip(self.targets, self.inserted, strict=True) if joins]

    @cached_property
    def held_out(self) -> list[str]:
        """Attack texts of real users who did not join: what the loss is measured on."""
        left = [target for target, joins in zip(self.targets, self.inserted, strict=True) if not (joins or target.shared)]
        return [text for target in left for text in target.attack]

    def _windows(self, texts: Sequence[str]) -> Any:
        return windows_of(texts, self.vocabulary, self.config.data.length)

    def tuning(self) -> tuple[Tuning, Claim | None, int]:
        """(how to fine-tune, the claim that it makes for a user, steps of an epoch)."""
        o, client, privacy = self.options, self.config.client, self.config.privacy
        if o.protection == "none":
            units: float = sum(len(self._windows(own)) for own in self.joined)
        else:  # of anybody who might have joined: rate and steps that depended on the coins would tell about them
            sizes = [len(self._windows(target.training)) for target in self.targets]
            units = (len(sizes) if o.protection == "user" else sum(sizes)) / 2
        batch = float(units if client.batch_size == "all" else min(client.batch_size, units))
        per_epoch = max(round(units / batch), 1)
        steps = max(1, round(o.epochs * per_epoch))
        if o.protection == "none":
            return Tuning(client.learning_rate, batch, steps), None, per_epoch
        rate = batch / units
        pattern: Poisson | ExamplePoisson = Poisson(rate, steps)
        if o.protection == "example":
            pattern = ExamplePoisson(rate, steps, max(sizes))
        noise = float(self.config.mechanism.options["noise_multiplier"])
        if o.epsilon is not None:
            noise = calibrate_noise(pattern, epsilon=o.epsilon, delta=privacy.delta)
        stated = claim(pattern, noise_multiplier=noise, delta=privacy.delta)
        clip = self.config.mechanism.clip_norm or 1.0
        return Tuning(client.learning_rate, batch, steps, o.protection, noise, clip, units=units), stated, per_epoch


def infer(config: Config, out: str | Path, *, secret_seed: int | None = None, quiet: bool = False) -> InferenceResult:
    """Fine-tune with user coins, attack, and write the result into the new directory `out`."""
    if config.model.name != "gpt":
        raise ValueError(
            f"model.name = {config.model.name!r} cannot be fine-tuned here: user inference needs the language model 'gpt'. "
            "Begin with the preset infer-chat."
        )
    folder = Path(out)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunDirectoryError(f"{str(folder)!r} already exists and is not empty. Choose another --out.")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    quiet_threads()
    seed = secrets.randbits(128) if secret_seed is None else secret_seed
    setup = Setup(config, partial(stream, seed), quiet)
    return attack_once(setup, folder)


def attack_once(setup: Setup, folder: Path) -> InferenceResult:
    """One fine-tuning and one attack on it."""
    reference, begun = setup.reference, setup.begin(folder)
    tuning, stated, per_epoch = setup.tuning()
    secret = partial(setup.secret, "fine-tuning")
    tuned = begun.fine_tuned(setup.joined, tuning, secret, progress="fine-tuning", quiet=setup.quiet)
    game = Game("client", "add-or-remove-one") if stated is None else stated.game
    found = user_inference.attack(
        setup.targets,
        setup.inserted,
        tuned.log_likelihoods,
        reference.log_likelihoods,
        kind=setup.options.statistic,
        confidence=setup.config.audit.confidence,
        game=game,
    )
    about = {
        "loss": tuned.mean_loss(setup.held_out),
        "reference_loss": reference.mean_loss(setup.held_out),
        "auroc_by_attack_texts": {str(texts): value for texts, value in found.by_texts.items()},
        "targets": len(setup.targets),
        "joined": int(setup.inserted.sum()),
        "attack_texts_that_repeat": setup.split.repeated,
        "duplicates_left_out": setup.split.duplicates,
        "parameters": tuned.model.dim,
        "steps_of_an_epoch": per_epoch,
        "tuning": plain(tuning),
        "reference_users_sha256": sorted(user_inference.hashed(user) for user in setup.users[0]),
    }
    result = _audited(setup, found, stated)
    found.scores.save(folder / "scores.npz")
    manifest.put(folder / "inference.json", json.dumps(plain(about), indent=2) + "\n")
    manifest.write(folder, {"result.json": result.to_json().encode()})
    result.save(folder / "result.json")
    page = make_page(folder, result, [found.scores])
    if page is not None:
        (folder / "report.html").write_bytes(page)
    return InferenceResult(result, about, folder)


def _audited(setup: Setup, found: Inferred, stated: Claim | None) -> AuditResult:
    """The one-run bound with guesses that were fixed before the run; the rankings beside it."""
    asked = setup.options.guesses
    guesses = max(1, len(setup.targets) // 10) if asked == "tenth" else asked
    if 2 * guesses > len(setup.targets):
        raise ValueError(f"inference.guesses={guesses} at each end are more than there are users ({len(setup.targets)}).")
    result = audit_scores(
        found.scores,
        delta=setup.config.privacy.delta,
        claim=stated,
        method="one-run",
        confidence=setup.config.audit.confidence,
        options={"guesses": Guesses(guesses, guesses)},
    )
    known = {flag.code for estimate in result.estimates for flag in estimate.flags}
    caveats = tuple(each for each in result.caveats if each.code not in known)  # those of estimates, which are none here
    return replace(
        result, estimates=(), diagnostics={}, caveats=caveats, rankings=tuple(plain(each) for each in found.rankings)
    )


def _ranked(ranking: Any) -> str:
    if ranking["low"] is None:
        return f"AUROC {ranking['auroc']:.3f}, no interval: {ranking['unavailable']}"
    return f"AUROC {ranking['auroc']:.3f} [{ranking['low']:.3f}, {ranking['high']:.3f}]"

"""What the design of canaries is told: losses, starts, targets and steps by name, and the paper's recipe."""

from __future__ import annotations

from dataclasses import dataclass, replace

from coalmine import _validate

LOSSES = ("log", "covariance", "mean", "printed")
HINGES = ("squared", "linear")
STARTS = ("random", "sample", "rare")
TARGETS = ("random", "sample", "soft")
TEXT_METHODS = ("flips", "gumbel")
_SWITCHES = ("specials", "keep_best", "undo_learning_rate", "unroll", "use_as_is", "as_published")
_ITERATIONS = {"image": 250, "flips": 40, "gumbel": 200}


@dataclass(frozen=True, kw_only=True)
class Crafting:
    """How canaries are designed.

    `iterations=None` takes 250 steps on images, 40 flips of tokens, 200 steps of "gumbel". `norm_margin` is how many times
    the clip norm the update of a canary should have before clipping. `box` keeps every pixel between two numbers.

    >>> Crafting().loss, Crafting(as_published=True).resolved().loss
    ('log', 'covariance')

    Args:
        loss: What is minimised, one of `coalmine.canaries.crafted.options.LOSSES`.
        hinge: How an update shorter than wanted is punished.
        iterations: Steps of the search.
        learning_rate: Of the search on images.
        minibatch: Rows of the pool in a step; None: all.
        norm_margin: Length of a canary's update before clipping, in clip norms.
        init: Where the search begins.
        target: The class of an image, or how it is drawn.
        box: Least and largest value of a pixel.
        text_method: "flips" of tokens, or "gumbel".
        temperature: Of "gumbel", from the first step to the last.
        samples: Of "gumbel": texts that are drawn, of which the best is kept.
        specials: Whether special tokens may be in a canary.
        stop_overlap: The design stops when the others add less than this share of the noise (nearly all canaries); 0: never.
        keep_best: The best step instead of the last.
        undo_learning_rate: Multiplies updates by 1 / learning rate: a forged update.
        unroll: The design looks at all steps that a client takes on a canary, 8 at most; for dense layers.
        use_as_is: Whether an update may be unlike the gradient it was designed by, as several steps make it.
        as_published: All choices as in the paper's code.
    """

    loss: str = "log"
    hinge: str = "squared"
    iterations: int | None = None
    learning_rate: float = 0.1
    minibatch: int | None = None  # rows of the pool in a step; None: all
    norm_margin: float = 2.0
    init: str = "random"
    target: str | int = "random"
    box: tuple[float, float] | None = None
    text_method: str = "flips"
    temperature: tuple[float, float] = (1.0, 0.3)  # of "gumbel", from the first step to the last
    samples: int = 64  # of "gumbel", of which the best is kept
    specials: bool = False  # whether special tokens may be in a canary
    stop_overlap: float = 0.1  # of the noise: the design stops when the others add less, over nearly all canaries; 0: never
    keep_best: bool = True
    undo_learning_rate: bool = False  # multiplies the update by 1 / learning rate: a forged update
    unroll: bool = False  # the design looks at all steps that a client takes on a canary
    use_as_is: bool = False  # an update may be unlike the gradient that was designed
    as_published: bool = False

    def __post_init__(self) -> None:
        _validate.one_of("loss", self.loss, LOSSES)
        _validate.one_of("hinge", self.hinge, HINGES)
        _validate.one_of("init", self.init, STARTS)
        _validate.one_of("text_method", self.text_method, TEXT_METHODS)
        if isinstance(self.target, str):
            _validate.one_of("target", self.target, TARGETS)
        elif isinstance(self.target, bool) or not isinstance(self.target, int) or self.target < 0:
            raise ValueError(f"target={self.target!r} is not allowed: it must be the number of a class, or {_said(TARGETS)}.")
        for name in _SWITCHES:
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name}={getattr(self, name)!r} is not allowed: it must be True or False.")
        _validate.positive("learning_rate", self.learning_rate)
        _validate.positive("norm_margin", self.norm_margin)
        _validate.non_negative("stop_overlap", self.stop_overlap)
        _validate.whole("samples", self.samples, least=1)
        for name in ("iterations", "minibatch"):
            if getattr(self, name) is not None:
                _validate.whole(name, getattr(self, name), least=1)
        if self.box is not None and not (_is_pair(self.box) and self.box[0] < self.box[1]):
            raise ValueError(f"box={self.box!r} is not allowed: it must be (smallest, largest).")
        if not (_is_pair(self.temperature) and min(self.temperature) > 0):
            raise ValueError(f"temperature={self.temperature!r} is not allowed: two numbers above 0 are needed, (first, last).")

    def resolved(self, *, text: bool = False, cohort_size: int | None = None) -> Crafting:
        """These options, or with `as_published` the recipe of the published code in their place."""
        if not self.as_published:
            return self
        return replace(
            self,
            loss="covariance",
            iterations=self.iterations or 2500,
            learning_rate=0.1 if text else 1.0,
            minibatch=cohort_size,
            norm_margin=1.0,
            init="random",
            text_method="gumbel",
            temperature=(1.0, 1.0),
            samples=1,
            stop_overlap=0.0,
            keep_best=False,
            undo_learning_rate=True,
        )

    def steps(self, kind: str) -> int:
        """How many iterations a design of this kind takes at most."""
        return self.iterations or _ITERATIONS[kind]

    @property
    def flags(self) -> tuple[str, ...]:
        """What a reader must know about canaries designed so."""
        found = []
        if self.as_published:
            found.append("as published: the last iterate is kept, and length comes from multiplying the update")
        if self.undo_learning_rate:
            found.append("forged: the update was multiplied by 1 / learning rate, which no client's data can do")
        if self.use_as_is:
            found.append("used as it is: the update may be unlike the gradient that was designed; its metrics are its own")
        if self.loss == "printed":
            found.append("the printed loss falls with the length of the gradient, so that canaries collapse")
        return tuple(found)


def _said(names: tuple[str, ...]) -> str:
    return ", ".join(map(repr, names))


def _is_pair(value: object) -> bool:
    """Whether this is two numbers; a configuration has a list, which is taken too."""
    return isinstance(value, tuple | list) and len(value) == 2 and all(isinstance(each, int | float) for each in value)

"""The section [crafting] of a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

PUBLISHED: Mapping[str, Any] = {"canaries": 1, "draws": 100, "others": "unknown"}  # of the paper's recipe
LEAST_SCORES = 16  # of a measured round: fewer may all have the same coin
Whole = Annotated[int, Field(ge=1, strict=True)]


class CraftingSection(BaseModel):
    """Crafted canaries: data designed for the model of a round, scored in it or in frozen draws of it; off by default."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mode: Literal["off", "frozen", "running"] = Field(
        "off", description="frozen: beside the training, which is unchanged; running: canaries join the measured rounds"
    )
    every: Whole = Field(40, description="rounds between two measured ones")
    draws: Whole = Field(8, description="frozen draws of a measured round, each with coins and noise of its own")
    canaries: Whole = Field(128, description="canaries that are designed for a measured round")
    pool: Whole = Field(64, description="users that the design looks at; as many again judge it")
    others: Literal["known", "unknown"] = Field("known", description="whether scores are without the other clients' part")
    score: Literal["inner-product", "likelihood-ratio"] = Field(
        "inner-product",
        description="of unknown others: along the canary's update, or away from what clients have in common",
    )
    options: dict[str, Any] = Field(default_factory=dict, description="of the design: fields of `coalmine.Crafting`, as loss")
    as_published: bool = Field(
        False, description="the paper's recipe, whatever else is set: one canary, 100 draws, unknown others, its design"
    )
    release: Literal["internal", "published"] = Field(
        "internal", description="published: frozen draws count as further releases in the claim of clients"
    )
    pool_source: str | None = Field(None, description="a public data set to design on, in place of users")
    pool_options: dict[str, Any] = Field(default_factory=dict, description="of that data set")
    pool_public: bool = Field(False, description="whether the pool is public: then a canary is shown in the report")

    @model_validator(mode="before")
    @classmethod
    def _recipe(cls, stated: Any) -> Any:
        """The recipe takes the place of what a preset says, so that a stored configuration says what was done."""
        published = isinstance(stated, Mapping) and stated.get("as_published") is True
        return {**stated, **PUBLISHED} if published else stated

    def check(self, direction_canaries: int) -> None:
        """Refuse what does not go together."""
        if self.mode == "off":
            return
        if not direction_canaries:
            raise ValueError(
                "crafting: crafted canaries are one more statement of a run's audit, and this run has none: set canaries.pool "
                'above 0, or crafting.mode = "off".'
            )
        if self.mode == "running" and (self.others == "unknown" or self.as_published):
            raise ValueError(
                'crafting: in running rounds many canaries share a cohort, so that others must be "known"; unknown others and '
                'the published recipe need mode = "frozen".'
            )
        if self.score == "likelihood-ratio" and self.others == "known":
            raise ValueError(
                'crafting: score = "likelihood-ratio" is for others = "unknown"; known others are taken off the scores, and '
                "nothing is left of them."
            )
        if self.mode == "running" and self.release == "published":
            raise ValueError('crafting: release = "published" is about frozen draws; running rounds have none.')
        scores = self.canaries * (self.draws if self.mode == "frozen" else 1)
        if scores < LEAST_SCORES:
            raise ValueError(
                f"crafting: {scores} scores in a measured round show nothing; at least {LEAST_SCORES} are needed. Raise "
                f"crafting.canaries{' or crafting.draws' * (self.mode == 'frozen')}."
            )
        if self.others == "unknown" and self.canaries > 1:
            raise ValueError(
                f'crafting: others = "unknown" is for one canary, not {self.canaries}: scores of one draw share the cohort. '
                "Set crafting.canaries = 1."
            )

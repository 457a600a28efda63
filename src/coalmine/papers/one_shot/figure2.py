"""Figure 2: epsilon of the final model on chats, by noise and presentations."""

from __future__ import annotations

from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.paper_result import PaperResult
from coalmine.papers.one_shot.families import CHATS, ON_CHATS, chat
from coalmine.papers.one_shot.presentations import CHAT_NOISES, epsilons, grid_of


def reproduce(ask: Ask) -> PaperResult:
    """A run for every noise and number of presentations."""
    return epsilons(ask, "figure2", f"Figure 2 on {ON_CHATS}", ON_CHATS, grid_of(ask, chat, CHAT_NOISES), CHATS)

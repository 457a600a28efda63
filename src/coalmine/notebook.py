"""The short form of a result for notebooks: one piece of HTML without scripts, style sheets or anything from elsewhere.

Every string is escaped. Text has the page's own colour, so that it is read on light and on dark pages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from coalmine.drawing import Picture, svg

_STYLES = {
    "VIOLATED": ("✗", "#b42318"),
    "DEVIATES": ("≠", "#b42318"),
    "CONSISTENT": ("✓", "#1a7f37"),
    "INCONCLUSIVE": ("?", "#9a6700"),
}
_NEITHER = ("·", "#57606a")  # no claim, no verdict
_BADGE = "display:inline-block;padding:1px 8px;border-radius:4px;color:#fff;font-weight:bold;background:{colour}"
_CELL = "padding:2px 12px 2px 0;text-align:left;vertical-align:top;border:0;background:none"


def card(
    word: str,
    reason: str,
    table: Mapping[str, str],
    picture: Picture,
    *,
    others: Sequence[str] = (),
    caveats: Sequence[str] = (),
) -> str:
    """Verdict, sentence, table, picture, other views and caveats."""
    icon, colour = _STYLES.get(word, _NEITHER)
    rows = "".join(
        f'<tr><th style="{_CELL}">{escape(name)}</th><td style="{_CELL}">{escape(text)}</td></tr>'
        for name, text in table.items()
    )
    badge = f'<span style="{_BADGE.format(colour=colour)}">{icon} {escape(word)}</span>'
    parts = [
        f'<p style="margin:4px 0">{badge} {escape(reason)}</p>',
        f'<table style="border-collapse:collapse;margin:4px 0;color:inherit"><tbody>{rows}</tbody></table>',
        svg(picture),
        _list("Other views of the same run", others),
        _list("Caveats", caveats),
    ]
    return f'<div style="max-width:60em;line-height:1.4;color:inherit">{"".join(parts)}</div>'


def _list(title: str, items: Sequence[str]) -> str:
    if not items:
        return ""
    listed = "".join(f"<li>{escape(item)}</li>" for item in items)
    return f'<div style="font-size:90%"><b>{escape(title)}</b><ul style="margin:2px 0">{listed}</ul></div>'

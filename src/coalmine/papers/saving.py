"""The files of an experiment."""

from pathlib import Path

from coalmine.papers.outcome import Outcome


def save(outcome: Outcome, folder: Path) -> list[Path]:
    """NAME.json, .csv, .svg and .md; the drawing needs matplotlib and is left out where that is not installed."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {"json": outcome.to_json(), "csv": outcome.to_csv()}
    try:
        from coalmine.papers.figures import drawn

        texts["svg"] = drawn(outcome)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "matplotlib":
            raise
    texts["md"] = outcome.to_markdown(drawing="svg" in texts)
    paths = [folder / f"{outcome.name}.{ending}" for ending in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        path.write_text(text, encoding="utf-8")
    return paths

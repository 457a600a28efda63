"""The files of an experiment."""

from pathlib import Path
from tempfile import TemporaryFile

from coalmine.papers.kit.paper_result import PaperResult


def folder_of(out: Path, scale: str, seed: int) -> Path:
    """Where the files go, made before the work: results of other scales and seeds lie beside it."""
    folder = out / f"{scale}-{seed}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        raise ValueError(f"--out {str(out)!r}: nothing can be written there ({error.strerror}). Give a directory.") from None


def save(result: PaperResult, folder: Path) -> list[Path]:
    """NAME.json, .csv, .svg and .md; drawings need matplotlib and are left out where that is not installed."""
    try:
        from coalmine.papers.kit.drawing import drawn

        drawings = drawn(result)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "matplotlib":
            raise
        drawings = {}
    texts = {
        f"{result.name}.json": result.to_json(),
        f"{result.name}.csv": result.to_csv(),
        **{f"{name}.svg": text for name, text in drawings.items()},
        f"{result.name}.md": result.to_markdown(drawing=bool(drawings)),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in texts]

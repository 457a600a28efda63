"""Makes the gallery: three real runs, their reports and screenshots. Takes some minutes, and Chromium for the screenshots.

    python docs/gallery/make.py [RUNS]

RUNS is a folder for the runs (default: runs/gallery); those that are already finished there are only drawn again.
"""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from coalmine.report.page import report
from coalmine.training import resume, run
from coalmine.training.config import read_config
from coalmine.zoo.noise import HalfTheNoise
from coalmine.zoo.shape import NoiseOnEvenCoordinates

HERE = Path(__file__).parent
CHROMIUM = "/usr/bin/chromium"
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
FLAGS += ["--disable-background-networking", "--disable-component-update"]
COLOURS = 128  # of a screenshot: enough for flat colours, and a third of the size


def main(runs: Path) -> None:
    """Run what is not yet there, then draw."""
    config = read_config("quickstart")
    wrong = HalfTheNoise(**config.mechanism.options)
    alone = ["run.reference=false"]
    audits = {
        "consistent": (config, None),
        "violated": (read_config("quickstart", alone), wrong),
        "deviates": (read_config("quickstart", alone), NoiseOnEvenCoordinates(**config.mechanism.options)),
    }
    for name, (config, mechanism) in audits.items():
        out = runs / name
        done = resume(out, mechanism=mechanism) if (out / "config.toml").is_file() else run(config, out, mechanism=mechanism)
        verdict = done.result.verdict.word if done.result is not None and done.result.verdict is not None else ""
        if verdict != name.upper():
            raise SystemExit(
                f"{name}: the verdict is {verdict or 'missing'}; nothing is written. Run it again in another folder."
            )
        print(f"{name}: {verdict}")
        (HERE / f"{name}.html").write_text(report(out), encoding="utf-8")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        for name in audits:
            shoot(browser, name, "light", 1200, 920)
        shoot(browser, "consistent", "dark", 1200, 1480)
        shoot(browser, "violated", "dark", 390, 844)
        browser.close()


def shoot(browser: Browser, name: str, theme: str, width: int, height: int) -> None:
    """The first screen of a report, in few colours."""
    page = browser.new_context(
        color_scheme=theme, viewport={"width": width, "height": height}, device_scale_factor=1.5
    ).new_page()  # type: ignore[arg-type]
    page.goto((HERE / f"{name}.html").as_uri())
    path = HERE / (f"{name}.png" if theme == "light" else f"{name}-{theme}-{width}.png")
    page.screenshot(path=path)
    Image.open(path).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/gallery"))

"""Pages in a real browser: Debian's Chromium, headless, driven by Playwright; skipped with a reason where there is none."""

import shutil

import pytest

PATIENCE = 300_000  # milliseconds: only ends a test that hangs; Playwright's own 30 seconds are too few on a busy machine
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)


@pytest.fixture(scope="session")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: pip install playwright")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("no Chromium: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=chromium, args=list(FLAGS), timeout=PATIENCE)
        yield found
        found.close()


class Opened:
    """A page as a reader has it, and everything that it complained about or tried to load."""

    def __init__(self, page, path):
        self.page, self.complaints, self.requests = page, [], []
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        page.on("request", lambda request: self.requests.append(request.url))
        page.goto(path.as_uri())

    def box(self, selector):
        return self.page.locator(selector).bounding_box()

    def colour(self, selector, name="color"):
        """(red, green, blue) as it is shown."""
        script = f"element => getComputedStyle(element).getPropertyValue('{name}')"
        shown = self.page.locator(selector).first.evaluate(script)
        return tuple(int(part) for part in shown[shown.index("(") + 1 : -1].split(",")[:3])


@pytest.fixture
def reader(browser):
    """`reader(path, width=390, theme="dark")` opens a page."""
    contexts = []

    def open_page(path, *, width=1280, height=800, theme="light", **how):
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=theme, **how)
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        return Opened(context.new_page(), path)

    yield open_page
    for context in contexts:
        context.close()

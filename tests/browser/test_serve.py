"""The page of all runs as a reader meets it."""

import os
import shutil
import threading
import time

import pytest

uvicorn = pytest.importorskip("uvicorn", reason='uvicorn is not installed: pip install "coalmine[serve]"')

PHONE, SCREEN = (390, 844), (1280, 800)


class Address(str):
    """What `reader` opens."""

    def as_uri(self):
        return str(self)


@pytest.fixture(scope="module")
def address(finished, tmp_path_factory):
    from coalmine.serve import server as served

    patched = pytest.MonkeyPatch()
    patched.setattr(served, "AGAIN", 3600)  # a page that loads itself anew gets in the way of the next one on a busy machine
    root = tmp_path_factory.mktemp("served")
    shutil.copytree(finished(), root / "first")
    shutil.copytree(finished("mechanism.noise_multiplier=1.0"), root / "second")
    shutil.copytree(root / "first", root / "running")
    for name in ("result.json", "training.json", "manifest.json"):
        (root / "running" / name).unlink()
    os.utime(root / "running" / "events.jsonl", (time.time() + 3600,) * 2)  # it is running for as long as tests may take
    shutil.copytree(root / "first", root / "damaged")
    (root / "damaged" / "result.json").write_text("{")  # why is a long sentence, which has to be broken
    server = uvicorn.Server(uvicorn.Config(served.make_app(root), port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(60)
    patched.undo()


@pytest.mark.parametrize("size", [PHONE, SCREEN], ids=["phone", "screen"])
def test_runs_live_page_report_and_comparison(reader, address, size):
    opened = reader(Address(f"{address}/"), width=size[0], height=size[1])
    page = opened.page
    assert page.locator("#runs tbody tr").count() == 4
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0] and "is damaged" in page.inner_text("#runs")
    for choice in ("first", "second"):
        page.get_by_label(f"compare {choice}").check()
    with page.expect_navigation():
        page.get_by_role("button").click()
    assert "Privacy audits compared" in page.inner_text("header")
    for name, selector in (("", "#runs"), ("run/running", "#latest"), ("run/first", "#verdict")):
        page.goto(f"{address}/{name}")
        assert page.locator(selector).is_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= size[0], name
    assert opened.complaints == []
    assert all(url.startswith(address) for url in opened.requests)

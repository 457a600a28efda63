"""The server: Starlette on loopback. GET only, names of hosts checked, nothing of other origins, one drawing at a time."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from coalmine.contracts import plain
from coalmine.errors import CoalmineError
from coalmine.report import digits, figures
from coalmine.report.compare import compare
from coalmine.report.evidence import read_rounds
from coalmine.report.page import element, environment, report
from coalmine.serve.listing import Listed, NoSuchRun, inside, latest, look, runs

HOSTS = ["127.0.0.1", "localhost"]  # a page of another name may not read this one, whatever its name points to
AGAIN = 3  # seconds after which a live page asks again
_MOST_COMPARED = 24
_drawing = threading.Lock()  # matplotlib's settings belong to the process

_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


def make_app(directory: str | Path) -> Starlette:
    """The pages of one folder."""
    root = Path(directory).resolve()

    def page(draw: Callable[[Request], str]) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            try:
                with _drawing:
                    return _html(draw(request))
            except NoSuchRun as error:
                return _html(_trouble(str(error).replace(f"{root}/", "")), 404)
            except (CoalmineError, OSError, ValueError, RecursionError) as error:
                return _html(_trouble(f"This run cannot be shown: {str(error).replace(f'{root}/', '')}"), 422)

        return answer

    def listed(request: Request) -> Response:
        found, more = runs(root)
        return JSONResponse({"runs": [_plain(each) for each in found], "more": more}, headers=_HEADERS)

    routes = [
        Route("/", page(lambda request: _index(root)), methods=["GET"]),
        Route("/runs.json", listed, methods=["GET"]),
        Route("/compare", page(lambda request: _compared(root, request.query_params.getlist("run"))), methods=["GET"]),
        Route("/run/{name:path}", page(lambda request: _run(root, request.path_params["name"])), methods=["GET"]),
    ]
    return Starlette(routes=routes, middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=HOSTS, www_redirect=False)])


def serve(directory: str | Path, port: int, ready: Callable[[str], None]) -> None:
    """Answer on this machine alone until Ctrl-C; `ready` is told the address."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((HOSTS[0], port))
        except OSError as error:
            raise ValueError(f"port {port} cannot be taken ({error.strerror}); --port 0 takes a free one.") from None
        listening.listen()
        config = uvicorn.Config(
            make_app(directory), log_level="warning", access_log=False, server_header=False, use_colors=False
        )
        ready(f"http://{HOSTS[0]}:{listening.getsockname()[1]}/")
        try:
            uvicorn.Server(config).run(sockets=[listening])
        except KeyboardInterrupt:
            return


def _html(text: str, status: int = 200) -> Response:
    return HTMLResponse(text, status, {**_HEADERS, "Content-Security-Policy": _POLICY})


def _index(root: Path) -> str:
    found, more = runs(root)
    again = AGAIN if any(each.state == "running" for each in found) else 0
    return _drawn("runs.html", title=root.name or str(root), runs=found, more=more, again=again)


def _run(root: Path, name: str) -> str:
    """The report of a finished run; else what it wrote so far."""
    path = inside(root, name)
    if (path / "result.json").is_file():
        return report(path)
    found = look(root, path)
    if found.state == "damaged":
        raise ValueError(found.about)
    rounds = read_rounds(path / "events.jsonl")
    plates: list[tuple[str, Any]] = []
    for title, draw in (("Epsilon so far", figures.epsilon_over_rounds), ("What the model learned", figures.training_curves)):
        try:
            plates.append((title, element(draw(rounds), f"live-{len(plates)}", title)))
        except figures.NothingToShow:
            continue
    again = AGAIN if found.state == "running" else 0
    return _drawn("live.html", title=name, run=found, rows=latest(rounds), plates=plates, again=again)


def _compared(root: Path, names: list[str]) -> str:
    if not 2 <= len(names) <= _MOST_COMPARED:
        raise ValueError(f"a comparison takes 2 to {_MOST_COMPARED} runs; {len(names)} were chosen.")
    return compare([inside(root, name) for name in names]).to_html()


def _trouble(text: str) -> str:
    return _drawn("trouble.html", title="Not shown", text=text, again=0)


def _drawn(template: str, **data: Any) -> str:
    return environment().get_template(template).render(quote=quote, digits=digits, **data)


def _plain(run: Listed) -> dict[str, Any]:
    numbers = run.result.in_numbers if run.result is not None else {}
    return {
        "name": run.name, "state": run.state, "verdict": run.word or None, "about": run.about, "rounds": run.rounds,
        "of": run.of, **{key: plain(numbers.get(key)) for key in ("claim", "lower_bound", "estimate")},
    }  # fmt: skip

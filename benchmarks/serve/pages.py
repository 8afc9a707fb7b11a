"""Every view of the service in a headless Chromium, over a database as large as asked.

    python -m benchmarks.serve.pages -o FILE --images docs/images

Measures how long each view takes until it can be used (its tables are there and its script has run) and until its plots
are drawn, filters, sorts and compares, and fails on anything that the browser complains of. Needs Chromium.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvicorn
from benchmarks.serve.fill import fill
from benchmarks.serve.running import free_port
from tests.e2e.chromium import Chromium
from tests.service import service_in

from opsmith.core.environment import cpu_name
from opsmith.core.run import write_atomically
from opsmith.serve.access import COOKIE
from opsmith.serve.store.tokens import Role

#: A view can be used after at most so many seconds.
MOST_S = 2.0


@contextlib.contextmanager
def served(folder: Path, verdict_count: int) -> Iterator[tuple[str, str, dict[str, int]]]:
    """A service over a filled database: its URL, a reader's token, and what is in it."""
    with service_in(folder) as running:
        places = fill(running.service.database, verdict_count)
        port = free_port()
        server = uvicorn.Server(uvicorn.Config(running.app, port=port, log_level="warning", lifespan="off",
                                               timeout_graceful_shutdown=1))  # fmt: skip
        thread = threading.Thread(target=server.run)
        thread.start()
        while not server.started:
            time.sleep(0.02)
        try:
            yield f"http://127.0.0.1:{port}", running.secrets[Role.READER], places
        finally:
            server.should_exit = True
            thread.join()


def views(places: dict[str, int]) -> dict[str, str]:
    """Name -> path of every view, as it is opened, filtered, sorted and compared."""
    run, other, kernel = places["largest"], places["other"], places["kernel"]
    return {
        "runs": "/",
        "runs filtered": "/?text=atlas",
        "run": f"/runs/{run}",
        "run sorted": f"/runs/{run}?sort=k",
        "run filtered": f"/runs/{run}?text=mm&outcome=PASSED&sort=task&up=true",
        "matrix": f"/runs/{run}/matrix",
        "matrix filtered": f"/runs/{run}/matrix?outcome=WRONG_VALUE",
        "leaderboard": "/leaderboard?suite=opinfo",
        "kernel": f"/kernels/{kernel}",
        "kernel that fails": f"/kernels/{places['failing']}",
        "kernel filtered": f"/kernels/{kernel}?status=PASSED&start=5000",
        "compare": f"/compare?before={other}&after={run}",
        "compare filtered": f"/compare?before={other}&after={run}&change=lost",
        "api": "/docs",
    }


def sign_in(browser: Chromium, url: str, secret: str) -> None:
    """As a person does: by typing the token."""
    browser.call("Page.navigate", url=f"{url}/runs/1")
    browser.wait_for("document.documentElement?.dataset.ready === 'tables' && location.pathname === '/login'")
    browser.evaluate(f"document.querySelector('input[name=token]').value = {json.dumps(secret)}")
    browser.evaluate("document.querySelector('.sign-in form').requestSubmit()")
    browser.wait_for("document.readyState === 'complete' && location.pathname === '/runs/1'")
    cookies = browser.call("Network.getCookies")["cookies"]
    assert [(cookie["name"], cookie["httpOnly"]) for cookie in cookies] == [(COOKIE, True)]


def open_view(browser: Chromium, address: str) -> tuple[float, float | None]:
    """Seconds until a view can be used, and until its plots are drawn; None where it has none."""
    browser.call("Page.navigate", url="about:blank")
    browser.wait_for("location.href === 'about:blank'")
    started = time.monotonic()
    browser.call("Page.navigate", url=address)
    browser.wait_for("document.documentElement?.dataset.ready && location.href !== 'about:blank'")
    usable_s = time.monotonic() - started
    if not browser.evaluate("document.getElementById('payload') !== null"):
        return usable_s, None
    browser.wait_for("document.documentElement.dataset.ready === 'plots'")
    return usable_s, time.monotonic() - started


def look(url: str, secret: str, places: dict[str, int], profile: Path, images: Path | None) -> dict[str, Any]:
    """Open every view; take pictures of some."""
    found: dict[str, Any] = {}
    with Chromium(profile) as browser:
        browser.show(width=1280)
        sign_in(browser, url, secret)
        for name, path in views(places).items():
            usable_s, drawn_s = open_view(browser, url + path)
            rows = browser.evaluate("document.querySelectorAll('tbody tr').length")
            found[name] = {"usable_s": round(usable_s, 2), "rows": rows}
            if name == "runs":
                browser.wait_for("document.documentElement.dataset.live === 'yes'")
            if drawn_s is not None:
                found[name]["drawn_s"] = round(drawn_s, 2)
        if images is not None:
            take_pictures(browser, url, places, images)
        problems = list(browser.problems)
        foreign = [each for each in browser.requests if not each.startswith((url, "data:", "blob:", "about:"))]
    return {"views": found, "problems": problems, "foreign_requests": foreign}


def take_pictures(browser: Chromium, url: str, places: dict[str, int], images: Path) -> None:
    """Of the views that show most; one of them in the dark, one on a phone."""
    paths = views(places)
    for name in ("runs", "leaderboard", "matrix", "kernel", "kernel that fails", "compare"):
        browser.show(width=1280, height={"kernel": 1250, "leaderboard": 1480}.get(name, 900), dark=name == "kernel")
        open_view(browser, url + paths[name])
        browser.screenshot(images / f"serve-{name.replace(' ', '-')}.png")
    browser.show(width=390, height=844)
    open_view(browser, url + paths["run"])
    browser.screenshot(images / "serve-phone.png")


def main() -> int:
    """Fill, look, and tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verdicts", type=int, default=100_000)
    parser.add_argument("--images", type=Path)
    parser.add_argument("-o", "--out", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="opsmith-pages-") as folder:
        place = Path(folder)
        with served(place, asked.verdicts) as (url, secret, places):
            found = look(url, secret, places, place / "profile", asked.images)
    slowest = max(view["usable_s"] for view in found["views"].values())
    found = {
        "verdicts": asked.verdicts,
        "slowest_s": slowest,
        **found,
        "cpu": cpu_name(),
        "cpu_count": len(os.sched_getaffinity(0)),
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
    }
    document = json.dumps(found, indent=2)
    print(document)
    if asked.out:
        write_atomically(asked.out, document.encode() + b"\n")
    return 0 if slowest <= MOST_S and not found["problems"] and not found["foreign_requests"] else 1


if __name__ == "__main__":
    sys.exit(main())

"""The application: routes, limits, and errors turned into answers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import opsmith
from opsmith.errors import BadInput, UnknownName
from opsmith.serve.access import Access, Reader
from opsmith.serve.api import reviews, runs, submissions, tokens
from opsmith.serve.api.common import Served, only_known_parameters, problems
from opsmith.serve.limits import LimitedBody
from opsmith.serve.metrics import Metrics
from opsmith.serve.pages import entry, kernel, review, views
from opsmith.serve.service import Service
from opsmith.serve.store.database import StoreAway, StoreDamaged
from opsmith.serve.store.submissions import KeyUsed, OtherRules, QuotaExceeded

#: After so many seconds a request that met a database that was away is worth another try.
RETRY_S = "1"

#: Headers of every answer that has no others of that name.
PRIVATE = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}

_ABOUT = """\
Kernels for PyTorch, judged. Every request needs a token: `Authorization: Bearer opsmith_...`. Readers follow
and fetch everything; submitters also submit kernels; reviewers also review them.
"""


def make_app(service: Service) -> FastAPI:
    """The application of a service, whose judging is started and ended by somebody else."""
    app = FastAPI(
        title="opsmith",
        version=opsmith.__version__,
        description=_ABOUT,
        docs_url=None,
        redoc_url=None,
    )
    app.state.service = service
    app.state.access = Access(service.database, service.limits)
    tagged = {"submit": submissions, "look": runs, "review": reviews, "tokens": tokens}
    for tag, routes in tagged.items():
        app.include_router(routes.router, tags=[tag], dependencies=[Depends(only_known_parameters)])
    for pages in (entry.router, views.router, kernel.router, review.router):
        app.include_router(pages)
    app.get("/metrics", response_class=PlainTextResponse, responses=problems(), tags=["operate"])(get_metrics)
    app.get("/healthz", responses={503: problems()[503]}, tags=["operate"])(get_health)
    app.add_middleware(LimitedBody, most_bytes=service.limits.request_bytes, most_s=service.limits.request_s)
    app.add_middleware(_Counted, metrics=service.metrics)
    app.add_middleware(_Private)
    for error, answer in _ANSWERS.items():
        app.add_exception_handler(error, answer)
    return app


def get_metrics(_token: Reader, service: Served) -> Response:
    """Figures in Prometheus' text format."""
    return PlainTextResponse(service.metrics.text(), media_type="text/plain; version=0.0.4")


def get_health(service: Served) -> dict[str, str]:
    """Whether the server and its database answer; needs no token."""
    with service.database.reading() as connection:
        connection.exec_driver_sql("SELECT 1")
    return {"status": "ok"}


class _Counted:
    """Counts requests by route."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.monotonic()

        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                path = getattr(scope.get("route"), "path", "other")  # Not what a client made up.
                self._metrics.answered(scope["method"], path, message["status"], time.monotonic() - started)
            await send(message)

        await self._app(scope, receive, noted)


class _Private:
    """Has no answer stored by whom it passes, unless it says so itself, nor taken for what it is not."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in PRIVATE.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, guarded)


def _answer(status: int, **headers: str) -> Callable[[Request, Exception], Response]:
    def answer(_request: Request, exc: Exception) -> Response:
        return JSONResponse(
            {"detail": str(exc)}, status, headers={name.replace("_", "-"): text for name, text in headers.items()}
        )

    return answer


def _malformed(_request: Request, exc: Exception) -> Response:
    """What is wrong with a request; what was sent is not repeated."""
    assert isinstance(exc, RequestValidationError)
    return _unprocessable([{name: error[name] for name in ("type", "loc", "msg")} for error in exc.errors()])


def _unprocessable(errors: list[dict[str, object]]) -> Response:
    # A client's text may hold half characters, which only their escapes can be sent as.
    return Response(json.dumps({"detail": errors}), 422, media_type="application/json")


def _failed(_request: Request, _exc: Exception) -> Response:
    """Our own mistake; what it was is in the log, and nothing of it in the answer."""
    return JSONResponse({"detail": "the server failed on this request; its log says how"}, 500, PRIVATE)


def _unknown(request: Request, exc: Exception) -> Response:
    """A name in a path is a thing that is not there; one in a body makes the request one that cannot be carried out."""
    detail = str(exc)
    if request.method in {"GET", "DELETE"}:
        return JSONResponse({"detail": detail}, 404)
    return _unprocessable([{"type": "unknown_name", "loc": ["body"], "msg": detail}])


#: The most specific first.
_ANSWERS: dict[type[Exception], Callable[[Request, Exception], Response]] = {
    StoreAway: _answer(503, Retry_After=RETRY_S),
    StoreDamaged: _answer(500),
    KeyUsed: _answer(409),
    OtherRules: _answer(409),
    QuotaExceeded: _answer(429, Retry_After="3600"),
    UnknownName: _unknown,
    BadInput: _answer(409),
    RequestValidationError: _malformed,
    # Nobody hears the answer, and nobody has to read of it.
    ClientDisconnect: _answer(400),
    Exception: _failed,
}

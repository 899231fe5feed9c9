"""The web application: routes, what they take and give, and where their answers are computed."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, Response
from fastapi.routing import APIRoute
from pydantic_core import from_json, to_json
from starlette.exceptions import HTTPException
from starlette.requests import Request

import everypair
from everypair.recommender import Recommender
from everypair.service import docs
from everypair.service import schemas as shapes
from everypair.service.batching import Batcher
from everypair.service.engine import Engine
from everypair.service.errors import Refused, invalid, not_json, told
from everypair.service.middleware import REASON, Guard
from everypair.service.model_slot import ModelSlot
from everypair.service.settings import Settings
from everypair.service.telemetry import Metrics
from everypair.service.worker import Reloaded

PAGE = Path(__file__).with_name("page")
KINDS = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
FILES = {path.name: KINDS[path.suffix] for path in PAGE.iterdir() if path.suffix in KINDS}
DESCRIPTION = "A recommender that was trained on every context-item pair. Scores are those of `Recommender.recommend`, bit for bit."
NO_RELOAD = "on an address that others reach, /reload takes a token: start the service with one."
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": shapes.ErrorAnswer, "description": text}
    for status, text in {
        400: "Not JSON", 401: "No token", 403: "From another site", 404: "Not known", 409: "Not with this model",
        413: "Too large", 415: "Not JSON by its type", 421: "Another name", 422: "Invalid: the fields say what", 429: "Busy",
        431: "Too large", 500: "Our fault", 503: "It took too long",
    }.items()
}  # fmt: skip

Reload = Callable[[], Awaitable[Reloaded]]
Gather = Callable[[Engine, dict[str, Any]], Awaitable[dict[str, Any]]]


def create_app(
    model: Recommender | str | os.PathLike[str] | ModelSlot, settings: Settings | None = None, reload: Reload | None = None
) -> Guard:
    """An ASGI application that serves a recommender; any ASGI server runs it, and ``everypair serve`` does so with several workers.

    Parameters
    ----------
    model : Recommender, or path of a saved one
    settings : Settings, optional
    reload : callable, optional
        What ``POST /reload`` does. By default the folder is opened anew, in this process.

    Examples
    --------
    >>> import everypair as ep
    >>> from everypair.service import create_app
    >>> recommender = ep.Recommender(ep.MF(factors=4)).fit(ep.datasets.youtube_like(50, 20, seed=0))
    >>> app = create_app(recommender)  # uvicorn.run(app)
    """
    settings = settings or Settings()
    if isinstance(model, ModelSlot):
        switch = model
    elif isinstance(model, Recommender):
        switch = ModelSlot(Engine(model, title=settings.title))
    else:
        switch = ModelSlot(Engine.open(model, title=settings.title), model, settings.title)
    metrics = Metrics()
    metrics.began()
    switch.watch = metrics.switched
    service = _Service(switch, settings, metrics, reload)
    return Guard(service.app, settings, metrics, service.paths, service.takers)


class StrictRequest(Request):
    """A body that is JSON as the standard has it: no NaN, no lone surrogates, nesting that ends."""

    async def json(self) -> Any:
        try:
            return from_json(await self.body(), allow_inf_nan=False)
        except ValueError as error:
            raise json.JSONDecodeError(str(error), "", 0) from error


class StrictRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Any]:
        handle = super().get_route_handler()

        async def strict(request: Request) -> Any:
            return await handle(StrictRequest(request.scope, request.receive))

        return strict


class _Service:
    """The routes of an application. Answers are computed in two threads: single ones do not wait for batches of a client's."""

    def __init__(self, switch: ModelSlot, settings: Settings, metrics: Metrics, reload: Reload | None) -> None:
        self._switch, self._settings, self._metrics = switch, settings, metrics
        self._reload = reload or partial(asyncio.to_thread, switch.reload)
        self._quick, self._heavy = (ThreadPoolExecutor(1, thread_name_prefix=f"everypair-{name}") for name in ("quick", "heavy"))
        self._gathering = Batcher(self._quick)
        self.app = FastAPI(
            title="EveryPair",
            version=everypair.__version__,
            description=DESCRIPTION,
            docs_url=None,
            redoc_url=None,
            responses=ERRORS,
            redirect_slashes=False,
        )
        self.app.router.route_class = StrictRoute
        self.takers: set[tuple[str, str]] = set()  # routes that take a body
        self._handle_errors()
        self._asked()
        self._looked_up()
        self._operated()
        self._shown()
        docs.add_to(self.app, settings.token is not None)
        self.paths = {getattr(route, "path", "") for route in self.app.routes}

    # asking

    def _asked(self) -> None:
        kinds = shapes.bodies(self._settings.limits)
        lists, batches = shapes.ListAnswer, shapes.BatchAnswer
        self._post("/recommend", kinds.recommend, lists, Engine.recommend, self._gathering.recommend)
        self._post("/recommend/batch", kinds.recommend_batch, batches, Engine.recommend_batch, self._heavy)
        self._post("/similar", kinds.similar, lists, Engine.similar)
        self._post("/similar/batch", kinds.similar_batch, batches, Engine.similar_batch, self._heavy)
        self._post("/explain", kinds.explain, shapes.ExplainAnswer, Engine.explain)
        self._post("/profile", kinds.user, shapes.ProfileAnswer, Engine.profile)
        self._post("/place", kinds.place, shapes.PlaceAnswer, Engine.place)

    def _post(
        self, path: str, body: Any, answer: Any, ask: Callable[..., dict[str, Any]], how: ThreadPoolExecutor | Gather | None = None
    ) -> None:
        """A route that asks the model something, with the fields of its body as arguments; ``how``: in which thread, or by what."""

        async def endpoint(body: Any) -> Response:
            asked = {name: getattr(body, name) for name in body.model_fields_set}
            if how is None or isinstance(how, ThreadPoolExecutor):
                return await self._answer(how or self._quick, lambda engine: ask(engine, **asked))
            return self._told(*_encoded(await how(self._switch.current, asked)))

        endpoint.__annotations__["body"] = body
        self.takers.add(("POST", path))
        self._route("POST", path, endpoint, ask.__name__, ask.__doc__, answer)

    def _looked_up(self) -> None:
        longest = self._settings.limits.text
        text = Annotated[str, Query(max_length=longest, description="Part of it, in any case; nothing for the most popular.")]
        limit = Annotated[int, Query(ge=1, le=100)]

        def search(path: str, answer: Any, find: Callable[[Engine, str, int], dict[str, Any]]) -> None:
            async def endpoint(query: str = "", limit: int = 20) -> Response:
                return await self._answer(self._quick, lambda engine: find(engine, query, limit))

            endpoint.__annotations__ |= {"query": text, "limit": limit}
            self._route("GET", path, endpoint, find.__name__, find.__doc__, answer)

        search("/items", shapes.ItemsAnswer, Engine.items)
        search("/users", shapes.UsersAnswer, Engine.users)

        async def model() -> Response:
            return await self._answer(self._heavy, lambda engine: engine.model)

        async def map_(by: str = "") -> Response:
            return await self._answer(self._heavy, lambda engine: engine.map(by))

        map_.__annotations__["by"] = Annotated[
            str, Query(max_length=longest, description="An attribute of items: the plane in which its values lie farthest apart.")
        ]

        self._route("GET", "/model", model, "model", "Settings, training, figures, and what a request may say.", shapes.ModelAnswer)
        self._route("GET", "/map", map_, "map", Engine.map.__doc__, shapes.MapAnswer)

    def _operated(self) -> None:
        async def health() -> Response:
            return self._json({"status": "ok", "model": self._switch.current.version})

        async def metrics() -> Response:
            return Response(await asyncio.to_thread(self._metrics.text), media_type="text/plain; version=0.0.4; charset=utf-8")

        async def reload() -> Response:
            if not self._settings.reloadable:
                raise Refused(403, NO_RELOAD)
            version, changed, refusal = await self._reload()
            if refusal is not None:
                raise Refused(409, f"the model in the folder was refused, and {version} still answers: {refusal}")
            return self._json({"model": version, "changed": changed})

        self._route("GET", "/health", health, "health", "Whether it answers, and by which model.", shapes.HealthAnswer)
        self._route("GET", "/metrics", metrics, "metrics", "Counts and times, as Prometheus reads them.", None)
        self._route("POST", "/reload", reload, "reload", "Answer with the model that is in the folder now.", shapes.ReloadAnswer)

    def _route(self, method: str, path: str, endpoint: Any, name: str, words: str | None, answer: Any) -> None:
        options: dict[str, Any] = {"response_model": answer} if answer else {"response_class": Response}
        self.app.add_api_route(
            path, endpoint, methods=[method], name=name, summary=name.replace("_", " "), description=words, **options
        )  # fmt: skip

    # the page

    def _shown(self) -> None:
        async def page() -> Response:
            return FileResponse(PAGE / "index.html", media_type="text/html")

        async def file(name: str) -> Response:
            if name not in FILES:
                raise Refused(404, "there is no such file.")
            return FileResponse(PAGE / name, media_type=FILES[name])

        self.app.add_api_route("/", page, methods=["GET"], include_in_schema=False)
        self.app.add_api_route("/page/{name}", file, methods=["GET"], include_in_schema=False)

    # answers

    async def _answer(self, lane: ThreadPoolExecutor, ask: Callable[[Engine], dict[str, Any]]) -> Response:
        """By the model in use now, computed in a thread; it is named in the answer, whatever takes its place meanwhile."""
        engine = self._switch.current
        return self._told(*await asyncio.get_running_loop().run_in_executor(lane, lambda: _encoded(ask(engine))))

    def _told(self, answer: dict[str, Any], content: bytes) -> Response:
        self._metrics.unknown(answer.get("unknown") or {})
        return Response(content, headers={"x-model-version": answer["model"]}, media_type="application/json")

    def _json(self, answer: dict[str, Any], status: int = 200) -> Response:
        headers = {"x-model-version": answer.get("model", self._switch.current.version)}
        return Response(_encoded(answer)[1], status, headers, "application/json")

    def _handle_errors(self) -> None:
        async def refused(request: Request, error: Any) -> Response:
            request.scope[REASON] = str(error)
            return self._json(told(error.status, str(error), error.fields), error.status)

        async def misshapen(request: Request, error: Any) -> Response:
            malformed = not_json(error.errors())
            answer = malformed or invalid(error.errors())
            request.scope[REASON] = answer["error"]["message"]
            return self._json(answer, 400 if malformed else 422)

        async def failed(request: Request, error: Exception) -> Response:
            return self._json(told(500, f"something went wrong here; the log has it under {request.scope['id']}."), 500)

        async def http(request: Request, error: Any) -> Response:
            reasons = {
                404: f"there is no {request.url.path[:200]!r}. /docs has what there is.",
                405: "use another method: /docs has it.",
            }
            answer = self._json(told(error.status_code, reasons.get(error.status_code, str(error.detail))), error.status_code)
            answer.headers.update(error.headers or {})
            return answer

        self.app.add_exception_handler(Refused, refused)
        self.app.add_exception_handler(RequestValidationError, misshapen)
        self.app.add_exception_handler(HTTPException, http)
        self.app.add_exception_handler(Exception, failed)


def _encoded(answer: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """An answer, and as JSON: null for what is no number."""
    return answer, to_json(answer, inf_nan_mode="null")

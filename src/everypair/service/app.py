"""The web application: its routes, and the threads that compute their responses."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable, Sequence
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
from everypair.service import schemas
from everypair.service.access import Scope
from everypair.service.batching import Batcher
from everypair.service.description import ABOUT, DATA, ERROR_RESPONSES, OPERATION, RECOMMENDATIONS, TAGS, describe
from everypair.service.docs import add_docs
from everypair.service.errors import RequestError, error_body, malformed_json_body, validation_error_body
from everypair.service.examples import Examples, examples
from everypair.service.messages import ReloadResult
from everypair.service.middleware import REASON_KEY, SCOPE_KEY, ServiceMiddleware
from everypair.service.model_slot import ModelSlot
from everypair.service.readiness import Readiness
from everypair.service.routes import RouteTable
from everypair.service.served_model import ServedModel
from everypair.service.settings import Settings
from everypair.service.telemetry import Metrics

PAGE = Path(__file__).with_name("page")
MEDIA_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
PAGE_FILES = {path.name: MEDIA_TYPES[path.suffix] for path in PAGE.iterdir() if path.suffix in MEDIA_TYPES}
RELOAD_NEEDS_TOKEN = "other machines can reach this service, so /v1/reload needs a token: start the service with one."
QUICK, HEAVY = "quick", "heavy"  # single requests, and batches

Reload = Callable[[], Awaitable[ReloadResult]]
Encoded = tuple[dict[str, Any], bytes]  # a response body, and the same as JSON
Compute = Callable[[ServedModel, dict[str, Any]], Awaitable[Encoded]]  # from the fields of a request's body


def create_app(
    model: Recommender | str | os.PathLike[str], settings: Settings | None = None, reload: Reload | None = None
) -> ServiceMiddleware:
    """Create an ASGI application that serves a recommender, for any ASGI server. ``everypair serve`` runs it in several workers.

    Parameters
    ----------
    model : Recommender, or path of a saved one
    settings : Settings, optional
    reload : callable, optional
        What ``POST /reload`` calls. By default the model is opened again from its folder, in this process.

    Examples
    --------
    >>> import everypair as ep
    >>> from everypair.service import create_app
    >>> recommender = ep.Recommender(ep.MF(factors=4)).fit(ep.datasets.youtube_like(50, 20, seed=0))
    >>> app = create_app(recommender)  # uvicorn.run(app)
    """
    settings = settings or Settings()
    if isinstance(model, Recommender):
        slot = ModelSlot(ServedModel(model, title=settings.title))
    else:
        slot = ModelSlot(ServedModel.open(model, title=settings.title), model, settings.title)
    return build_app(slot, settings, reload)


def build_app(
    slot: ModelSlot, settings: Settings, reload: Reload | None = None, readiness: Readiness | None = None
) -> ServiceMiddleware:
    """The application around a slot, whose model may be switched while it runs."""
    metrics = Metrics()
    metrics.model_loaded(slot.current.version)
    slot.on_switch = lambda: metrics.model_switched(slot.current.version)
    readiness = readiness or Readiness()
    routes = _Routes(slot, settings, metrics, reload, readiness)
    return ServiceMiddleware(routes.app, settings, metrics, routes.table, readiness)


class StrictRequest(Request):
    """A request whose body must be JSON by the standard: no NaN, no lone surrogates, limited nesting."""

    async def json(self) -> Any:
        try:
            return from_json(await self.body(), allow_inf_nan=False)
        except ValueError as error:
            raise json.JSONDecodeError(str(error), "", 0) from error


class StrictRoute(APIRoute):
    """A route that parses bodies by :class:`StrictRequest`."""

    def get_route_handler(self) -> Callable[[Request], Any]:
        handle = super().get_route_handler()

        async def handle_strictly(request: Request) -> Any:
            return await handle(StrictRequest(request.scope, request.receive))

        return handle_strictly


class _Routes:
    """The routes of an application.

    Responses are computed in two threads, so that single requests do not wait for batches.

    Attributes
    ----------
    app : FastAPI
    table : RouteTable
        What the middleware needs to know of the routes.
    """

    def __init__(self, slot: ModelSlot, settings: Settings, metrics: Metrics, reload: Reload | None, readiness: Readiness) -> None:
        self._slot, self._settings, self._metrics, self._readiness = slot, settings, metrics, readiness
        self._reload = reload or partial(asyncio.to_thread, self._reload_here)
        self._threads = {name: ThreadPoolExecutor(1, thread_name_prefix=f"everypair-{name}") for name in (QUICK, HEAVY)}
        self._batcher = Batcher(self._threads[QUICK], metrics, QUICK)
        self._examples: tuple[str, Examples] | None = None  # of the model with this version
        self.app = FastAPI(
            title="EveryPair",
            version=everypair.__version__,
            description=ABOUT,
            openapi_url=None,
            docs_url=None,
            redoc_url=None,
            openapi_tags=TAGS,
            responses=ERROR_RESPONSES,
            redirect_slashes=False,
        )
        self.app.router.route_class = StrictRoute
        self.table = RouteTable()
        self._add_error_handlers()
        self._add_model_routes()
        self._add_search_routes()
        self._add_description_routes()
        self._add_operation_routes()
        if settings.page:
            self._add_page()
        self._add_file("/openapi.json", self._openapi)
        add_docs(self._add_file)

    # routes

    def _add_model_routes(self) -> None:
        requests = schemas.request_schemas(self._settings.limits)
        lists, batches, ranked = schemas.ListResponse, schemas.BatchResponse, schemas.RecommendBatchResponse
        self._add_post(
            "/v1/recommend", requests.recommend, schemas.RecommendResponse, ServedModel.recommend, self._compute_batched,
            RECOMMENDATIONS,
        )  # fmt: skip
        for path, body, response, method, thread, tag in (
            ("/v1/recommend/batch", requests.recommend_batch, ranked, ServedModel.recommend_batch, HEAVY, RECOMMENDATIONS),
            ("/v1/similar", requests.similar, lists, ServedModel.similar, QUICK, RECOMMENDATIONS),
            ("/v1/similar/batch", requests.similar_batch, batches, ServedModel.similar_batch, HEAVY, RECOMMENDATIONS),
            ("/v1/explain", requests.explain, schemas.ExplainResponse, ServedModel.explain, QUICK, RECOMMENDATIONS),
            ("/v1/profile", requests.user, schemas.ProfileResponse, ServedModel.profile, QUICK, DATA),
            ("/v1/place", requests.place, schemas.PlaceResponse, ServedModel.place, QUICK, DATA),
        ):
            if self._settings.users or path != "/v1/profile":
                self._add_post(path, body, response, method, partial(self._compute, thread, method), tag)

    def _add_post(self, path: str, body: Any, response: Any, method: Callable[..., Any], compute: Compute, tag: str) -> None:
        """A route that calls a method of the model in use with the fields of the body as arguments."""

        async def endpoint(body: Any) -> Response:
            fields = {name: getattr(body, name) for name in body.model_fields_set}
            return self._response(*await compute(self._slot.current, fields))

        endpoint.__annotations__["body"] = body
        self._add_route("POST", path, endpoint, method.__name__, method.__doc__, response, tag, takes_body=True)

    def _add_search_routes(self) -> None:
        words = "A part of the id or title, in any case; empty for the most popular."
        text = Annotated[str, Query(max_length=self._settings.limits.text, description=words)]
        limit = Annotated[int, Query(ge=1, le=100)]

        def add(path: str, response: Any, method: Callable[[ServedModel, str, int], dict[str, Any]]) -> None:
            async def endpoint(query: str = "", limit: int = 20) -> Response:
                return await self._get(QUICK, method, query=query, limit=limit)

            endpoint.__annotations__ |= {"query": text, "limit": limit}
            self._add_route("GET", path, endpoint, method.__name__, method.__doc__, response, DATA)

        add("/v1/items", schemas.ItemsResponse, ServedModel.items)
        if self._settings.users:
            add("/v1/users", schemas.UsersResponse, ServedModel.users)

    def _add_description_routes(self) -> None:
        async def model() -> Response:
            return await self._get(HEAVY, lambda served: {**served.card, "users": self._settings.users})

        async def item_map(by: str = "") -> Response:
            return await self._get(HEAVY, ServedModel.map, by=by)

        words = "An attribute of items: choose the plane in which its values lie farthest apart."
        item_map.__annotations__["by"] = Annotated[str, Query(max_length=self._settings.limits.text, description=words)]
        words = "Settings, training, evaluation, and the attributes that a request may have."
        self._add_route("GET", "/v1/model", model, "model", words, schemas.ModelResponse, DATA)
        self._add_route("GET", "/v1/map", item_map, "map", ServedModel.map.__doc__, schemas.MapResponse, DATA)

    def _add_operation_routes(self) -> None:
        async def live() -> Response:
            return self._json_response({"status": "live"})

        async def ready() -> Response:
            if self._readiness.reason is not None:
                raise RequestError(503, self._readiness.reason, code="not_ready")
            return self._json_response({"status": "ready", "model": self._slot.current.version})

        async def health() -> Response:
            return self._json_response({"status": "ok", "model": self._slot.current.version})

        async def metrics() -> Response:
            return Response(await asyncio.to_thread(self._metrics.render), media_type="text/plain; version=0.0.4; charset=utf-8")

        async def reload() -> Response:
            if not self._settings.reloadable:
                raise RequestError(403, RELOAD_NEEDS_TOKEN)
            version, changed, refusal = await self._reload()
            if refusal is not None:
                raise RequestError(409, f"the model in the folder was refused, and {version} still answers: {refusal}")
            return self._json_response({"model": version, "changed": changed})

        for method, path, endpoint, words, response in (
            ("GET", "/live", live, "Whether the process answers.", schemas.LiveResponse),
            ("GET", "/ready", ready, "Whether requests should be sent here: 503 with the reason if not.", schemas.ReadyResponse),
            ("GET", "/health", health, "The state of the service and the version of its model.", schemas.HealthResponse),
            ("GET", "/metrics", metrics, "Metrics in Prometheus' text format.", None),
            ("POST", "/v1/reload", reload, "Switch to the model that is in the folder now.", schemas.ReloadResponse),
        ):
            self._add_route(method, path, endpoint, endpoint.__name__, words, response, OPERATION)

    def _add_route(
        self, method: str, path: str, endpoint: Any, name: str, words: str | None, response: Any, tag: str, takes_body: bool = False
    ) -> None:
        options: dict[str, Any] = {"response_model": response} if response else {"response_class": Response}
        summary = (words or name).partition("\n")[0].rstrip(".")
        self.app.add_api_route(
            path, endpoint, methods=[method], name=name, operation_id=name, summary=summary, description="", tags=[tag], **options
        )
        self.table.add(method, path, takes_body)

    def _add_page(self) -> None:
        async def page() -> Response:
            return FileResponse(PAGE / "index.html", media_type="text/html")

        async def file(name: str) -> Response:
            if name not in PAGE_FILES:
                raise RequestError(404, f"there is no file {name[:100]!r}.")
            return FileResponse(PAGE / name, media_type=PAGE_FILES[name])

        self._add_file("/", page)
        self._add_file("/page/{name}", file, list(PAGE_FILES))

    def _add_file(self, path: str, endpoint: Any, names: Sequence[str] = ()) -> None:
        """A route that is not described, with the values that ``{name}`` in its path may have."""
        self.app.add_api_route(path, endpoint, methods=["GET"], include_in_schema=False)
        for each in [path.replace("{name}", name) for name in names] or [path]:
            self.table.add("GET", each)

    async def _openapi(self, request: Request) -> Response:
        """The description; its examples have ids of the data, which only those may see who may ask for them."""
        served, found = self._slot.current, None
        if request.scope[SCOPE_KEY] is Scope.EVERYTHING:
            if self._examples is None or self._examples[0] != served.version:
                loop, arguments = asyncio.get_running_loop(), (served, self._settings.limits, self._settings.users)
                self._examples = served.version, await loop.run_in_executor(self._threads[HEAVY], examples, *arguments)
            found = self._examples[1]
        return Response(to_json(describe(self.app.openapi(), self._settings, found)), media_type="application/json")

    # responses

    async def _get(self, thread: str, method: Callable[..., dict[str, Any]], **arguments: Any) -> Response:
        return self._response(*await self._compute(thread, method, self._slot.current, arguments))

    async def _compute(
        self, thread: str, method: Callable[..., dict[str, Any]], served: ServedModel, arguments: dict[str, Any]
    ) -> Encoded:
        """Call a method of a model, and encode its result, in a thread."""
        since = time.perf_counter()

        def compute() -> Encoded:
            self._metrics.observe_queue(thread, time.perf_counter() - since)
            return _encode(method(served, **arguments))

        return await asyncio.get_running_loop().run_in_executor(self._threads[thread], compute)

    def _reload_here(self) -> ReloadResult:
        """Reload in this process, without a supervisor."""
        result = self._slot.reload()
        if result.refusal is not None:
            self._metrics.count_refused_reload()
        return result

    async def _compute_batched(self, served: ServedModel, fields: dict[str, Any]) -> Encoded:
        return _encode(await self._batcher.recommend(served, fields))

    def _response(self, body: dict[str, Any], content: bytes) -> Response:
        self._metrics.count_unknown(body.get("unknown") or {})
        return Response(content, headers={"x-model-version": body["model"]}, media_type="application/json")

    def _json_response(self, body: dict[str, Any], status: int = 200) -> Response:
        headers = {"x-model-version": body.get("model", self._slot.current.version)}
        return Response(_encode(body)[1], status, headers, "application/json")

    def _add_error_handlers(self) -> None:
        async def request_error(request: Request, error: Any) -> Response:
            request.scope[REASON_KEY] = str(error)
            return self._json_response(error_body(error.status, str(error), error.fields, error.code), error.status)

        async def validation_error(request: Request, error: Any) -> Response:
            malformed = malformed_json_body(error.errors())
            body = malformed or validation_error_body(error.errors())
            request.scope[REASON_KEY] = body["error"]["message"]
            return self._json_response(body, 400 if malformed else 422)

        async def internal_error(request: Request, error: Exception) -> Response:
            message = f"internal error; the log has the details under the id {request.scope['id']}."
            return self._json_response(error_body(500, message), 500)

        async def http_error(request: Request, error: Any) -> Response:
            messages = {
                404: f"there is no {request.url.path[:200]!r}. /docs lists the routes.",
                405: f"{request.method} is not supported here. /docs lists the routes and their methods.",
            }
            message = messages.get(error.status_code, str(error.detail))
            response = self._json_response(error_body(error.status_code, message), error.status_code)
            response.headers.update(error.headers or {})
            if response.headers.get("allow") == "GET":
                response.headers["allow"] = "GET, HEAD"
            return response

        self.app.add_exception_handler(RequestError, request_error)
        self.app.add_exception_handler(RequestValidationError, validation_error)
        self.app.add_exception_handler(HTTPException, http_error)
        self.app.add_exception_handler(Exception, internal_error)


def _encode(body: dict[str, Any]) -> Encoded:
    """A body and its JSON, with null for NaN and infinities."""
    return body, to_json(body, inf_nan_mode="null")

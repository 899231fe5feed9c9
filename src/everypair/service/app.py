"""The web application: its routes, and the threads that compute their responses."""

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
from everypair.service import schemas
from everypair.service.batching import Batcher
from everypair.service.docs import add_docs
from everypair.service.engine import ServiceEngine
from everypair.service.errors import RequestError, error_body, malformed_json_body, validation_error_body
from everypair.service.messages import ReloadResult
from everypair.service.middleware import REASON_KEY, ServiceMiddleware
from everypair.service.model_slot import ModelSlot
from everypair.service.settings import Settings
from everypair.service.telemetry import Metrics

PAGE = Path(__file__).with_name("page")
MEDIA_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
PAGE_FILES = {path.name: MEDIA_TYPES[path.suffix] for path in PAGE.iterdir() if path.suffix in MEDIA_TYPES}
DESCRIPTION = "A recommender that was trained on every context-item pair. Scores are those of `Recommender.recommend`, bit for bit."
RELOAD_NEEDS_TOKEN = "other machines can reach this service, so /reload needs a token: start the service with one."
ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.ErrorResponse, "description": description}
    for status, description in {
        400: "The body is not JSON",
        401: "No token, or a wrong one",
        403: "From a page of another site, or a reload without a token",
        404: "Unknown id or path",
        409: "Not possible with this model",
        413: "Body too large",
        415: "Content-Type is not application/json",
        421: "Host not allowed",
        422: "Invalid fields",
        429: "Too many requests at a time",
        431: "Headers too large",
        500: "Internal error",
        503: "The request took too long",
    }.items()
}

Reload = Callable[[], Awaitable[ReloadResult]]
Encoded = tuple[dict[str, Any], bytes]  # a response body, and the same as JSON
Compute = Callable[[ServiceEngine, dict[str, Any]], Awaitable[Encoded]]  # from the fields of a request's body


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
        slot = ModelSlot(ServiceEngine(model, title=settings.title))
    else:
        slot = ModelSlot(ServiceEngine.open(model, title=settings.title), model, settings.title)
    return build_app(slot, settings, reload)


def build_app(slot: ModelSlot, settings: Settings, reload: Reload | None = None) -> ServiceMiddleware:
    """The application around a slot, whose model may be switched while it runs."""
    metrics = Metrics()
    metrics.model_loaded()
    slot.on_switch = metrics.model_switched
    routes = _Routes(slot, settings, metrics, reload)
    return ServiceMiddleware(routes.app, settings, metrics, routes.paths, routes.with_body)


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
    paths : set of str
    with_body : set of (method, path)
        Routes that take a body.
    """

    def __init__(self, slot: ModelSlot, settings: Settings, metrics: Metrics, reload: Reload | None) -> None:
        self._slot, self._settings, self._metrics = slot, settings, metrics
        self._reload = reload or partial(asyncio.to_thread, slot.reload)
        self._quick, self._heavy = (ThreadPoolExecutor(1, thread_name_prefix=f"everypair-{name}") for name in ("quick", "heavy"))
        self._batcher = Batcher(self._quick)
        self.app = FastAPI(
            title="EveryPair",
            version=everypair.__version__,
            description=DESCRIPTION,
            docs_url=None,
            redoc_url=None,
            responses=ERROR_RESPONSES,
            redirect_slashes=False,
        )
        self.app.router.route_class = StrictRoute
        self.with_body: set[tuple[str, str]] = set()
        self._add_error_handlers()
        self._add_model_routes()
        self._add_search_routes()
        self._add_description_routes()
        self._add_operation_routes()
        self._add_page()
        add_docs(self.app, settings.token is not None)
        self.paths = {getattr(route, "path", "") for route in self.app.routes}

    # routes

    def _add_model_routes(self) -> None:
        requests, quick, heavy = schemas.request_schemas(self._settings.limits), self._quick, self._heavy
        lists, batches, ranked = schemas.ListResponse, schemas.BatchResponse, schemas.RecommendBatchResponse
        self._add_post("/recommend", requests.recommend, schemas.RecommendResponse, ServiceEngine.recommend, self._compute_batched)
        for path, body, response, method, executor in (
            ("/recommend/batch", requests.recommend_batch, ranked, ServiceEngine.recommend_batch, heavy),
            ("/similar", requests.similar, lists, ServiceEngine.similar, quick),
            ("/similar/batch", requests.similar_batch, batches, ServiceEngine.similar_batch, heavy),
            ("/explain", requests.explain, schemas.ExplainResponse, ServiceEngine.explain, quick),
            ("/profile", requests.user, schemas.ProfileResponse, ServiceEngine.profile, quick),
            ("/place", requests.place, schemas.PlaceResponse, ServiceEngine.place, quick),
        ):
            self._add_post(path, body, response, method, partial(self._compute, executor, method))

    def _add_post(self, path: str, body: Any, response: Any, method: Callable[..., Any], compute: Compute) -> None:
        """A route that calls a method of the engine with the fields of the body as arguments."""

        async def endpoint(body: Any) -> Response:
            fields = {name: getattr(body, name) for name in body.model_fields_set}
            return self._response(*await compute(self._slot.current, fields))

        endpoint.__annotations__["body"] = body
        self.with_body.add(("POST", path))
        self._add_route("POST", path, endpoint, method.__name__, method.__doc__, response)

    def _add_search_routes(self) -> None:
        words = "A part of the id or title, in any case; empty for the most popular."
        text = Annotated[str, Query(max_length=self._settings.limits.text, description=words)]
        limit = Annotated[int, Query(ge=1, le=100)]

        def add(path: str, response: Any, method: Callable[[ServiceEngine, str, int], dict[str, Any]]) -> None:
            async def endpoint(query: str = "", limit: int = 20) -> Response:
                return await self._get(self._quick, method, query=query, limit=limit)

            endpoint.__annotations__ |= {"query": text, "limit": limit}
            self._add_route("GET", path, endpoint, method.__name__, method.__doc__, response)

        add("/items", schemas.ItemsResponse, ServiceEngine.items)
        add("/users", schemas.UsersResponse, ServiceEngine.users)

    def _add_description_routes(self) -> None:
        async def model() -> Response:
            return await self._get(self._heavy, lambda engine: engine.model)

        async def item_map(by: str = "") -> Response:
            return await self._get(self._heavy, ServiceEngine.map, by=by)

        words = "An attribute of items: choose the plane in which its values lie farthest apart."
        item_map.__annotations__["by"] = Annotated[str, Query(max_length=self._settings.limits.text, description=words)]
        words = "Settings, training, evaluation, and the attributes that a request may have."
        self._add_route("GET", "/model", model, "model", words, schemas.ModelResponse)
        self._add_route("GET", "/map", item_map, "map", ServiceEngine.map.__doc__, schemas.MapResponse)

    def _add_operation_routes(self) -> None:
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
            ("GET", "/health", health, "The state of the service and the version of its model.", schemas.HealthResponse),
            ("GET", "/metrics", metrics, "Metrics in Prometheus' text format.", None),
            ("POST", "/reload", reload, "Switch to the model that is in the folder now.", schemas.ReloadResponse),
        ):
            self._add_route(method, path, endpoint, endpoint.__name__, words, response)

    def _add_route(self, method: str, path: str, endpoint: Any, name: str, description: str | None, response: Any) -> None:
        options: dict[str, Any] = {"response_model": response} if response else {"response_class": Response}
        self.app.add_api_route(
            path, endpoint, methods=[method], name=name, summary=name.replace("_", " "), description=description, **options
        )  # fmt: skip

    def _add_page(self) -> None:
        async def page() -> Response:
            return FileResponse(PAGE / "index.html", media_type="text/html")

        async def file(name: str) -> Response:
            if name not in PAGE_FILES:
                raise RequestError(404, f"there is no file {name[:100]!r}.")
            return FileResponse(PAGE / name, media_type=PAGE_FILES[name])

        self.app.add_api_route("/", page, methods=["GET"], include_in_schema=False)
        self.app.add_api_route("/page/{name}", file, methods=["GET"], include_in_schema=False)

    # responses

    async def _get(self, executor: ThreadPoolExecutor, method: Callable[..., dict[str, Any]], **arguments: Any) -> Response:
        return self._response(*await self._compute(executor, method, self._slot.current, arguments))

    @staticmethod
    async def _compute(
        executor: ThreadPoolExecutor, method: Callable[..., dict[str, Any]], engine: ServiceEngine, arguments: dict[str, Any]
    ) -> Encoded:
        """Call a method of the engine, and encode its result, in a thread."""
        return await asyncio.get_running_loop().run_in_executor(executor, lambda: _encode(method(engine, **arguments)))

    async def _compute_batched(self, engine: ServiceEngine, fields: dict[str, Any]) -> Encoded:
        return _encode(await self._batcher.recommend(engine, fields))

    def _response(self, body: dict[str, Any], content: bytes) -> Response:
        self._metrics.count_unknown(body.get("unknown") or {})
        return Response(content, headers={"x-model-version": body["model"]}, media_type="application/json")

    def _json_response(self, body: dict[str, Any], status: int = 200) -> Response:
        headers = {"x-model-version": body.get("model", self._slot.current.version)}
        return Response(_encode(body)[1], status, headers, "application/json")

    def _add_error_handlers(self) -> None:
        async def request_error(request: Request, error: Any) -> Response:
            request.scope[REASON_KEY] = str(error)
            return self._json_response(error_body(error.status, str(error), error.fields), error.status)

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
            return response

        self.app.add_exception_handler(RequestError, request_error)
        self.app.add_exception_handler(RequestValidationError, validation_error)
        self.app.add_exception_handler(HTTPException, http_error)
        self.app.add_exception_handler(Exception, internal_error)


def _encode(body: dict[str, Any]) -> Encoded:
    """A body and its JSON, with null for NaN and infinities."""
    return body, to_json(body, inf_nan_mode="null")

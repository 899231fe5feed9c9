"""``/docs``: the OpenAPI description in Swagger UI, served without any file from another site."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fastapi_offline
from fastapi import FastAPI
from fastapi.responses import FileResponse, HTMLResponse, Response

from everypair.service.errors import RequestError
from everypair.service.middleware import CONTENT_SECURITY_POLICY

ASSETS = Path(fastapi_offline.__file__).with_name("static")  # Swagger UI
FILES = {"swagger-ui-bundle.js": "text/javascript", "swagger-ui.css": "text/css"}
INLINE_STYLES = CONTENT_SECURITY_POLICY.replace("style-src 'self'", "style-src 'self' 'unsafe-inline'")  # Swagger UI has some
START = 'window.onload = () => SwaggerUIBundle({url: "openapi.json", dom_id: "#docs", deepLinking: false, validatorUrl: null});\n'
HTML = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>EveryPair: the service</title>
<link rel="icon" href="page/icon.svg">
<link rel="stylesheet" href="docs/swagger-ui.css">
</head>
<body>
<div id="docs"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</body>
</html>
"""


def add_docs(app: FastAPI, needs_token: bool) -> None:
    """Add ``/docs`` and its files; with ``needs_token``, declare the bearer token in the OpenAPI description."""

    async def page() -> Response:
        return HTMLResponse(HTML, headers={"content-security-policy": INLINE_STYLES})

    async def file(name: str) -> Response:
        if name == "start.js":
            return Response(START, media_type="text/javascript")
        if name not in FILES:
            raise RequestError(404, f"there is no file {name[:100]!r}.")
        return FileResponse(ASSETS / name, media_type=FILES[name])

    app.add_api_route("/docs", page, methods=["GET"], include_in_schema=False)
    app.add_api_route("/docs/{name}", file, methods=["GET"], include_in_schema=False)
    if needs_token:
        openapi = app.openapi

        def openapi_with_token() -> dict[str, Any]:
            description = openapi()
            description.setdefault("components", {})["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            description["security"] = [{"token": []}]
            return description

        app.openapi = openapi_with_token  # type: ignore[method-assign]

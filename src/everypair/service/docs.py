"""``/docs``: the description of the service, to be read and tried, without anything from elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fastapi_offline
from fastapi import FastAPI
from fastapi.responses import FileResponse, HTMLResponse, Response

from everypair.service.errors import Refused
from everypair.service.middleware import CONTENT

ASSETS = Path(fastapi_offline.__file__).with_name("static")  # Swagger UI
FILES = {"swagger-ui-bundle.js": "text/javascript", "swagger-ui.css": "text/css"}
STYLED = {"content-security-policy": CONTENT.replace("style-src 'self'", "style-src 'self' 'unsafe-inline'")}
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


def add_to(app: FastAPI, token: bool) -> None:
    """The page, its files, and the description itself, which says whether a token is needed."""

    async def page() -> Response:
        return HTMLResponse(HTML, headers=STYLED)

    async def file(name: str) -> Response:
        if name == "start.js":
            return Response(START, media_type="text/javascript")
        if name not in FILES:
            raise Refused(404, "there is no such file.")
        return FileResponse(ASSETS / name, media_type=FILES[name])

    app.add_api_route("/docs", page, methods=["GET"], include_in_schema=False)
    app.add_api_route("/docs/{name}", file, methods=["GET"], include_in_schema=False)
    if token:
        described = app.openapi

        def with_token() -> dict[str, Any]:
            description = described()
            description.setdefault("components", {})["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            description["security"] = [{"token": []}]
            return description

        app.openapi = with_token  # type: ignore[method-assign]

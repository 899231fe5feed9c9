"""``/docs``: the OpenAPI description in Swagger UI, served without any file from another site."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastapi_offline
from fastapi.responses import FileResponse, HTMLResponse, Response

from everypair.service.errors import RequestError
from everypair.service.tracked_request import CONTENT_SECURITY_POLICY

ASSETS = Path(fastapi_offline.__file__).with_name("static")  # Swagger UI
FILES = {
    "swagger-ui-bundle.js": (ASSETS, "text/javascript"), "swagger-ui.css": (ASSETS, "text/css"),
    "icon.svg": (Path(__file__).with_name("page"), "image/svg+xml"),
}  # fmt: skip
INLINE_STYLES = CONTENT_SECURITY_POLICY.replace("style-src 'self'", "style-src 'self' 'unsafe-inline'")  # Swagger UI has some
START = 'window.onload = () => SwaggerUIBundle({url: "openapi.json", dom_id: "#docs", deepLinking: false, validatorUrl: null});\n'
HTML = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>EveryPair: the service</title>
<link rel="icon" href="docs/icon.svg">
<link rel="stylesheet" href="docs/swagger-ui.css">
</head>
<body>
<div id="docs"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</body>
</html>
"""


def add_docs(add_file: Callable[[str, Any, list[str]], None]) -> None:
    """Add ``/docs`` and its files by a function that takes a path, an endpoint, and the values that ``{name}`` may have."""

    async def page() -> Response:
        return HTMLResponse(HTML, headers={"content-security-policy": INLINE_STYLES})

    async def file(name: str) -> Response:
        if name == "start.js":
            return Response(START, media_type="text/javascript")
        if name not in FILES:
            raise RequestError(404, f"there is no file {name[:100]!r}.")
        folder, media_type = FILES[name]
        return FileResponse(folder / name, media_type=media_type)

    add_file("/docs", page, [])
    add_file("/docs/{name}", file, ["start.js", *FILES])

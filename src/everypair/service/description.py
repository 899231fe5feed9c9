"""The OpenAPI description: what FastAPI derives from the routes, with examples of the model in use, and what each token is for."""

from __future__ import annotations

import copy
from typing import Any

from everypair.service import schemas
from everypair.service.access import Scope, scope_needed
from everypair.service.errors import STATUSES
from everypair.service.examples import Examples
from everypair.service.settings import Settings

ABOUT = "A recommender that was trained on every context-item pair. Scores are those of `Recommender.recommend`, bit for bit."
RECOMMENDATIONS, DATA, OPERATION = "Recommendations", "Model and data", "Operation"
TAGS = [
    {"name": RECOMMENDATIONS, "description": "Lists of items, and why an item is in them."},
    {"name": DATA, "description": "What the model was trained on, and what it learnt."},
    {"name": OPERATION, "description": "The state of the service, and a new model."},
]
ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.ErrorResponse, "description": description} for status, (_, description) in STATUSES.items()
}
TOKENS = {
    "token": {"type": "http", "scheme": "bearer", "description": "For everything."},
    "recommend_token": {"type": "http", "scheme": "bearer", "description": "For recommendations and similar items alone."},
}


def describe(derived: dict[str, Any], settings: Settings, examples: Examples | None) -> dict[str, Any]:
    """The description with tokens, if the service has any, and with examples, if the client may see some."""
    description = copy.deepcopy(derived)
    operations = [(path, operation) for path, methods in description["paths"].items() for operation in methods.values()]
    if settings.protected:
        wanted = {"token": True, "recommend_token": bool(settings.recommend_tokens)}
        description.setdefault("components", {})["securitySchemes"] = {name: TOKENS[name] for name in wanted if wanted[name]}
        description["security"] = [{"token": []}]
        for path, operation in operations:
            if scope_needed(path) is Scope.PUBLIC:
                operation["security"] = []
            elif scope_needed(path) is Scope.RECOMMEND and settings.recommend_tokens:
                operation["security"] = [{"token": []}, {"recommend_token": []}]
    examples = examples or Examples({}, {})
    for path, operation in operations:
        bodies, queries = examples.bodies.get(path, {}), examples.queries.get(path, {})
        if bodies:
            named = {title.lower().replace(" ", "-"): {"summary": title, "value": body} for title, body in bodies.items()}
            operation["requestBody"]["content"]["application/json"]["examples"] = named
        for parameter in operation.get("parameters", ()):
            if parameter["name"] in queries:
                parameter["example"] = queries[parameter["name"]]
    return description

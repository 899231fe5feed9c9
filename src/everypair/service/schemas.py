"""Pydantic schemas of requests and responses, which are validated and described at ``/docs``."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema, create_model, model_validator
from pydantic_core import PydanticCustomError

from everypair.service.limits import Limits

LOWEST, HIGHEST = -(2**63), 2**63 - 1  # integers that ids and values can be
MAX_NAMES = 200  # in a request
INVALID_ID = "must be a string of at most {text} characters, or an integer of 64 bits, got {kind}"
INVALID_LIST = "must be a list of {least} to {most} {what}, got {kind}"
INVALID_REQUEST = "must be an object of at most {most} names and values, got {kind}"
INVALID_VALUE = (
    "must be a string of at most {text} characters, a finite number, true, false, null, or a list of at most {history} of these, "
    "got {kind}"
)


# requests


class RequestBody(BaseModel):
    """A body without unknown fields, whose values are not converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


class OneOfTwo(RequestBody):
    """A body with exactly one of two fields: ``user`` or ``request``, or their plurals."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        first, second = _alternatives(type(self))
        if (getattr(self, first) is None) == (getattr(self, second) is None):
            raise PydanticCustomError("one_of", "give either {first} or {second}", {"first": first, "second": second})
        return self


def _alternatives(body: type[BaseModel]) -> tuple[str, str]:
    return ("users", "requests") if "users" in body.model_fields else ("user", "request")


class RequestSchemas(NamedTuple):
    """The request bodies of all routes, with the limits of a service."""

    recommend: type[RequestBody]
    recommend_batch: type[RequestBody]
    similar: type[RequestBody]
    similar_batch: type[RequestBody]
    explain: type[RequestBody]
    place: type[RequestBody]
    user: type[RequestBody]


def request_schemas(limits: Limits) -> RequestSchemas:
    """The request bodies with these limits.

    Ids, requests and lists of them are checked by functions rather than by pydantic types: these stop at the first error, where
    pydantic would collect one for each of ten thousand ids.
    """

    def check_id(value: Any, path: str = "") -> Any:
        if isinstance(value, str) and len(value) <= limits.text:
            return value
        if isinstance(value, int) and not isinstance(value, bool) and LOWEST <= value <= HIGHEST:
            return value
        raise PydanticCustomError("id", INVALID_ID, {"text": limits.text, "kind": _kind(value), "path": path})

    def check_ids(value: Any, path: str = "", most: int = limits.ids, least: int = 0) -> Any:
        if not isinstance(value, list) or not least <= len(value) <= most:
            raise PydanticCustomError(
                "ids", INVALID_LIST, {"least": least, "most": most, "what": "ids", "kind": _kind(value), "path": path}
            )
        for j, entry in enumerate(value):
            check_id(entry, f"{path}[{j}]")
        return value

    def check_request(value: Any, path: str = "") -> Any:
        if not isinstance(value, dict) or len(value) > MAX_NAMES:
            raise PydanticCustomError("request", INVALID_REQUEST, {"most": MAX_NAMES, "kind": _kind(value), "path": path})
        for name, attribute in value.items():
            is_list = isinstance(attribute, list) and len(attribute) <= limits.history
            for entry in attribute if is_list else [attribute]:
                if not _is_scalar(entry, limits.text) or len(name) > limits.text:
                    allowed = {"text": limits.text, "history": limits.history}
                    raise PydanticCustomError(
                        "value", INVALID_VALUE, {**allowed, "kind": _kind(entry), "path": f"{path}.{name[:100]}"}
                    )
        return value

    def batch_check(check: Any, what: str) -> Any:
        def check_batch(value: Any) -> Any:
            if not isinstance(value, list) or not 1 <= len(value) <= limits.batch:
                raise PydanticCustomError(
                    "batch", INVALID_LIST, {"least": 1, "most": limits.batch, "what": what, "kind": _kind(value)}
                )
            for j, entry in enumerate(value):
                check(entry, f"[{j}]")
            return value

        return check_batch

    string_schema = {"type": "string", "maxLength": limits.text}
    integer_schema = {"type": "integer", "minimum": LOWEST, "maximum": HIGHEST}
    scalar_schemas: list[Any] = [string_schema, integer_schema, {"type": "number"}, {"type": "boolean"}, {"type": "null"}]
    list_schema = {"type": "array", "items": {"anyOf": scalar_schemas}, "maxItems": limits.history}
    id_schema = {"anyOf": [string_schema, integer_schema]}
    ids_schema = {"type": "array", "items": id_schema, "maxItems": limits.ids}
    request_schema = {
        "type": "object", "additionalProperties": {"anyOf": [*scalar_schemas, list_schema]}, "maxProperties": MAX_NAMES,
        "propertyNames": {"maxLength": limits.text},
    }  # fmt: skip

    def batch_schema(of: Any) -> Any:
        return {"type": "array", "items": of, "minItems": 1, "maxItems": limits.batch}

    def checked(check: Any, schema: Any) -> Any:
        return Annotated[Any, AfterValidator(check), WithJsonSchema(schema)]

    Id, Ids = checked(check_id, id_schema), checked(check_ids, ids_schema)
    Request = checked(check_request, request_schema)
    IdBatch = checked(batch_check(check_id, "ids"), batch_schema(id_schema))
    IdsBatch = checked(batch_check(check_ids, "lists of ids"), batch_schema(ids_schema))
    RequestBatch = checked(batch_check(check_request, "requests"), batch_schema(request_schema))

    user_or_request: dict[str, Any] = {
        "user": (Id, Field(None, description="A user of the data.")),
        "request": (Request, Field(None, description=(
            'Instead of a user: attributes by name, "history" (items, oldest first), "history_times" and, for a user of the data, '
            "the id, named as in the interactions."
        ))),
    }  # fmt: skip
    users_or_requests: dict[str, Any] = {
        "users": (IdBatch, Field(None, description="Users of the data.")),
        "requests": (RequestBatch, Field(None, description="Instead of users, requests as of /recommend.")),
    }
    list_options: dict[str, Any] = {
        "n": (Annotated[int, Field(ge=1, le=limits.n)], Field(10, description="Items of a list.")),
        "details": (bool, Field(False, description="Add titles and attributes of items.")),
    }
    filters: dict[str, Any] = {
        "exclude_seen": (bool, Field(True, description="Leave out the items of the history.")),
        "allow": (Ids, Field(None, description="Recommend only these items.")),
        "deny": (Ids, Field(None, description="Do not recommend these items.")),
        "fallback": (
            Literal["error", "popular"],
            Field(
                "error",
                description="What to do if the model knows nothing of this user or request, or the user is not in the data.",
            ),
        ),
    }
    candidates = Field(None, description="Recommend only these items; in a batch, a list of items for each user or request.")

    def schema(name: str, base: type[RequestBody], **fields: Any) -> type[RequestBody]:
        body = create_model(name, __base__=base, **fields)
        if issubclass(base, OneOfTwo):
            body.model_config["json_schema_extra"] = {"oneOf": [{"required": [field]} for field in _alternatives(body)]}
            body.model_rebuild(force=True)
        return body

    item = {"item": (Id, Field(description="An item of the data."))}
    return RequestSchemas(
        recommend=schema(
            "Recommend",
            OneOfTwo,
            **user_or_request,
            **list_options,
            **filters,
            candidates=(Ids, candidates),
        ),
        recommend_batch=schema(
            "RecommendBatch",
            OneOfTwo,
            **users_or_requests,
            **list_options,
            **filters,
            candidates=(IdsBatch, candidates),
        ),
        similar=schema("Similar", RequestBody, **item, **list_options),
        similar_batch=schema(
            "SimilarBatch",
            RequestBody,
            items=(IdBatch, Field(description="Items of the data.")),
            **list_options,
        ),
        explain=schema("Explain", OneOfTwo, **user_or_request, **item),
        place=schema(
            "Place",
            OneOfTwo,
            **user_or_request,
            by=(Annotated[str, Field(max_length=limits.text)], Field("", description="As of /map.")),
        ),
        user=schema("User", RequestBody, user=(Id, Field(description="A user of the data."))),
    )


def _is_scalar(value: Any, max_length: int) -> bool:
    if value is None or isinstance(value, bool):
        return True
    if isinstance(value, str):
        return len(value) <= max_length
    return LOWEST <= value <= HIGHEST if isinstance(value, int) else isinstance(value, float) and math.isfinite(value)


def _kind(value: Any) -> str:
    """What an invalid value is, without repeating it."""
    if isinstance(value, str):
        return f"a string of {len(value):,} characters"
    if isinstance(value, list):
        return f"a list of {len(value):,}"
    names = {bool: "true or false", int: "a larger integer", float: "a number", dict: "an object", type(None): "null"}
    return names.get(type(value), type(value).__name__)


# responses


class RankedItem(BaseModel):
    """An item of a list."""

    item: str | int
    score: float = Field(description="That of `Recommender.recommend`, bit for bit; of /similar, the cosine.")
    rank: int = Field(description="From 1.")
    title: str | None = None
    attributes: dict[str, Any] | None = None


class VersionedResponse(BaseModel):
    """A response that names the version of the model that computed it."""

    model: str = Field(description="The version of the model: a checksum of the content of its folder.")


class ListResponse(VersionedResponse):
    items: list[RankedItem]
    note: str | None = Field(
        None, description="Why the list is shorter than requested, or that the model does not use the history of requests."
    )
    unknown: dict[str, int] = Field(
        {}, description="The number of values that are not in the training data, by attribute; they were ignored."
    )


class BatchResponse(VersionedResponse):
    lists: list[list[RankedItem]]
    note: str | None = None
    unknown: dict[str, int] = {}


class RecommendResponse(ListResponse):
    by_popularity: bool = Field(
        description="Whether the list depends on nothing of whom it is for: the model knows nothing of them, or the data do not."
    )


class RecommendBatchResponse(BatchResponse):
    by_popularity: list[bool] = Field(description="As of a single list, for each.")


class ScoreContribution(BaseModel):
    """What one feature adds to a score."""

    field: str
    value: str
    contribution: float
    title: str | None = Field(None, description="The title, if the value is an item.")


class ExplainResponse(VersionedResponse):
    item: str | int
    title: str | None = None
    score: float = Field(description="The sum of all contributions.")
    contributions: list[ScoreContribution] = Field(
        description="The largest first; those common to all items, and those of the item itself, last."
    )


class ItemSummary(BaseModel):
    """An item of the data."""

    item: str | int
    title: str | None = None
    attributes: dict[str, Any]
    events: float = Field(description="The number of interactions with it.")


class ItemsResponse(VersionedResponse):
    items: list[ItemSummary]


class UsersResponse(VersionedResponse):
    users: list[str | int]


class ProfileResponse(VersionedResponse):
    user: str | int
    attributes: dict[str, Any]
    history: list[ItemSummary] = Field(description="The latest items of the user's history, oldest first.")
    earlier: list[str | int] = Field(description="The items before those, oldest first; very long histories are cut off.")
    seen: int = Field(description="The length of the whole history.")


class ModelResponse(VersionedResponse):
    facts: dict[str, Any]
    users: bool = Field(description="Whether /v1/users and /v1/profile answer.")


class MapPoint(BaseModel):
    """An item on the map."""

    item: str | int
    title: str | None = None
    attributes: dict[str, Any]
    x: float
    y: float


class MapResponse(VersionedResponse):
    points: list[MapPoint]
    explained: float = Field(description="The share of the variance of item directions along the two dimensions.")


class PlaceResponse(VersionedResponse):
    x: float | None
    y: float | None


class LiveResponse(BaseModel):
    status: Literal["live"]


class ReadyResponse(BaseModel):
    status: Literal["ready"]
    model: str


class HealthResponse(BaseModel):
    status: Literal["ok"]
    model: str


class ReloadResponse(VersionedResponse):
    changed: bool = Field(description="Whether the model is another than before.")


class FieldError(BaseModel):
    """What is wrong with a field of the request."""

    field: str
    message: str


class ErrorDetail(BaseModel):
    code: str
    message: str
    fields: list[FieldError]


class ErrorResponse(BaseModel):
    """The body of every response with an error status."""

    error: ErrorDetail

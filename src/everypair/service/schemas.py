"""What clients send, and what they get: the shapes that are checked, and that ``/docs`` describes."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema, create_model, model_validator
from pydantic_core import PydanticCustomError

from everypair.service.limits import Limits

LOW, HIGH = -(2**63), 2**63 - 1  # of integers that ids and numbers can be
ID = "must be a text of at most {text} letters, or an integer of 64 bits, got {kind}"
LIST = "must be a list of {least} to {most} {what}, got {kind}"
REQUEST = "must be an object of at most {most} names and values, got {kind}"
NAMES = 200  # that a request says, at most
VALUE = (
    "must be a text of at most {text} letters, a finite number, true, false, null, or a list of at most {history} such, got {kind}"
)


class Body(BaseModel):
    """Nothing but what it names, and nothing converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


class OneOf(Body):
    """Exactly one of two fields."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        first, second = _alternatives(type(self))
        if (getattr(self, first) is None) == (getattr(self, second) is None):
            raise PydanticCustomError("one_of", "give either {first} or {second}", {"first": first, "second": second})
        return self


def _alternatives(body: type[BaseModel]) -> tuple[str, str]:
    return ("users", "requests") if "users" in body.model_fields else ("user", "request")


class Bodies(NamedTuple):
    """The shapes of what clients send, with the limits of a service."""

    recommend: type[Body]
    recommend_batch: type[Body]
    similar: type[Body]
    similar_batch: type[Body]
    explain: type[Body]
    place: type[Body]
    user: type[Body]


def bodies(limits: Limits) -> Bodies:
    """By what may be asked for."""

    def is_id(value: Any, place: str = "") -> Any:
        if isinstance(value, str) and len(value) <= limits.text:
            return value
        if isinstance(value, int) and not isinstance(value, bool) and LOW <= value <= HIGH:
            return value
        raise PydanticCustomError("id", ID, {"text": limits.text, "kind": _kind(value), "place": place})

    def are_ids(value: Any, place: str = "", most: int = limits.ids, least: int = 0) -> Any:
        """The first that is wrong is enough: nobody reads ten thousand errors."""
        if not isinstance(value, list) or not least <= len(value) <= most:
            raise PydanticCustomError(
                "ids", LIST, {"least": least, "most": most, "what": "ids", "kind": _kind(value), "place": place}
            )
        for j, one in enumerate(value):
            is_id(one, f"{place}[{j}]")
        return value

    def is_request(value: Any, place: str = "") -> Any:
        if not isinstance(value, dict) or len(value) > NAMES:
            raise PydanticCustomError("request", REQUEST, {"most": NAMES, "kind": _kind(value), "place": place})
        for name, said in value.items():
            listed = isinstance(said, list) and len(said) <= limits.history
            for one in said if listed else [said]:
                if not _is_scalar(one, limits.text) or len(name) > limits.text:
                    facts = {"text": limits.text, "history": limits.history, "kind": _kind(one)}
                    raise PydanticCustomError("value", VALUE, {**facts, "place": f"{place}.{name[:100]}"})
        return value

    def each(check: Any, what: str) -> Any:
        def are(value: Any) -> Any:
            if not isinstance(value, list) or not 1 <= len(value) <= limits.batch:
                raise PydanticCustomError("batch", LIST, {"least": 1, "most": limits.batch, "what": what, "kind": _kind(value)})
            for j, one in enumerate(value):
                check(one, f"[{j}]")
            return value

        return are

    text_schema, integer_schema = {"type": "string", "maxLength": limits.text}, {"type": "integer", "minimum": LOW, "maximum": HIGH}
    scalars: list[Any] = [text_schema, integer_schema, {"type": "number"}, {"type": "boolean"}, {"type": "null"}]
    many = {"type": "array", "items": {"anyOf": scalars}, "maxItems": limits.history}
    id_schema = {"anyOf": [text_schema, integer_schema]}
    ids_schema = {"type": "array", "items": id_schema, "maxItems": limits.ids}
    names = {"maxProperties": NAMES, "propertyNames": {"maxLength": limits.text}}
    request_schema = {"type": "object", "additionalProperties": {"anyOf": [*scalars, many]}, **names}

    def batch(of: Any) -> Any:
        return {"type": "array", "items": of, "minItems": 1, "maxItems": limits.batch}

    def shape(check: Any, schema: Any) -> Any:
        return Annotated[Any, AfterValidator(check), WithJsonSchema(schema)]

    Id, Ids = shape(is_id, id_schema), shape(are_ids, ids_schema)
    Request = shape(is_request, request_schema)
    IdBatch, RequestBatch = shape(each(is_id, "ids"), batch(id_schema)), shape(each(is_request, "requests"), batch(request_schema))

    person: dict[str, Any] = {
        "user": (Id, Field(None, description="A user of the data.")),
        "request": (Request, Field(None, description=(
            'In place of the user, what is known of someone: attributes by name, "history" (items, oldest first) and, if there is '
            "one, the user's id, named as in the interactions."
        ))),
    }  # fmt: skip
    people: dict[str, Any] = {
        "users": (IdBatch, Field(None, description="Users of the data.")),
        "requests": (RequestBatch, Field(None, description="In their place, what is known of people.")),
    }
    length: dict[str, Any] = {
        "n": (Annotated[int, Field(ge=1, le=limits.n)], Field(10, description="Items of a list.")),
        "details": (bool, Field(False, description="With titles and attributes of items.")),
    }
    filters: dict[str, Any] = {
        "exclude_seen": (bool, Field(True, description="Leave out the items of the history.")),
        "allow": (Ids, Field(None, description="The only items that may be recommended.")),
        "deny": (Ids, Field(None, description="Items that may not be.")),
        "fallback": (Literal["error", "popular"], Field("error", description="Where the model can say nothing of someone.")),
    }
    candidates = Field(None, description="The only items that may be recommended; in a batch, a list for each.")
    of_each = shape(each(are_ids, "lists of ids"), batch(ids_schema))

    def made(name: str, base: type[Body], example: dict[str, Any], **shape: Any) -> type[Body]:
        body = create_model(name, __base__=base, **shape)
        either = {"oneOf": [{"required": [field]} for field in _alternatives(body)]} if issubclass(base, OneOf) else {}
        extra: Any = {**either, "example": example}
        body.model_config["json_schema_extra"] = extra
        body.model_rebuild(force=True)
        return body

    visitor: dict[str, Any] = {"history": []}  # nobody's, and every model answers it
    popular: dict[str, Any] = {"n": 5, "fallback": "popular"}
    item = {"item": (Id, Field(description="An item of the data."))}
    return Bodies(
        made("Recommend", OneOf, {"request": visitor, **popular}, **person, **length, **filters, candidates=(Ids, candidates)),
        made(
            "RecommendBatch",
            OneOf,
            {"requests": [visitor, visitor], **popular},
            **people,
            **length,
            **filters,
            candidates=(of_each, candidates),
        ),
        made("Similar", Body, {"item": "v007", "n": 5}, **item, **length),
        made(
            "SimilarBatch",
            Body,
            {"items": ["v007", "v042"], "n": 5},
            items=(IdBatch, Field(description="Items of the data.")),
            **length,
        ),
        made("Explain", OneOf, {"request": visitor, "item": "v007"}, **person, **item),
        made(
            "Place",
            OneOf,
            {"request": visitor},
            **person,
            by=(Annotated[str, Field(max_length=limits.text)], Field("", description="As of /map.")),
        ),
        made("User", Body, {"user": "u001"}, user=(Id, Field(description="A user of the data."))),
    )


def _is_scalar(value: Any, longest: int) -> bool:
    if value is None or isinstance(value, bool):
        return True
    if isinstance(value, str):
        return len(value) <= longest
    return LOW <= value <= HIGH if isinstance(value, int) else isinstance(value, float) and math.isfinite(value)


def _kind(value: Any) -> str:
    """What something of a client's is, in few words."""
    if isinstance(value, str):
        return f"a text of {len(value):,} letters"
    if isinstance(value, list):
        return f"a list of {len(value):,}"
    names = {bool: "true or false", int: "a larger integer", float: "a number", dict: "an object", type(None): "null"}
    return names.get(type(value), type(value).__name__)


# what clients get


class Listed(BaseModel):
    """An item of a list."""

    item: str | int
    score: float = Field(description="As of `Recommender.recommend`, bit for bit; of /similar, the cosine.")
    rank: int = Field(description="From 1.")
    title: str | None = None
    attributes: dict[str, Any] | None = None


class Answer(BaseModel):
    """Made by one model, whose version it names."""

    model: str = Field(description="The version of the model: a checksum of all that it is made of.")


class ListAnswer(Answer):
    items: list[Listed]
    note: str | None = Field(None, description="Why the list is shorter than asked for.")
    unknown: dict[str, int] = Field({}, description="How many values training never saw, by attribute; they were left out.")


class BatchAnswer(Answer):
    lists: list[list[Listed]]
    note: str | None = None
    unknown: dict[str, int] = {}


class Contribution(BaseModel):
    field: str
    value: str
    contribution: float
    title: str | None = Field(None, description="Of the item that the value is, if it is one.")


class ExplainAnswer(Answer):
    item: str | int
    score: float = Field(description="The sum of all contributions.")
    contributions: list[Contribution] = Field(description="The largest first; those of every item and of the item itself last.")


class Found(BaseModel):
    """An item of the data."""

    item: str | int
    title: str | None = None
    attributes: dict[str, Any]
    events: float = Field(description="How often it was chosen.")


class ItemsAnswer(Answer):
    items: list[Found]


class UsersAnswer(Answer):
    users: list[str | int]


class ProfileAnswer(Answer):
    user: str | int
    attributes: dict[str, Any]
    history: list[Found] = Field(description="What the user has seen, oldest first; the latest of them.")
    earlier: list[str | int] = Field(description="The items before those, as far as a request may name them.")
    seen: int = Field(description="How many that are in all.")


class ModelAnswer(Answer):
    facts: dict[str, Any]


class Point(BaseModel):
    item: str | int
    title: str | None = None
    attributes: dict[str, Any]
    x: float
    y: float


class MapAnswer(Answer):
    points: list[Point]
    explained: float = Field(description="The share of the variance of directions that two dimensions have.")


class PlaceAnswer(Answer):
    x: float | None
    y: float | None


class HealthAnswer(BaseModel):
    status: Literal["ok"]
    model: str


class ReloadAnswer(Answer):
    changed: bool = Field(description="Whether it is another model than before.")


class Problem(BaseModel):
    field: str
    message: str


class ErrorBody(BaseModel):
    code: str
    message: str
    fields: list[Problem]


class ErrorAnswer(BaseModel):
    """Something was not done."""

    error: ErrorBody

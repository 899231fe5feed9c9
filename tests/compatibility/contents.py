"""What every version writes to disk for the tests of later versions: small, generated, one of each kind of file and model."""

from __future__ import annotations

from typing import Any

import everypair as ep
from everypair.towers import Concat, Constant, Core, Embedding, Linear, Lookup, Machine, Product, Sum

EPOCHS = 2  # of the stored checkpoints; a resumed fit runs TOTAL
TOTAL = 4
HISTORY = 3  # items of the history in the requests that are asked of every model


def dataset() -> ep.Dataset:
    return ep.datasets.youtube_like(40, 25, seed=3)


def recommenders() -> dict[str, ep.Recommender]:
    """One of every model, and of the towers and recipes that files name."""
    common: dict[str, Any] = {"epochs": EPOCHS, "random_state": 1, "n_threads": 1}
    attributes = ep.Attributes("age", "country", "gender", "device")
    sequence = [ep.UserId(), attributes, ep.Previous(), ep.History(decay=0.8)]
    pair = [ep.UserId(), ep.Previous()]
    described: dict[str, Any] = {"context": sequence, "item": [ep.ItemId(), ep.Attributes("category")]}
    return {
        "MF": ep.Recommender(ep.MF(4, **common)),
        "MF of previous items": ep.Recommender(ep.MF(4, **common), context=[ep.Previous()]),
        "MFSI": ep.Recommender(ep.MFSI(4, **common), context=[ep.UserId(), attributes]),
        "FM": ep.Recommender(ep.FM(4, **common), context=sequence),
        "PARAFAC": ep.Recommender(ep.PARAFAC(4, **common), context=pair),
        "PARAFAC all": ep.Recommender(ep.PARAFAC(4, combinations="all", **common), context=pair),
        "Tucker": ep.Recommender(ep.Tucker(3, **common), context=pair),
        "Separable": ep.Recommender(ep.Separable(context=_tower(), item=_item_tower(), **common), **described),
        "CoView": ep.Recommender(ep.CoView(), context=[ep.Previous()]),
        "Popularity": ep.Recommender(ep.Popularity()),
    }


def _tower() -> Any:
    product = Product(Embedding(3, "user", name="p"), Sum(Embedding(3, "previous", name="s"), Linear(3, "history", name="L")))
    core = Core(Embedding(2, "user", name="c"), Linear(2, "device", name="D"), factors=2)
    return Concat(product, Machine(2, "country", "age"), core, Lookup("previous", Embedding(2, name="v")), Constant())


def _item_tower() -> Any:
    return Concat(Embedding(8, "item", name="w"), Machine(2, "category"))


def requests(data: ep.Dataset) -> list[dict[str, Any]]:
    items = data.items.values.to_pylist()
    return [{"history": items[:HISTORY], "country": "DE"}, {data.user_column: data.users[5], "history": items[4:6]}]

"""The scenarios of the paper (Section 6.2): a split, and the models that are compared on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from everypair.evaluation import ColdStart, Cutoff, LeaveLast
from everypair.evaluation.splits import Splitter
from everypair.models import FM, MF, CoView, Popularity
from everypair.models.base import Model
from everypair.recommend.recipes import Attributes, History, Previous, Recipe, UserId
from everypair.recommender import Recommender

# Ranges that are searched (see everypair.tuning.search); L2 grows with the weight of a feature (exponent 1).
SPACE = {"unobserved_weight": (0.002, 0.3), "shrinkage": (0.005, 0.2)}


class LineupEntry(NamedTuple):
    """A model by the paper's name, and the recipes of its contexts."""

    name: str
    letters: str  # recipes, joined by +: A, P, H, U as in the paper's figures
    tuned: bool

    def recipes(self, attributes: Sequence[str]) -> list[Recipe]:
        by_letter: dict[str, Recipe] = {"A": Attributes(*attributes), "P": Previous(), "H": History(decay=1.0), "U": UserId()}
        return [by_letter[letter] for letter in self.letters.split("+")]

    def make(self, attributes: Sequence[str], factors: int, epochs: int, **settings: float) -> Recommender:
        """A recommender, not fitted."""
        tower = {"epochs": epochs, "regularization_exponent": 1.0, "popularity_exponent": 0.0, **settings}
        models: dict[str, Model] = {"Popularity": Popularity(), "Coview": CoView()}
        model = models.get(self.name) or (MF if self.name == "iCD-MF" else FM)(factors, **tower)
        return Recommender(model, context=self.recipes(attributes))


def fm(letters: str) -> LineupEntry:
    return LineupEntry(f"iCD-FM {letters}", letters, tuned=True)


POPULARITY, COVIEW = LineupEntry("Popularity", "U", tuned=False), LineupEntry("Coview", "P", tuned=False)
MATRIX = LineupEntry("iCD-MF", "U", tuned=True)
# MF knows nothing about a new user, whatever its settings: they need no tuning.
UNTUNED = MATRIX._replace(tuned=False)


class Scenario(NamedTuple):
    """A split, and the models that are compared on it. Name, title and question are stored in results.json."""

    name: str
    title: str
    question: str
    splitter: Splitter
    lineup: tuple[LineupEntry, ...]


def scenarios(sample: int, seed: int) -> list[Scenario]:
    """The three scenarios of the paper; the third evaluates at most ``sample`` events."""
    common = (POPULARITY, COVIEW)
    return [
        Scenario(
            "cold-start",
            "Cold-start recommendation",
            "Random users are held out whole; only their attributes are known.",
            ColdStart(seed=seed),
            (*common, UNTUNED, fm("A")),
        ),
        Scenario(
            "offline",
            "Offline recommendation",
            "The last event of each user is held out; all before it is known.",
            LeaveLast(),
            (*common, MATRIX, fm("A"), fm("P"), fm("A+P+U")),
        ),
        Scenario(
            "instant",
            "Instant recommendation",
            "Trained on events before a cutoff; at each event after it, all before it is known.",
            Cutoff(sample=sample, seed=seed),
            (*common, MATRIX, fm("A"), fm("P"), fm("H"), fm("A+P+H")),
        ),
    ]

"""Who competes in which scenario (Section 6.2 of the paper)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from everypair.evaluation import ColdStart, Cutoff, LeaveLast
from everypair.evaluation.splits import Splitter
from everypair.models import FM, MF, CoView, Popularity
from everypair.models.base import Model
from everypair.recommend.recipes import Attributes, History, Previous, Recipe, UserId
from everypair.recommender import Recommender

# Ranges in which settings are looked for (see everypair.tuning.search); L2 grows with the weight of a feature (exponent 1).
SPACE = {"unobserved_weight": (0.002, 0.3), "shrinkage": (0.005, 0.2)}


class Contender(NamedTuple):
    """A model by the paper's name, and what it is told of a context."""

    name: str
    letters: str  # A, P, H, U as in the paper's figures
    tuned: bool

    def recipes(self, attributes: Sequence[str]) -> list[Recipe]:
        known: dict[str, Recipe] = {"A": Attributes(*attributes), "P": Previous(), "H": History(decay=1.0), "U": UserId()}
        return [known[letter] for letter in self.letters.split("+")]

    def make(self, attributes: Sequence[str], factors: int, epochs: int, **settings: float) -> Recommender:
        """A recommender that is not fitted yet."""
        tower = {"epochs": epochs, "regularization_exponent": 1.0, "popularity_exponent": 0.0, **settings}
        models: dict[str, Model] = {"Popularity": Popularity(), "Coview": CoView()}
        model = models.get(self.name) or (MF if self.name == "iCD-MF" else FM)(factors, **tower)
        return Recommender(model, context=self.recipes(attributes))


def fm(letters: str) -> Contender:
    return Contender(f"iCD-FM {letters}", letters, tuned=True)


POPULARITY, COVIEW = Contender("Popularity", "U", tuned=False), Contender("Coview", "P", tuned=False)
MATRIX = Contender("iCD-MF", "U", tuned=True)
# Nothing of a user who was held out whole is known to MF, whatever its settings: they are not tuned.
UNTUNED = MATRIX._replace(tuned=False)


class Scenario(NamedTuple):
    """A way to split, and the line-up."""

    name: str
    title: str
    question: str
    splitter: Splitter
    lineup: tuple[Contender, ...]


def scenarios(sample: int, seed: int) -> list[Scenario]:
    """The three of the paper; at most ``sample`` events are evaluated in the third."""
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

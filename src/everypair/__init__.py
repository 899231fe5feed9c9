"""EveryPair: recommenders that learn from every context-item pair, exactly, at the cost of the observed ones."""

from everypair.runtime.version import __version__ as __version__

TYPE_CHECKING = False  # as in typing, whose import takes as long as all others that a command needs before it handles Ctrl-C

if TYPE_CHECKING:
    from everypair import datasets, evaluation, testing, towers
    from everypair.cluster import Processes, Ray, Shards
    from everypair.columns.features import Features
    from everypair.columns.table import Levels
    from everypair.data import Dataset
    from everypair.data.row_order import RowOrderWarning
    from everypair.engine.divergence import DivergedError
    from everypair.engine.feedback import Feedback
    from everypair.engine.solver import Epoch
    from everypair.gpu.device import DeviceError
    from everypair.models import FM, MF, MFSI, PARAFAC, CoView, CutShortWarning, NotFittedError, Popularity, Separable, Tucker
    from everypair.recommend.event_weights import EventWeights
    from everypair.recommend.recipes import Attributes, History, ItemId, Previous, UserId, Vectors
    from everypair.recommend.requests import UnusedHistoryWarning
    from everypair.recommend.results import FallbackWarning, FewerItemsWarning
    from everypair.recommender import Recommender, load
    from everypair.tuning import auto, tune

__all__ = [
    "FM",
    "MF",
    "MFSI",
    "PARAFAC",
    "Attributes",
    "CoView",
    "CutShortWarning",
    "Dataset",
    "DeviceError",
    "DivergedError",
    "Epoch",
    "EventWeights",
    "FallbackWarning",
    "Features",
    "Feedback",
    "FewerItemsWarning",
    "History",
    "ItemId",
    "Levels",
    "NotFittedError",
    "Popularity",
    "Previous",
    "Processes",
    "Ray",
    "Recommender",
    "RowOrderWarning",
    "Separable",
    "Shards",
    "Tucker",
    "UnusedHistoryWarning",
    "UserId",
    "Vectors",
    "auto",
    "datasets",
    "evaluation",
    "load",
    "testing",
    "towers",
    "tune",
]

# Imported on first use: numba, scipy and pyarrow take more than a second to import, which "everypair --help" should not need.
_SUBMODULES = ("datasets", "evaluation", "testing", "towers")
_MODULES = {
    "cluster": ("Processes", "Ray", "Shards"),
    "columns.features": ("Features",),
    "columns.table": ("Levels",),
    "data": ("Dataset",),
    "data.row_order": ("RowOrderWarning",),
    "engine.divergence": ("DivergedError",),
    "engine.feedback": ("Feedback",),
    "engine.solver": ("Epoch",),
    "gpu.device": ("DeviceError",),
    "models": ("FM", "MF", "MFSI", "PARAFAC", "CoView", "CutShortWarning", "NotFittedError", "Popularity", "Separable", "Tucker"),
    "recommend.event_weights": ("EventWeights",),
    "recommend.recipes": ("Attributes", "History", "ItemId", "Previous", "UserId", "Vectors"),
    "recommend.requests": ("UnusedHistoryWarning",),
    "recommend.results": ("FallbackWarning", "FewerItemsWarning"),
    "recommender": ("Recommender", "load"),
    "tuning": ("auto", "tune"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


if not TYPE_CHECKING:  # type checkers would accept any name

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name in _SUBMODULES:
            return import_module(f"{__name__}.{name}")
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

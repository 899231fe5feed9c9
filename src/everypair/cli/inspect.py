"""``everypair inspect``: shows and verifies the content of a model's folder."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from everypair.cli.options import JSON, PATH
from everypair.cli.output import note, write_json

DATA_KEYS = {
    "user": "user_column",
    "item": "item_column",
    "timestamp": "timestamp",
    "rating": "rating",
    "at_least": "at_least",
    "weight": "weight_column",
    "repeats": "repeats",
}  # key of [data] -> name in the folder


@click.command(epilog="\b\nExamples:\n  everypair inspect model/\n  everypair inspect model/ --toml > model.toml")
@click.argument("model", type=PATH)
@click.option(
    "--verify/--no-verify", default=True, show_default=True, help="Verify the checksums of all files, which reads all of them."
)
@click.option("--toml", "as_toml", is_flag=True, help="Print the model and its recipes as a file for 'everypair fit --config'.")
@JSON
@click.pass_context
def inspect(ctx: click.Context, model: Path, verify: bool, as_toml: bool, as_json: bool) -> None:
    """Show the content of the folder of a saved MODEL: data, model, recipes, arrays and files, and whether they are intact.

    Exits with 1 if the model cannot be loaded. A model with custom classes, which only Python can load, is still shown.
    """

    if as_toml and as_json:
        raise click.UsageError("Give one of --toml and --json.")
    refusal = _refusal(model, verify)
    contents = _contents(model, verify)
    if as_toml:
        click.echo(_toml(contents), nl=False)
    elif as_json:
        write_json(contents)
    else:
        click.echo(_text(contents))
    if refusal:
        note(refusal)
        ctx.exit(1)


def _refusal(path: Path, verify: bool) -> str | None:
    """Why a model with custom classes cannot be loaded here, None if it can be; other problems are raised."""
    from everypair.models.fit_state import CutShortWarning
    from everypair.persistence.folder import Folder
    from everypair.recommend.archive import KIND, VERSION
    from everypair.recommend.config import KNOWN
    from everypair.recommender import load

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CutShortWarning)  # said in the text
            load(path, verify=verify)
    except ValueError as error:
        custom = _classes(Folder(path, KIND, VERSION).manifest().get("configuration")) - KNOWN.keys()
        if not custom:
            raise
        return f"{error} Only Python can load it, with custom=[{', '.join(sorted(custom))}]."
    return None


def _classes(value: Any) -> set[str]:
    """The names of the classes in a configuration."""
    if isinstance(value, list):
        return set().union(*map(_classes, value))
    if not isinstance(value, dict):
        return set()
    return {str(value["class"])} if "class" in value else set().union(*map(_classes, value.values()))


def _contents(path: Path, verify: bool) -> dict[str, Any]:
    """The content of a folder, read without creating the model, so that custom classes do not matter."""
    from everypair.models.fit_state import cut_short
    from everypair.persistence.folder import Folder
    from everypair.recommend.archive import KIND, VERSION
    from everypair.recommend.stored_dataset import TABLES, table_of

    folder = Folder(path, KIND, VERSION)
    names = tuple(folder.manifest()["files"])
    manifest, payloads = folder.open(mapped=names, verify=verify)
    facts, arrays = manifest["facts"], {**payloads["numbers"], **payloads["index"]}
    history = facts["model"].get("history", [])
    planned = manifest["configuration"]["model"]["arguments"].get("epochs", len(history))
    return {
        "folder": str(path),
        "format": manifest["version"],
        "package": manifest["package"],
        "configuration": manifest["configuration"],
        "users": table_of(payloads["users"]).num_rows,
        "items": table_of(payloads["items"]).num_rows,
        "events": len(arrays["events item"]),
        "attributes": {
            name: {field.name: str(field.type) for field in table_of(payloads[name]).schema} for name in TABLES if name in payloads
        },
        "dataset": {key: value for key, value in facts["dataset"].items() if key != "notes"},
        "notes": facts["dataset"]["notes"],
        "epochs": len(history),
        "stop_reason": facts["model"].get("stop_reason"),
        "cut_short": cut_short(str(facts["model"].get("stop_reason")), len(history), planned),
        "unobserved_weight": facts["model"].get("unobserved weight"),
        "evaluation": manifest.get("evaluation"),
        "objective": {"first": history[0]["objective"], "last": history[-1]["objective"]} if history else None,
        "arrays": [
            {"name": name, "dtype": str(array.dtype), "shape": list(array.shape), "bytes": array.nbytes}
            for name, array in arrays.items()
        ],
        "files": list(manifest["files"].values()),
        "verified": verify,
    }


def _as_python(value: Any) -> str:
    """The repr of the objects that a part of a configuration describes."""
    from everypair.recommend.config import from_config

    try:
        return repr(list(from_config(value))) if isinstance(value, list) else repr(from_config(value))
    except ValueError:  # a custom class
        return str(value)


def _text(contents: dict[str, Any]) -> str:
    from everypair.runtime.formatting import table

    configuration = contents["configuration"]
    lines = [
        f"{contents['folder']}: format {contents['format']}, written by everypair {contents['package']}",
        f"model      {_as_python(configuration['model'])}",
        f"context    {_as_python(configuration['context'])}",
        f"item       {_as_python(configuration['item'])}",
        f"data       {contents['events']:,} events of {contents['users']:,} users and {contents['items']:,} items",
    ]
    for name, columns in contents["attributes"].items():
        lines.append(f"{name:<10} {', '.join(f'{column} ({kind})' for column, kind in columns.items())}")
    if contents["objective"]:
        summary = "training   {epochs} epoch{s} ({stop_reason}), objective {objective[first]:.6g} -> {objective[last]:.6g}"
        lines.append(summary.format(**contents, s="s" * (contents["epochs"] != 1)))
        if contents["cut_short"]:
            lines.append(f"unfinished {contents['cut_short']}")
        lines.append(f"weight     {contents['unobserved_weight']:.6g} of an unobserved pair, on average")
    for metric, value in _figures(contents["evaluation"]):
        lines.append(f"{metric:<10} {value:.4f}")
    arrays = [[a["name"], " x ".join(map(str, a["shape"])), a["dtype"], f"{a['bytes']:,}"] for a in contents["arrays"]]
    files = [[entry["file"], f"{entry['bytes']:,}", entry["sha256"][:16]] for entry in contents["files"]]
    checked = "verified: yes" if contents["verified"] else "verified: no"
    parts = [
        "\n".join(lines),
        table(["array", "shape", "type", "bytes"], arrays),
        table(["file", "bytes", "sha256"], files),
        checked,
    ]
    return "\n\n".join(parts)


def _figures(evaluation: Any) -> Iterator[tuple[str, float]]:
    """The metrics of a stored evaluation. It may hold anything that someone set or wrote: the rest is for --json."""
    metrics = evaluation.get("metrics") if isinstance(evaluation, dict) else None
    for metric, figure in metrics.items() if isinstance(metrics, dict) else ():
        value = figure.get("value") if isinstance(figure, dict) else figure
        if isinstance(value, int | float):
            yield metric, value


def _toml(contents: dict[str, Any]) -> str:
    from everypair.recommend.config import from_config
    from everypair.recommend.event_weights import EventWeights
    from everypair.recommend.recipe_syntax import as_text, model_settings, toml, weights_as_text

    configuration = dict(contents["configuration"])
    weights = configuration.pop("event_weights", None)
    objects = {name: from_config(value) for name, value in configuration.items()}
    recipes = {name: [as_text(recipe) for recipe in objects[name]] for name in ("context", "item")}
    dataset = contents["dataset"]
    data = {key: dataset[stored] for key, stored in DATA_KEYS.items()}
    for key, other in (("users_key", "user"), ("items_key", "item")):
        if dataset.get(key, data[other]) != data[other]:
            data[key] = dataset[key]
    if dataset.get("all_items"):
        data["all_items"] = True
    if dataset.get("row_order", "unsorted") is None and dataset["timestamp"] is None:
        data["chronological"] = True
    return toml(
        {
            "data": data,
            "model": model_settings(objects["model"]),
            "recommender": {
                **recipes,
                "unit": objects["unit"],
                "unknown": objects["unknown"],
                "event_weights": None if weights is None else weights_as_text(EventWeights(**weights)),
            },
        }
    )

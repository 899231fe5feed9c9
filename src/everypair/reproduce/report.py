"""The results of the experiments as tables for the terminal and as an HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import Any

from everypair.reproduce import charts
from everypair.reproduce.common import rounded
from everypair.runtime.formatting import table
from everypair.runtime.svg import page as whole_page

NAMES = {"recall@100": "Recall@100", "ndcg@100": "NDCG@100"}


def terminal(results: dict[str, Any]) -> str:
    """The results as text."""
    parts = [_data_line(results)]
    for scenario in results["scenarios"]:
        parts.append(f"\n{scenario['title']}. {scenario['question']}")
        parts.append(table(*_scenario_table(scenario)))
        parts += [f"  note: {note}" for note in scenario["split"]["notes"]]
    if "cost" in results:
        k = results["cost"]["paper"][0]["factors"]
        parts.append(f"\nComputational cost of an epoch: conventional CD against iCD, FM with k = {k}, one thread")
        parts.append(table(*_cost_table(results)))
    if "findings" in results:
        parts.append("\nThe paper's findings")
        parts += [f"  {found['verdict']:<9}  {found['finding']}\n             {found['why']}" for found in results["findings"]]
        parts.append(f"\n{results['seconds']:.0f} seconds in all.")
    return "\n".join(parts)


def page(results: dict[str, Any]) -> str:
    """The results as a self-contained HTML page."""
    data, scale, env = results["data"], results["scale"], results["environment"]
    style = files("everypair.reproduce").joinpath("report.css").read_text("utf-8")
    body = [
        "<h1>Learning from every pair: the experiments of iCD</h1>",
        f"<p>{escape(_data_line(results))}</p>",
        '<p class="soft">The three scenarios and the cost comparison of “A Generic Coordinate Descent Framework for Learning from '
        "Implicit Feedback” (Bayer, He, Kanagal and Rendle, WWW 2017), with its line-ups. A: attributes of the user "
        f"({escape(', '.join(data['attributes']))}). P: the previous item. H: all items so far. U: the user. Bars are relative to "
        "Popularity, with 95 % intervals: a bootstrap over users.</p>",
        "<h2>Do the findings of the paper hold here?</h2>",
        '<ul class="findings">',
        *(
            f'<li class="{found["verdict"]}">{escape(found["finding"])} <span class="soft">{escape(found["why"])}</span></li>'
            for found in results.get("findings", [])
        ),
        "</ul>",
    ]
    for scenario in results["scenarios"]:
        body += _scenario_section(scenario)
    if "cost" in results:
        body += _cost_section(results)
    tuning = results["tuning"]
    spaces = ", ".join(f"{name} from {low:g} to {high:g}" for name, (low, high) in tuning["space"].items())
    body += [
        "<h2>How it was measured</h2>",
        "<ul>",
        "<li>All items are ranked, except those the user has seen; ties by item order. Recall@100 is the share of relevant "
        "items among the best 100; NDCG@100 weighs them by 1/log<sub>2</sub>(rank + 1), relative to the best order.</li>",
        f"<li>Settings were tuned on the tuning part alone, by {NAMES[tuning['metric']]}: {tuning['trials']} trials per model and "
        f"scenario ({escape(spaces)}; logarithmic), at most {scale['epochs']} epochs with early stopping, k = {scale['factors']}, "
        f"on at most {scale['tuning_events']:,} training events. L2 grows with the weight of a feature (exponent 1).</li>",
        f"<li>{escape(', '.join(f'{name} {value}' for name, value in env.items()))}.</li>",
        f"<li>{results.get('seconds', 0):,.0f} seconds in all. All figures, tuning trials included, are in "
        "<code>results.json</code> beside this page.</li>",
        "</ul>",
    ]
    return whole_page(f"EveryPair: the paper, reproduced on {data['name']}", style, body)


def _data_line(results: dict[str, Any]) -> str:
    data = results["data"]
    return f"Data: {data['name']}, {data['events']:,} events of {data['users']:,} users on {data['items']:,} items."


def _scenario_table(scenario: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    header = ["model"]
    for name in NAMES.values():
        header += [name, "95 %", "relative", "95 % "]
    rows = []
    for model in scenario["models"]:
        row = [model["name"]]
        for metric in NAMES:
            m = model["metrics"][metric]
            row += [f"{m['value']:.4f}", f"{m['low']:.4f}-{m['high']:.4f}", f"{m['relative']:.3f}"]
            row += ["" if model["name"] == "Popularity" else f"{m['relative_low']:.3f}-{m['relative_high']:.3f}"]
        rows.append(row)
    return [*header, "fit (s)"], [[*row, f"{m['seconds']['fit']:.1f}"] for row, m in zip(rows, scenario["models"], strict=True)]


def _cost_table(results: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    header = ["contexts", "|C|", "|I|", "CD operations", "iCD operations", "ratio", "CD seconds", "iCD seconds", "ratio ", ""]
    rows = [
        [
            cost["context"], f"{cost['contexts']:,}", f"{cost['items']:,}",
            f"{cost['cd_operations']:.2e}", f"{cost['icd_operations']:.2e}", rounded(cost['ratio_operations']),
            rounded(cost["cd_seconds"]), rounded(cost["icd_seconds"]), rounded(cost['ratio_seconds']),
            "extrapolated" if cost["extrapolated"] else "measured",
        ]
        for cost in (*results["cost"]["measured"], *results["cost"]["paper"])
    ]  # fmt: skip
    return header, rows


def _html_table(header: Sequence[str], rows: Sequence[Sequence[str]], top: int | None = None) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    cells = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows]
    lines = [f'<tr class="top">{row}</tr>' if j == top else f"<tr>{row}</tr>" for j, row in enumerate(cells)]
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def _scenario_section(scenario: dict[str, Any]) -> list[str]:
    models, split = scenario["models"], scenario["split"]
    figures = []
    for metric, name in NAMES.items():
        values = [model["metrics"][metric]["relative"] for model in models]
        best = max(range(len(models)), key=lambda j: values[j])
        kinds = ["best" if j == best and values[j] > 1 else _kind(model["name"]) for j, model in enumerate(models)]
        intervals = [(model["metrics"][metric]["relative_low"], model["metrics"][metric]["relative_high"]) for model in models]
        drawn = charts.bars(f"{name} relative to Popularity", [model["name"] for model in models], values, intervals, kinds)
        figures.append(f"<figure>{drawn}</figure>")
    top = max(range(len(models)), key=lambda j: models[j]["metrics"]["ndcg@100"]["value"])
    settings = [
        f"<li>{escape(model['name'])}: {escape(', '.join(f'{key} {value:g}' for key, value in model['settings'].items()))}; "
        f"{model['contexts']:,} distinct contexts</li>"
        for model in models
        if model["settings"]
    ]
    return [
        f"<h2>{escape(scenario['title'])}</h2>",
        f"<p>{escape(scenario['question'])} Trained on {split['train_events']:,} events, tuned on {split['tune_queries']:,} "
        f"queries, evaluated on {split['evaluated']:,}.</p>",
        f'<div class="row">{"".join(figures)}</div>',
        _html_table(*_scenario_table(scenario), top=top),
        *(f'<p class="soft">{escape(note)}</p>' for note in split["notes"]),
        f"<details><summary>Tuned settings</summary><ul>{''.join(settings)}</ul></details>",
    ]


def _kind(name: str) -> str:
    return "fm" if name.startswith("iCD-FM") else "mf" if name == "iCD-MF" else "baseline"


def _cost_section(results: dict[str, Any]) -> list[str]:
    paper, measured = results["cost"]["paper"], results["cost"]["measured"]
    base = next(cost["icd_operations"] for cost in paper if cost["context"] == "P")
    labels = [f"iCD-FM {cost['context']}" for cost in paper]
    names = ("conventional CD", "iCD")
    figures = [
        (
            charts.paired_bars(
                "Operations relative to iCD-FM P, at the paper's size",
                labels,
                [(cost["cd_operations"] / base, cost["icd_operations"] / base) for cost in paper],
                names,
            ),
            f"{paper[0]['contexts']:,} events, {paper[0]['items']:,} items: by formula; visits of running sums extrapolated.",
        ),
        (
            charts.paired_bars(
                "Seconds per epoch at the paper's size, extrapolated",
                labels,
                [(c["cd_seconds"], c["icd_seconds"]) for c in paper],
                names,
            ),
            "From the measured seconds per operation of each; for iCD, of a run with all the paper's items. Conventional CD "
            f"would also need {24e-12 * paper[0]['contexts'] * paper[0]['items']:,.0f} TB of memory.",
        ),
        (
            charts.lines(
                "Seconds per epoch as the catalogue grows, measured",
                "items",
                [
                    (f"{name}, {context}", kind, dash, [(c["items"], c[key]) for c in measured if c["context"] == context])
                    for (name, kind, key) in ((names[0], "conventional", "cd_seconds"), (names[1], "icd", "icd_seconds"))
                    for context, dash in (("P", ""), ("A+P+U", "7 4"), ("A+P+H", "2 4"))
                ],
            ),
            "Blue: conventional CD, red: iCD. Solid: contexts P, dashed: A+P+U, dotted: A+P+H. The events stay the same.",
        ),
    ]
    drawn = "".join(f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>" for svg, caption in figures)
    return [
        "<h2>Computational cost</h2>",
        "<p>The same factorization machine, trained by conventional coordinate descent over every pair and by iCD. Both take the "
        "same steps, except for a history, which iCD solves as a block. "
        f"Both compiled, on one thread, k = {paper[0]['factors']}, each event a context (generated data).</p>",
        f'<div class="row">{drawn}</div>',
        _html_table(*_cost_table(results)),
    ]

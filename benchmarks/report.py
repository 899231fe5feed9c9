"""The report: Markdown and charts, from stored results only."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.harness.section import ReportSection, yes_or_no
from benchmarks.quality import report as quality_report
from benchmarks.quality.plan import SECTION as QUALITY
from benchmarks.speed.sections import SECTIONS as SPEED
from everypair.runtime.atomic_files import write_atomically

RESULTS = "results.json"
SECTIONS: dict[str, ModuleType] = {QUALITY: quality_report, **SPEED}

INTRODUCTION = """# Benchmarks

Quality beside published results, and speed beside other libraries. This file is written by `python -m benchmarks`; every figure
comes from the run that it describes. To measure again, from the root of the repository:

    pip install -e ".[bench]"
    python -m benchmarks quality --data DIR --out {name}
    python -m benchmarks speed --data DIR --out {name}

`DIR` is a folder with a folder per data set: Parquet files `train` and `test`, or `interactions`, `users` and `items`. `--only` and
`--rows` run a part of it, `python -m benchmarks speed --quick` a small version on generated data. `{folder}/results.json` stores
all measurements: a run with the same arguments continues where the last one ended.

In sections on speed, each contender has its own process, with the same data, loss, factors and number of threads, the best solver
settings of its library, and as many BLAS threads as its project recommends. Runs of the contenders alternate. Figures are medians,
with the smallest and the largest in brackets. Machines are noisy and differ: ratios within a run say more than seconds."""


def results_path(out: Path) -> Path:
    """The file of stored results that belongs to a report."""
    return out.with_suffix("") / RESULTS


def sections(content: dict[str, Any]) -> dict[str, ReportSection]:
    """The sections that have results."""
    found = {}
    for name, module in SECTIONS.items():
        entries = [entry for entry in content["results"] if entry["section"] == name]
        if entries:
            found[name] = module.summarize(entries)
    return found


def markdown(content: dict[str, Any], name: str, folder: str) -> tuple[str, dict[str, str]]:
    """The report as Markdown, and its charts by name."""
    found = sections(content)
    lines = [*INTRODUCTION.format(name=name, folder=folder).splitlines(), ""]
    hardware = content["machine"]
    lines += ["## Machine", "", *(f"- {key}: {value}" for key, value in hardware.items() if value)]
    versions: dict[str, set[str]] = {}
    for entry in content["results"]:
        for package, version in entry["versions"].items():
            versions.setdefault(package, set()).add(version)
    if versions:
        lines.append("- versions: " + ", ".join(f"{package} {' and '.join(sorted(v))}" for package, v in versions.items()))
        dates = sorted({entry["date"] for entry in content["results"]})
        lines.append(f"- measured: {dates[0]}" + (f" to {dates[-1]}" if dates[-1] > dates[0] else ""))
    lines.append("")
    targets = [target for section in found.values() for target in section.targets]
    if targets:
        summary = ReportSection("Targets")
        summary.add_table(["", "target", "measured", "met"], [[*target[:3], yes_or_no(target.met)] for target in targets])
        lines += ["## Targets", "", *summary.lines]
    for section in found.values():
        lines += [f"## {section.title}", "", *(line.replace("{folder}", folder) for line in section.lines)]
    charts = {name: chart for section in found.values() for name, chart in section.charts.items()}
    return "\n".join(lines).rstrip() + "\n", charts


def write(content: dict[str, Any], out: Path) -> None:
    """Write the Markdown file, and its charts to the folder of the same name beside it."""
    folder = out.with_suffix("")
    text, charts = markdown(content, out.name if out.is_absolute() else str(out), folder.name)
    for name, chart in charts.items():
        _write_if_changed(folder / f"{name}.svg", chart + "\n")
    _write_if_changed(out, text)


def _write_if_changed(path: Path, text: str) -> None:
    """The report is written after each measurement: most charts stay, and each atomic write waits for the disk."""
    if not path.exists() or path.read_text("utf-8") != text:
        write_atomically(path, text)


def terminal(content: dict[str, Any], names: Sequence[str]) -> str:
    """The sections of these names as in the report, without charts."""
    lines = []
    for section in (section for name, section in sections(content).items() if name in names):
        lines += [section.title, "", *(line for line in section.lines if not line.startswith("![")), ""]
    return "\n".join(lines).rstrip()

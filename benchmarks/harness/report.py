"""The report: Markdown and pictures, from the file of results alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.harness.part import Part, verdict
from benchmarks.quality import told
from benchmarks.quality.results import SECTION as QUALITY
from benchmarks.speed.sections import SECTIONS as SPEED
from everypair.runtime.atomic_files import write_atomically

SECTIONS: dict[str, ModuleType] = {QUALITY: told, **SPEED}

INTRODUCTION = """# Benchmarks

How good it is beside published results, and how fast beside other libraries. Written by `everypair benchmark`; every figure comes
from the run that it describes, and can be had again with

    pip install everypair implicit irspack cmfrec lightfm-next
    everypair benchmark quality --data DIR --out {name}
    everypair benchmark speed --data DIR --out {name}

`DIR` is a folder with a folder per data set: Parquet files `train` and `test`, or `interactions`, `users` and `items`. `--only` and
`--rows` run parts of it, `benchmark speed --quick` a small version on generated data. `{folder}/results.json` keeps what was
measured: a run with the same arguments goes on where the last one ended.

In sections on speed, each contender has a process of its own, with the same data, loss, factors and number of threads, with its
own best solver settings and with threads of BLAS as its project recommends. Runs of all contenders take turns. Figures are medians;
in brackets are the smallest and the largest. Machines are noisy and differ: ratios within a run say more than seconds."""


def parts(content: dict[str, Any]) -> dict[str, Part]:
    """The parts of sections that have results."""
    found = {}
    for name, section in SECTIONS.items():
        entries = [entry for entry in content["results"] if entry["section"] == name]
        if entries:
            found[name] = section.part(entries)
    return found


def markdown(content: dict[str, Any], name: str, folder: str) -> tuple[str, dict[str, str]]:
    """The report as text, and its pictures."""
    found = parts(content)
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
    targets = [target for part in found.values() for target in part.targets]
    if targets:
        summary = Part("Targets")
        summary.table(["", "target", "measured", "met"], [[what, aim, got, verdict(met)] for what, aim, got, met in targets])
        lines += ["## Targets", "", *summary.lines]
    for part in found.values():
        lines += [f"## {part.title}", "", *(line.replace("{folder}", folder) for line in part.lines)]
    pictures = {name: picture for part in found.values() for name, picture in part.pictures.items()}
    return "\n".join(lines).rstrip() + "\n", pictures


def write(content: dict[str, Any], out: Path) -> None:
    """The Markdown file, and its pictures in the folder of the same name beside it."""
    folder = out.with_suffix("")
    text, pictures = markdown(content, out.name if out.is_absolute() else str(out), folder.name)
    for name, picture in pictures.items():
        write_atomically(folder / f"{name}.svg", picture + "\n")
    write_atomically(out, text)


def terminal(content: dict[str, Any], sections: Sequence[str]) -> str:
    """Tables of some sections as they are in the report, without pictures."""
    lines = []
    for part in (part for name, part in parts(content).items() if name in sections):
        lines += [part.title, "", *(line for line in part.lines if not line.startswith("![")), ""]
    return "\n".join(lines).rstrip()

"""Telling: medians and ratios as text, as a table for docs/performance/figures.md, and as a picture."""

import os
import platform
import statistics
import sys
import time

import gate
from gate import summary

from .group import Group

PLACES_COMPARED = ("NEAR", "FAR", "SMT", "BUSY")


def machine():
    model = "unknown"
    with open("/proc/cpuinfo") as lines:
        for line in lines:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return {"cpu": model, "cores": os.cpu_count(), "kernel": platform.release()}


def now():
    return time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime())


def compare(group, data, references):
    """Weft's median by that of the best reference, in the first place where Weft and all of them have been."""
    there = [name for name in references if name in data and any(data[name].values())]
    for place in (gate.wanted, *PLACES_COMPARED):
        values = [statistics.median(data[name][place]) for name in there if data[name].get(place)]
        if values and len(values) == len(there) and data["weft"].get(place) and group.best(values):
            return statistics.median(data["weft"][place]) / group.best(values), place
    return None, None


def verdicts(group, data):
    """[(goal as text, the verdict, how much)]; only cores in the wanted place, and not shared with others, give one."""
    told, word = [], "at least" if group.more_is_better else "at most"
    for goal in group.goals:
        times, place = compare(group, data, goal.references)
        if times is not None:
            verdict = "undecided" if place != gate.wanted else "reached" if group.reached(times, goal.factor) else "missed"
            told.append((f"{word} {goal.factor} x {' or '.join(goal.references)}", verdict, f"{times:.3g} ({place})"))
    median = summary(data["weft"])[0]
    if group.most is not None and median is not None:
        told.append((f"at most {group.most} {group.unit}", "reached" if median <= group.most else "missed", f"{median:.4g}"))
    return told


def tell(group, data):
    print(group.title)
    for name, places in data.items():
        median, where = summary(places)
        if median is None:
            print(f"  {name:22s} gave nothing")
            continue
        values = places[where] if where == gate.wanted else [v for p in places.values() for v in p]
        times, place = compare(group, data, [name])
        told = "" if name == "weft" else f"weft is {times:.3g} x ({place})" if times else "never in the same place as weft"
        print(f"  {name:22s} {median:11.5g} {group.unit:4s} ({min(values):.5g} to {max(values):.5g}, {len(values)} {where})  {told}")
    for goal, verdict, value in verdicts(group, data):
        print(f"  goal: {goal}: {verdict.upper() if verdict == 'missed' else verdict}, {value}")
    sys.stdout.flush()


def where(result):
    machine = result["machine"]
    return f'{machine["cpu"]}, {machine["cores"]} cores, Linux {machine["kernel"]}, {result["place"]}'


# ---- a table ---------------------------------------------------------------------------------------------------------


def number(value):
    return "-" if value is None else f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def row(group, data):
    """None where Weft never was in the wanted place."""
    def median(name):
        value, where = summary(data[name]) if name in data else (None, None)
        return value if where == gate.wanted else None

    if median("weft") is None:
        return None
    peers = [name for name in data if name.startswith(("ucx", "libev", "open mpi", "openmpi", "mpich", "ucc", "gloo", "starpu"))]
    medians = {name: median(name) for name in peers if median(name) is not None}
    best = min(medians, key=lambda n: -medians[n] if group.more_is_better else medians[n]) if medians else None
    ratio = median("weft") / medians[best] if best and medians[best] else None
    limit = f"{number(median(group.limit))} ({group.limit})" if group.limit else "-"
    goals = "; ".join(f"{goal}: {verdict}, {value}" for goal, verdict, value in verdicts(group, data))
    peer = f"{number(medians[best])} ({best})" if best else "-"
    return f"| {group.title} | {group.unit} | {number(median('weft'))} | {peer} | {number(ratio)} | {goals or '-'} | {limit} |"


def table(known, results):
    """A table for each machine and place, with a line above that names them where there are several."""
    head = ["| what | unit | Weft | best peer | Weft ÷ peer | goal | the machine itself |", "|---|---|---|---|---|---|---|"]
    tables = {}
    for name, result in results.items():
        group = known.get(name) or Group(result["title"], result["unit"], {})
        with gate.wanting(result["place"]):
            tables.setdefault(where(result), []).append(row(group, result["samples"]))
    texts = {at: "\n".join(head + [row for row in rows if row]) for at, rows in tables.items()}
    return "\n\n".join(text if len(texts) == 1 else f"{at}:\n\n{text}" for at, text in texts.items())


# ---- a picture -------------------------------------------------------------------------------------------------------


def escape(text):
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def draw(path, results):
    """Bars, a group below the other, each group to its own scale."""
    places = list(dict.fromkeys(where(group) for group in results.values()))
    left, width, bar = 190, 760, 20
    rows, y = [], 60
    for group in results.values():
        with gate.wanting(group["place"]):
            medians = {name: summary(samples)[0] for name, samples in group["samples"].items()}
        medians = {name: value for name, value in medians.items() if value}
        if not medians:
            continue
        most = max(medians.values())
        better = "longer is better" if group["unit"] in ("M/s", "k/s", "GB/s", "1/s") else "shorter is better"
        number = f" ({places.index(where(group)) + 1})" if len(places) > 1 else ""
        rows.append(f'<text x="16" y="{y}" class="title">{escape(group["title"])}: {better}{number}</text>')
        y += 10
        for name, value in medians.items():
            length = value / most * (width - left - 110)
            color = "#1565c0" if name == "weft" else "#b0bec5"
            rows.append(f'<text x="{left - 8}" y="{y + 14}" text-anchor="end">{escape(name)}</text>'
                        f'<rect x="{left}" y="{y}" width="{length:.1f}" height="{bar - 4}" fill="{color}"/>'
                        f'<text x="{left + length + 6:.1f}" y="{y + 14}">{value:.3g} {group["unit"].replace("us", "µs")}</text>')
            y += bar
        y += 34
    heading = places[0] if len(places) == 1 else "; ".join(f"({i}) {place}" for i, place in enumerate(places, 1))
    with open(path, "w") as out:
        out.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y}" viewBox="0 0 {width} {y}">\n'
                  "<style>text{font:12px sans-serif;fill:#333}.title{font-weight:bold;font-size:13px}</style>\n"
                  '<rect width="100%" height="100%" fill="#fff"/>\n'
                  f'<text x="16" y="24">{escape(heading)}: medians</text>\n' + "\n".join(rows) + "\n</svg>\n")

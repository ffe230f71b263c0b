"""Task graphs on two processors, beside StarPU and the same steps one after the other."""

from .group import Goal, Group
from .samples import tabbed


def groups(here):
    if not here.graph:
        return {}
    known = {}
    for what, title, unit in (("tasks", "an empty task", "ns"), ("pipeline", "a step of a pipeline of three stages", "ns"),
                              ("cholesky", "a Cholesky factorisation by blocks, 768 x 768", "us")):
        members = {"weft": tabbed([here.graph, what])}
        if here.starpu:
            members["starpu"] = tabbed([here.starpu, what])
        if what == "cholesky":
            members["serial"] = tabbed([here.graph, "cholesky_serial"])
        peers = [name for name in members if name != "weft"]
        known[f"graph_{what}"] = Group(title, unit, members, [Goal(1.0, *peers)] if peers else [])
    return known

"""Samples gated by where the host has put our two cores.

A virtual machine's cores wander: they are siblings of one core (SMT), share a cache (NEAR), or do not (FAR), and what
two processes tell each other costs accordingly. So each run is made between two looks at the distance; a sample counts for
the place that both looks saw, or for MIX. Only what was in the wanted place is compared: NEAR, or FAR on a machine whose
cores never are nearer (bench/compare --place). Spinners of the lowest class keep the cores
from halting, and thereby in place; while the place is not the wanted one they pause, so that the host may deal anew. A sample
in the wanted place during which others had more than a tenth of the two cores' time counts for BUSY.
"""

import contextlib
import os
import resource
import statistics
import subprocess
import time

PLACES = ("SMT", "NEAR", "FAR", "MIX", "BUSY")
wanted = "NEAR"
OTHERS_AT_MOST = 0.1


def children_s():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextlib.contextmanager
def wanting(place):
    """For samples that were taken for another place than what is wanted now."""
    global wanted
    before, wanted = wanted, place
    try:
        yield
    finally:
        wanted = before


def place_of(ns):
    return "SMT" if ns < 45 else "NEAR" if ns < 130 else "FAR"


class Gate:
    def __init__(self, tools, awake=True, patience=3.0):
        self.tools, self.awake, self.patience = tools, awake, patience
        self.spinners = None

    def __enter__(self):
        self.spin(True)
        return self

    def __exit__(self, *_):
        self.spin(False)

    def spin(self, on):
        if on and self.awake and not self.spinners:
            self.spinners = subprocess.Popen([os.path.join(self.tools, "awake")])
            time.sleep(0.03)
        elif not on and self.spinners:
            self.spinners.kill()
            self.spinners.wait()
            self.spinners = None

    def look(self):
        out = subprocess.run([os.path.join(self.tools, "place")], stdout=subprocess.PIPE, text=True, check=True)
        return place_of(float(out.stdout))

    def steer(self):
        """Waits for the wanted place, within its patience; returns the place it is."""
        here = self.look()
        if here == wanted or not self.awake:
            return here
        self.spin(False)
        end = time.monotonic() + self.patience
        while here != wanted and time.monotonic() < end:
            time.sleep(0.2)
            here = self.look()
        self.spin(True)
        return self.look()

    def spun_s(self):
        """Processor time of the spinners."""
        with open(f"/proc/{self.spinners.pid}/task/{self.spinners.pid}/children") as children:
            pids = children.read().split()
        total = 0
        for pid in pids:
            with open(f"/proc/{pid}/schedstat") as text:
                total += int(text.read().split()[0]) / 1e9
        return total

    def run(self, member):
        """One sample; and whether the two cores were its own, the spinners' part included. Not asked of one whose
        processes are not all waited for here: their time cannot be told from others'."""
        if not self.spinners or getattr(member, "is_apart", False):
            return member(), True
        begin, children, spun = time.monotonic(), children_s(), self.spun_s()
        value = member()
        time_there_was = 2 * (time.monotonic() - begin)
        used = children_s() - children + self.spun_s() - spun
        return value, used >= (1 - OTHERS_AT_MOST) * time_there_was

    def alternate(self, members, samples, seconds):
        """Runs each member in turn, until each has `samples` in the wanted place or `seconds` are over.

        members: {name: function that runs once and returns a number, or None}
        Returns {name: {place: [numbers]}}.
        """
        data = {name: {place: [] for place in PLACES} for name in members}
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            missing = [name for name in members if len(data[name][wanted]) < samples]
            if not missing:
                break
            for name in missing:
                before = self.steer()
                value, undisturbed = self.run(members[name])
                after = self.look()
                place = before if before == after else "MIX"
                if place == wanted and not undisturbed:
                    place = "BUSY"
                if value is not None:
                    data[name][place].append(value)
        return data


def summary(places):
    """Median of the wanted place, or of everything where that was never met; and which it is."""
    values = places[wanted]
    if values:
        return statistics.median(values), wanted
    everything = [v for place in PLACES for v in places.get(place, ())]
    return (statistics.median(everything), "any") if everything else (None, "none")

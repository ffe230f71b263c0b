"""What is compared with what: a group of members sampled in turn, Weft first, and the goals that Weft has in it."""

from dataclasses import dataclass, field


@dataclass
class Goal:
    """Weft's median is at most (or, where more is better, at least) `factor` times the best of `references`."""

    factor: float
    references: tuple

    def __init__(self, factor, *references):
        self.factor, self.references = factor, references


@dataclass
class Group:
    title: str
    unit: str  # us, M/s, GB/s, B, 1/s, k/s, %
    members: dict  # {name: how to sample it}; the first is "weft"
    goals: list = field(default_factory=list)
    limit: str = None  # the member that is what the machine itself can do
    most: float = None  # a goal that is a number of its own
    samples: int = None  # enough of each, where that is fewer than asked for

    @property
    def more_is_better(self):
        return self.unit in ("M/s", "k/s", "GB/s", "1/s")

    def best(self, values):
        return max(values) if self.more_is_better else min(values)

    def reached(self, ratio, factor):
        return ratio >= factor if self.more_is_better else ratio <= factor

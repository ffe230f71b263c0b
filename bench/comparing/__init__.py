"""Weft beside its peers: what there is to run, one sample of each, what belongs together, and how it is told."""

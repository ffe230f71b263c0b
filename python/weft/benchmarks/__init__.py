"""Measurements that a user can run: python -m weft.benchmarks.send_recv."""

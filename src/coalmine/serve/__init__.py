"""A page on this machine: runs with their verdicts, running ones live, reports and comparisons. It reads, and only reads.

No file of a run is ever sent: pages are drawn from what the report reads, so that a secret cannot be asked for.
"""

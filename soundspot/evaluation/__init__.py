"""Evaluation that can be trusted: truth maps, protocols, benchmarks, baselines, intervals, audit.

What judges annotations and maps is NumPy and imports no torch; only what runs a model does.
"""

"""Evaluation you can trust: protocols, benchmarks, baselines, intervals, reports, the leak audit.

Scoring is NumPy and imports no torch; only running a model does.
"""

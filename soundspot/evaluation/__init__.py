"""Evaluation that can be trusted: truth maps, protocols, benchmarks, baselines, intervals, audit.

Everything here is NumPy: annotations can be scored and audited without importing torch.
"""

"""Reproduce the paper's tables and figures: their definitions, runs, results and costs."""

"""Modules that several plugins use: nodes, scores, hints, victims, budgets, volumes, classes."""

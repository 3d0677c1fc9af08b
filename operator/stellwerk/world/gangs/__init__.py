"""Decisions on groups of pods: all members in one go, on the World that single pods are decided on.

The scheduler's group cycle and explanations drive them step by step. Invariant: what is tried and
not taken is undone before the decision is given.
"""

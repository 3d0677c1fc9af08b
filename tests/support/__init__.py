"""Builders, strategies and readers that tests of several areas share."""

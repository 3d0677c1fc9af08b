"""Amounts and scoring strategies, which NodeResourcesFit shares with its older relatives."""

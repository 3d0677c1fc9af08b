"""The controllers of the embedded cluster, each a small loop over its store."""

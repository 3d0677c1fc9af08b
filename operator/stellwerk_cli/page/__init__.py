"""The page: what the operator knows, in a browser on the same machine."""

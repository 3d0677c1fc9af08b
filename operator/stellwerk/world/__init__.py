"""The World that decisions read, decisions, and their effects: no I/O, no event loop."""

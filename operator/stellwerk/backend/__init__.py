"""State that changes and does no I/O: the cache, the scheduling queue and the nominator."""

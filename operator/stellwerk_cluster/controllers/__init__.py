"""The small controllers of the embedded cluster: they read the store and write by the API."""

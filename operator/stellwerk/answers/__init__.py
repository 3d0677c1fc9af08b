"""The answers of the operator's port as values: explanations, what-if, listings."""

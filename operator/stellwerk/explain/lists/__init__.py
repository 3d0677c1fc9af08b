"""A list of the operator's port a module, with the explanation of one of its entries."""

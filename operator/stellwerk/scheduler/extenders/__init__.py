"""HTTP extenders of a profile, and the objects that are sent to them."""

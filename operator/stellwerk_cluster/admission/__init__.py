"""What the API server adds to objects and what it refuses: defaults, admission, validation."""

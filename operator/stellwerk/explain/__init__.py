"""Why, why not, what would help, what if: pure answers computed on a snapshot."""

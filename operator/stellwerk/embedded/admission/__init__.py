"""What the embedded API server defaults, mutates and refuses before it stores an object."""

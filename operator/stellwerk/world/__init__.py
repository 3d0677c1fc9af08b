"""What decisions read, how they are made, and what follows from them: no I/O, no event loop."""

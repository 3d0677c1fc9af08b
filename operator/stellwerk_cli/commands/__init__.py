"""The commands of the command line, a module each: its arguments, and what it runs."""

"""The command line, the page and everything else that people touch.

`cli` reads the arguments and calls one module of `commands`. Invariant: this package alone may
import all others; none of them imports it.
"""

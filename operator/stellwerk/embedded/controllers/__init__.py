"""The small controllers of the embedded cluster: each reads the store and writes through the
API.
"""

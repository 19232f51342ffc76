"""telegrad-launch: one command that starts a job on all its hosts; docs/launch.md.

It needs nothing but Python's standard library, and not the rest of telegrad.
"""

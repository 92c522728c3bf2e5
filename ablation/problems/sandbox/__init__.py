"""Code that nobody trusts, run in a bubblewrap sandbox: its own Python process with nothing around it.

What the sandbox keeps: no network, no environment, no host `/proc`, a read-only root that holds a Python and its standard
library, an empty working folder of limited size, no capabilities, a system call filter, and limits on time, memory, processes,
output and files. When it ends, all its processes are dead.

What it does not promise: that code inside is honest. Code can do what it likes to the Python that runs it, so nothing inside
knows what the right answer is, and nothing inside says whether an answer is right. Values come out, and the parent compares
them.
"""

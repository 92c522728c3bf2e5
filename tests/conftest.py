"""Settings of the whole suite."""

import signal

from hypothesis import settings

# A job in a shell's background ignores Ctrl-C, and so would the programs that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# An example's time says more about what else the machine does than about the code.
settings.register_profile("ablation", deadline=None)
settings.load_profile("ablation")

"""Settings of the whole suite."""

from hypothesis import settings

# An example's time says more about what else the machine does than about the code.
settings.register_profile("ablation", deadline=None)
settings.load_profile("ablation")

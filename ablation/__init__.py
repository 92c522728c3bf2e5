"""Pre-registered ablations of RL fine-tuning: plan, lock, run, verdict."""

__version__ = "0.1.0"

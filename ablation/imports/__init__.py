"""Rollouts that were sampled by another program: read, checked against the locked plan, and kept as stages of its run."""

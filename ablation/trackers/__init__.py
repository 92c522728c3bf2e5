"""Exports of a run's figures to TensorBoard, Weights & Biases, MLflow and trackio.

A tracker reads the run folder from a process of its own: the journal is its queue. So nothing that it does, and nothing that
happens to it, reaches the process that trains. Only numbers and the plan's names leave: no prompt, no text, no token id.
"""

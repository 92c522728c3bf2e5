"""Failures of the sandbox itself. They say nothing about the answer that was to run in it."""

from __future__ import annotations

from ablation.errors import AblationError, UsageError


class SandboxError(AblationError):
    """The sandbox could not do its work."""


class NoSandbox(SandboxError, UsageError):
    """There is none on this machine."""

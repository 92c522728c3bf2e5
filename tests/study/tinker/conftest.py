"""Nothing here runs where SkyRL's server is not installed."""

from tests.policy.tinker.fixtures import *  # noqa: F403

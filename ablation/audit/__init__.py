"""An independent way from raw rollouts to labels, to be compared with the engine's."""

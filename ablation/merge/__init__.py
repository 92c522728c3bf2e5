"""From a checkpoint to a model without an adapter: merged tensor by tensor, checked, and only then named as finished."""

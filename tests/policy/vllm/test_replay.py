"""The share of rollouts that come out the same again, from a sampler that is known to be unstable; no vLLM is needed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ablation.errors import IntegrityError
from ablation.policy.decoding import Decoding, decode
from ablation.policy.vllm.messages import SamplingValues
from ablation.policy.vllm.preflight import AGAIN, SAMPLED_ROLLOUTS, SAMPLED_TEXTS, _frequencies

from .conftest import END


class Sampler:
    """Stands where a `VllmPolicy` does. In a batch of AGAIN it flips the last token of every `flips`-th rollout, in a larger one none:
    flipped tokens are unlikely ones, and the preflight would find so many of them among those whose frequencies it looks at."""

    def __init__(self, plan, trainer, prompts, flips):
        self.plan, self.trainer, self.prompts, self.flips = plan, trainer, prompts, flips
        sampling = plan.sampling
        self.values = SamplingValues(
            sampling.temperature, sampling.top_p, sampling.top_k, sampling.max_tokens, sampling.top_logprobs, (END,)
        )
        self.asked = []

    def hand_over(self):
        return None

    def sample_with(self, requests, values, adapter):
        self.asked.append(len(requests))
        trainer = self.trainer
        how = Decoding(values.temperature, values.top_p, values.top_k, values.max_tokens, values.top_logprobs, values.end_ids, 0)
        sampled = decode(trainer.next_token_logits, trainer.layers, list(requests), how, trainer.device, None)
        return [self._flipped(one) if self._unstable(place, len(requests)) else one for place, one in enumerate(sampled)]

    def _unstable(self, place, batch):
        return self.flips and batch <= AGAIN and place % self.flips == 0

    @staticmethod
    def _flipped(one):
        ids = one.token_ids.copy()
        ids[-1] = 10 if ids[-1] != 10 else 11
        return replace(one, token_ids=ids)


@pytest.mark.parametrize("flips, share", [(0, 1.0), (4, 0.75), (2, 0.5)])
def test_tokens_that_flip_with_the_batch_are_reported_as_a_share(plan, trainer, prompts, flips, share):
    trainer.reset()
    sampler = Sampler(plan, trainer, prompts, flips)
    found = _frequencies(sampler)
    assert sampler.asked == [SAMPLED_TEXTS * SAMPLED_ROLLOUTS, AGAIN]
    assert found["same_seed_identical"] == share
    assert np.isfinite(found["sampled_evidence"])


def test_tokens_that_flip_among_others_are_found_by_how_unlikely_they_are(plan, trainer, prompts):
    trainer.reset()
    sampler = Sampler(plan, trainer, prompts, 4)
    sampler._unstable = lambda place, batch: batch > AGAIN and place % 4 == 0
    with pytest.raises(IntegrityError, match="times likelier at temperature 2 than under the plan's sampling values"):
        _frequencies(sampler)

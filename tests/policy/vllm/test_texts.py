"""What engine and trainer are compared on."""

from __future__ import annotations

from ablation.policy.vllm.texts import broken_off, probe_values, prompt_ends


def test_a_text_that_breaks_off_is_the_first_half_of_a_prompts_end():
    prompt = list(range(100))
    assert prompt_ends([prompt], 4) == [tuple(range(52, 100))]
    assert broken_off([prompt], 4) == [tuple(range(52, 76))]
    assert broken_off([[1, 2, 3], [7]], 4) == [(1, 2), (7,)]


def test_probes_never_end_before_their_tokens_and_show_raw_logprobs_unless_they_look_for_unlikely_tokens():
    plain, unsure = probe_values(8, 20), probe_values(4, 20, unsure=True)
    assert (plain.temperature, plain.top_p, plain.top_k, plain.max_tokens, plain.end_ids) == (0.7, 0.95, 5, 8, ())
    assert (unsure.temperature, unsure.top_p, unsure.top_k, unsure.max_tokens) == (2.0, 1.0, 20, 4)

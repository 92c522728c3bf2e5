"""A stand-in for a vLLM server where vLLM is not installed: its protocol, with a made-up model of 40 tokens behind it."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from tests.policy.vllm.middle import GENERATE, Answer, event, whole

VOCABULARY = 40


class StandIn:
    """Answers as vLLM 0.32 does. `adapters`: names that are loaded."""

    def __init__(self) -> None:
        self.version, self.started, self.context = "0.32.0", 1.7e9, 512
        self.adapters: dict[str, str] = {}

    def answer(self, method: str, path: str, body: dict[str, Any] | None) -> Answer:
        if path == "/version":
            return whole({"version": self.version})
        if path == "/v1/models":
            base = {"id": "base", "root": "/models/base", "parent": None, "max_model_len": self.context}
            mine = [{"id": name, "root": root, "parent": "base"} for name, root in self.adapters.items()]
            return whole({"object": "list", "data": [base, *mine]})
        if path == "/metrics":
            return whole(
                f"# HELP\nprocess_start_time_seconds {self.started}\n"
                'vllm:cache_config_info{block_size="16",enable_prefix_caching="True",kv_cache_size_tokens="9000"} 1.0\n'.encode()
            )
        if path == "/v1/completions":
            return whole({"choices": [], "system_fingerprint": "vllm-0.32.0-0123abcd"})
        if path == "/v1/load_lora_adapter":
            if not os.path.isfile(f"{body['lora_path']}/adapter_config.json"):
                return _error(404, f"Loading lora failed: No adapter found for {body['lora_path']}")
            self.adapters[body["lora_name"]] = body["lora_path"]
            return whole(b"Success")
        if path == "/v1/unload_lora_adapter":
            if self.adapters.pop(body["lora_name"], None) is None:
                return _error(404, f"The lora adapter '{body['lora_name']}' cannot be found.")
            return whole(b"Success")
        if path == GENERATE:
            if body["model"] != "base" and body["model"] not in self.adapters:
                return _error(404, f"The model `{body['model']}` does not exist.")
            return Answer(200, self._events(body), "text/event-stream; charset=utf-8")
        return whole({"detail": "Not Found"}, 404)

    def _events(self, body: dict[str, Any]):
        values, prompt = body["sampling_params"], body["token_ids"]
        places, reason, stop = [], "length", None
        last, stops = prompt[-1], values.get("stop_token_ids", [])
        for place in range(values.get("max_tokens", 16)):
            logits = np.random.default_rng([last, place, len(body["model"])]).normal(size=VOCABULARY)
            logprobs = logits - np.log(np.exp(logits).sum())
            last = _sampled(logprobs, place, values)
            places.append((last, logprobs))
            if last in stops:
                reason, stop = "stop", last
                break
        for begin, end in ((0, 1), (1, len(places))):
            if begin == end:
                continue
            ended = end == len(places)
            choice = {
                "index": 0,
                "token_ids": [token for token, _ in places[begin:end]],
                "logprobs": {"content": [_told(token, logprobs, values["logprobs"]) for token, logprobs in places[begin:end]]},
                "finish_reason": reason if ended else None,
                "stop_reason": stop if ended else None,
            }
            yield event({"choices": [choice]} | ({"prompt_token_ids": prompt} if begin == 0 else {}))
        yield event({"choices": [], "usage": {"prompt_tokens": len(prompt), "completion_tokens": len(places)}})
        yield event(b"[DONE]")


def _sampled(logprobs: np.ndarray, place: int, values: dict[str, Any]) -> int:
    temperature = values.get("temperature", 1.0)
    if temperature == 0:
        return int(logprobs.argmax())
    order = np.argsort(-logprobs)
    share = np.exp(logprobs[order] / temperature)
    share /= share.sum()
    keep = np.cumsum(share) - share < values.get("top_p", 1.0)
    if values.get("top_k"):
        keep[values["top_k"] :] = False
    noise = np.random.default_rng([values.get("seed", 1), place]).gumbel(size=VOCABULARY)
    return int(order[np.where(keep, np.log(share) + noise, -np.inf).argmax()])


def _told(token: int, logprobs: np.ndarray, width: int) -> dict[str, Any]:
    order = [int(one) for one in np.argsort(-logprobs) if one != token]
    likely = [token, *order[: width - 1]]
    return {
        "token_id": token,
        "logprob": float(np.float32(logprobs[token])),
        "rank": 1,
        "top_logprobs": [{"token_id": one, "logprob": float(np.float32(logprobs[one])), "rank": 1} for one in likely],
    }


def _error(status: int, message: str) -> Answer:
    return whole({"error": {"message": message, "type": "NotFoundError", "param": None, "code": status}}, status)

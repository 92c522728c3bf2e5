"""A trainer of somebody else, for tests: nothing of ablation in it, only its environment variables. Plain SGD on rewarded tokens."""

import json
import os
from pathlib import Path

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM


def main() -> None:
    torch.manual_seed(int(os.environ["ABLATION_SEED"]))
    torch.set_num_threads(1)
    base = AutoModelForCausalLM.from_pretrained(os.environ["ABLATION_BASE"], dtype=torch.float32)
    model = PeftModel.from_pretrained(base, os.environ["ABLATION_ADAPTER_IN"], is_trainable=True)
    rows = [json.loads(line) for line in Path(os.environ["ABLATION_ROLLOUTS"]).read_text().splitlines()]
    groups: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        groups.setdefault((row["problem"], row["effort"]), []).append(row["reward"])
    loss, furthest = torch.zeros(()), 0.0
    for row in rows:
        rewards = groups[row["problem"], row["effort"]]
        ids = torch.tensor([row["prompt_ids"] + row["token_ids"]])
        logits = model(input_ids=ids).logits[0, len(row["prompt_ids"]) - 1 : -1]
        logprobs = torch.log_softmax(logits, dim=-1).gather(1, torch.tensor(row["token_ids"])[:, None])[:, 0]
        furthest = max(furthest, float((logprobs.detach() - torch.tensor(row["logprobs"])).abs().max()))
        loss = loss - (row["reward"] - sum(rewards) / len(rewards)) * logprobs.mean()
    optimizer = torch.optim.SGD(
        [one for one in model.parameters() if one.requires_grad], lr=float(os.environ["ABLATION_LEARNING_RATE"])
    )
    loss.backward()
    optimizer.step()
    out, earlier = Path(os.environ["ABLATION_OUT"]), os.environ.get("ABLATION_STATE_IN")
    model.save_pretrained(out, save_embedding_layers=False)  # or peft adds the frozen matrix of lm_head
    done = json.loads((Path(earlier) / "steps.json").read_text()) if earlier else []
    (out / "state" / "deep").mkdir(parents=True)
    step = {"update": int(os.environ["ABLATION_UPDATE"]), "loss": round(float(loss.detach()), 6), "furthest": furthest}
    (out / "state" / "steps.json").write_text(json.dumps([*done, step]))
    (out / "state" / "deep" / "seed").write_text(os.environ["ABLATION_SEED"])
    print(f"{len(rows)} rollouts, loss {loss.item():.4f}")


if __name__ == "__main__":
    main()

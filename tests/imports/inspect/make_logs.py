"""How `low.eval` and `medium.eval` were made, with inspect-ai 0.3.285: python make_logs.py FOLDER (its mock model needs no network)."""

import sys

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessageAssistant,
    ContentReasoning,
    ContentText,
    GenerateConfig,
    ModelOutput,
    ModelUsage,
    get_model,
)
from inspect_ai.scorer import match
from inspect_ai.solver import generate


def output(text, reasoning=None, stop="stop"):
    content = [ContentReasoning(reasoning=reasoning), ContentText(text=text)] if reasoning else text
    message = ChatMessageAssistant(content=content, source="generate")
    return ModelOutput(
        model="mockllm/model",
        usage=ModelUsage(input_tokens=4, output_tokens=9, total_tokens=13),
        choices=[ChatCompletionChoice(message=message, stop_reason=stop)],
    )


def answer(messages, tools, tool_choice, config):
    number = int(messages[-1].text.rstrip("?"))
    if number == 5:
        return output("", "and so on " * 21, "max_tokens")
    if number == 4:
        return output(f"<think>just {number} words</think>{number}")
    return output(str(number), f"the number is {number} as it says")


samples = [Sample(id=f"p{number}", input=f"{number}?", target=str(number)) for number in range(6)]
for effort in ("low", "medium"):
    settings = GenerateConfig(temperature=1.0, top_p=1.0, max_tokens=64, reasoning_effort=effort)
    model = get_model("mockllm/model", custom_outputs=answer, config=settings)
    task = Task(name="sums", dataset=samples, solver=[generate()], scorer=match(), epochs=2)
    [log] = eval(task, model=model, log_dir=f"{sys.argv[1]}/{effort}", log_format="eval", display="none", log_realtime=False)
    print(log.status, log.location)

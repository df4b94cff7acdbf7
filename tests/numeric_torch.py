"""numeric_torch.py - PyTorch beside what numeric_values prints: the same config.json as transformers
builds it, in fp64, from the same parameters and tokens, with the same optimizer.

    numeric_torch.py CLIP NAME.config ...

What numeric_values prints of each is in NAME.values.  For each prints "equal NAME" or "other NAME",
the largest difference of losses, gradients, parameters and optimizer states relative to the largest
element of its tensor, and that tensor.  Equal is what differs by 1e-9 at most.
"""

import json
import sys

import torch

# transformers computes norms, softmaxes and losses in fp32 whatever the model's dtype is.
torch.float32 = torch.float = torch.float64
torch.Tensor.float = torch.Tensor.double
torch.set_default_dtype(torch.float64)

import transformers  # noqa: E402

ALLOWED = 1e-9


class Differences:
    def __init__(self):
        self.most, self.where = 0.0, "nothing"

    def compare(self, name, mine, theirs):
        mine = torch.tensor(mine, dtype=torch.float64).reshape(theirs.shape)
        largest = theirs.abs().max().item() or 1.0
        difference = (mine - theirs).abs().max().item() / largest
        if not difference <= self.most:
            self.most, self.where = difference, name


def make_model(path):
    fields = json.load(open(path))
    implementation = fields.pop("implementation", {})
    attention = implementation.get("attention", "sdpa")
    config = transformers.AutoConfig.for_model(fields.pop("model_type"), **fields)
    config._attn_implementation = "eager" if attention == "eager" else "sdpa"
    return transformers.AutoModelForCausalLM.from_config(
        config, dtype=torch.float64, attn_implementation=config._attn_implementation
    ).train()


def set_parameters(model, values):
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            given = torch.tensor(values[name], dtype=torch.float64)
            parameter.copy_(given.reshape(parameter.shape))


def compare_step(model, optimizer, number, step, clip, differences):
    tokens = torch.tensor(step["tokens"], dtype=torch.int64).reshape(BATCH, -1)
    optimizer.zero_grad()
    loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    differences.compare(f"loss of step {number}", step["loss"], loss.detach())
    for name, parameter in model.named_parameters():
        state = optimizer.state[parameter]
        for what, theirs in (
            ("gradient", parameter.grad),
            ("value", parameter.detach()),
            ("first", state["exp_avg"]),
            ("second", state["exp_avg_sq"]),
        ):
            differences.compare(f"{what} of {name}, step {number}", step[what][name], theirs)


def compare(config, clip):
    values = json.load(open(config.replace(".config", ".values")))
    model = make_model(config)
    names = {name for name, _ in model.named_parameters()}
    if names != set(values["first_values"]):
        raise ValueError(f"other parameters: {sorted(names ^ set(values['first_values']))}")
    set_parameters(model, values["first_values"])
    optimizer = torch.optim.AdamW(model.parameters())
    differences = Differences()
    for number, step in enumerate(values["steps"], 1):
        compare_step(model, optimizer, number, step, clip, differences)
    return differences


def main(clip, configs):
    for config in configs:
        name = config.removesuffix(".config")
        try:
            d = compare(config, clip)
            print("equal" if d.most <= ALLOWED else "other", name, f"{d.most:.2g}", d.where)
        except (ValueError, RuntimeError, KeyError) as error:
            print("other", name, error)


BATCH = 2
if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2:])

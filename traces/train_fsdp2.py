"""Trains the model of config.json on random tokens with FSDP2 and records its memory: torchrun --nproc-per-node 8 train.py"""
import pickle

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import AutoConfig, AutoModelForCausalLM

MICRO_BATCH, ACCUMULATION, LENGTH = 4, 4, 4096

if not dist.is_initialized():
    dist.init_process_group("nccl")
device = torch.device("cuda", dist.get_rank() % torch.cuda.device_count())
torch.cuda.set_device(device)
config = AutoConfig.from_pretrained("config.json")
with torch.device("meta"):
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="sdpa")
model.train()
how = {
    "mesh": init_device_mesh("cuda", (dist.get_world_size(),)),
    "mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
    "reshard_after_forward": True,
}
fully_shard(model.model.embed_tokens, **how)
for layer in model.model.layers:
    fully_shard(layer, **how)
fully_shard([model.model.norm, model.lm_head], **{**how, "reshard_after_forward": False})
fully_shard(model, **how)
model.to_empty(device=device)
model.init_weights()
torch.cuda.empty_cache()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
tokens = [torch.randint(config.vocab_size, (MICRO_BATCH, LENGTH), device=device) for _ in range(ACCUMULATION)]

torch.cuda.memory._record_memory_history(context="alloc", stacks="python", max_entries=1_000_000)
for step in range(1, 3):
    with torch.profiler.record_function(f"ProfilerStep#{step}"):
        optimizer.zero_grad(set_to_none=True)
        for ids in tokens:
            loss = model(input_ids=ids, labels=ids, use_cache=False).loss / ACCUMULATION
            loss.backward()
            del loss
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
if dist.get_rank() == 0:
    with open("measured.pickle", "wb") as file:
        pickle.dump(torch.cuda.memory._snapshot(), file)
    print(torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())

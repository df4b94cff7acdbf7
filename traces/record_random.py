#!/usr/bin/env python3
"""Records what PyTorch's CUDA caching allocator does with random allocations, as a trace for
highwater replay: sizes of all kinds, several streams, record_stream, empty_cache, synchronization.

    python record_random.py OUT.trace.json.gz [seed=1] [calls=800] [total_mib=400] [live_mib=200]
                            [alloc_conf=KEY:VALUE,...] [warm_calls=0]

Runs on any torch with CUDA; the traces here were made with torch 2.11 over a stand-in for the CUDA
libraries with a device of total_mib (see README.md)."""
import gzip
import json
import os
import random
import sys

OUT = sys.argv[1]
CONFIG = dict(seed=1, calls=800, total_mib=400, live_mib=200, alloc_conf="", warm_calls=0)
for argument in sys.argv[2:]:
    key, value = argument.split("=", 1)
    CONFIG[key] = value if isinstance(CONFIG[key], str) else int(value)
if CONFIG["alloc_conf"]:
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = CONFIG["alloc_conf"]
os.environ["VCUDA_TOTAL_MIB"] = str(CONFIG["total_mib"])

import torch  # noqa: E402

MIB = 1 << 20
dice = random.Random(CONFIG["seed"])
streams = [torch.cuda.default_stream()] + [torch.cuda.Stream() for _ in range(3)]
live = []  # (tensor, bytes)


def random_bytes():
    kind = dice.random()
    if kind < 0.35:
        return dice.randint(1, 16 * 1024)
    if kind < 0.60:
        return dice.randint(16 * 1024, MIB)
    if kind < 0.85:
        return dice.randint(MIB + 1, 10 * MIB)
    return dice.randint(10 * MIB, 40 * MIB)


def allocate():
    size = random_bytes()
    with torch.cuda.stream(dice.choice(streams)):
        live.append((torch.empty(size, dtype=torch.uint8, device="cuda"), size))


def free():
    if live:
        live.pop(dice.randrange(len(live)))


def record():
    if live:
        dice.choice(live)[0].record_stream(dice.choice(streams))


def call():
    roll = dice.random()
    if sum(size for _, size in live) > CONFIG["live_mib"] * MIB:
        free()
    elif roll < 0.50:
        allocate()
    elif roll < 0.85:
        free()
    elif roll < 0.95:
        record()
    elif roll < 0.985:
        dice.choice(streams).synchronize()
    else:
        torch.cuda.empty_cache()


def snapshot_segment(segment, base):
    blocks = [[b["size"], b["requested_size"], b["state"]] for b in segment["blocks"]]
    return dict(address=segment["address"] - base, total_size=segment["total_size"],
                stream=segment["stream"], segment_type=segment["segment_type"], blocks=blocks)


def main():
    torch.empty(1, device="cuda")
    for _ in range(CONFIG["warm_calls"]):
        call()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_snapshot()
    torch.cuda.memory._record_memory_history(enabled="all", context=None, max_entries=1 << 20)
    error = None
    try:
        for _ in range(CONFIG["calls"]):
            call()
    except torch.OutOfMemoryError:
        error = "out of memory"
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._record_memory_history(enabled=None)
    stats = torch.cuda.memory_stats()
    base = min([s["address"] for s in before] + [e["addr"] for e in trace if "addr" in e])
    events = [[e["action"], e["size"], e.get("addr", base) - base, e.get("stream", 0)]
              for e in trace]
    document = dict(
        config=CONFIG, columns=["action", "size", "addr", "stream"], base_address=base,
        segments_before=[snapshot_segment(s, base) for s in before], events=events, error=error,
        peak_allocated_traced=stats["allocated_bytes.all.peak"],
        peak_reserved_traced=stats["reserved_bytes.all.peak"],
        peak_active_traced=stats["active_bytes.all.peak"],
        peak_requested_traced=stats["requested_bytes.all.peak"],
        peak_inactive_split_traced=stats["inactive_split_bytes.all.peak"],
        retries=stats["num_alloc_retries"])
    with gzip.GzipFile(OUT, "wb", 9, mtime=0) as file:
        file.write(json.dumps(document, separators=(",", ":")).encode())
    print(OUT, len(events), "events", "peak", document["peak_allocated_traced"], "retries",
          document["retries"], error or "")
    os._exit(0)  # the stand-in has no orderly shutdown


main()

"""Records a memory snapshot of three small training steps.  PyTorch alone, one GPU:

    python3 record_snapshot.py KIND FILE.pickle.gz

KIND: training; expandable (expandable_segments:True); cut (max_entries=60: the beginning is lost); out_of_memory (two
tensors of 30 and 60 GiB at the end, on a device of 80 GiB).  Prints PyTorch's own statistics.
"""
import gzip
import os
import pickle
import site
import sys

kind, path = sys.argv[1:3]
if kind == "expandable":
    os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
import torch

before = [torch.empty(3_000_000, device="cuda") for _ in range(3)]  # 12 MB each, allocated before the history begins
side = torch.cuda.Stream()
torch.cuda.memory._record_memory_history(max_entries=60 if kind == "cut" else 100_000, stacks="python")


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(1000, 3000, device="cuda")
        self.b = torch.nn.Linear(3000, 1000, device="cuda")

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


def exchange():
    x = torch.empty(1_500_000, device="cuda")
    with torch.cuda.stream(side):
        y = torch.empty(1000, device="cuda")
    x.record_stream(side)
    return y


net = Net()
optimizer = torch.optim.AdamW(net.parameters())
for step in range(1, 4):
    with torch.profiler.record_function(f"ProfilerStep#{step}"):
        if step == 2:
            before.pop(0)
        kept = exchange()
        net(torch.zeros(512, 1000, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 2:
            torch.cuda.empty_cache()
if kind == "out_of_memory":
    try:
        both = [torch.empty(gib << 30, dtype=torch.uint8, device="cuda") for gib in (30, 60)]
    except torch.OutOfMemoryError as error:
        print(error)
snapshot = torch.cuda.memory._snapshot()

# Where this machine keeps its files is nobody's business.
renamed = set()
for list_of in [snapshot["device_traces"][0]] + [s["blocks"] for s in snapshot["segments"]] + [snapshot["segments"]]:
    for item in list_of:
        for frame in item["frames"]:
            if id(frame) in renamed:
                continue
            renamed.add(id(frame))
            name = frame["filename"].replace(os.path.dirname(os.path.abspath(__file__)), "/home/user")
            for packages in site.getsitepackages():
                name = name.replace(packages, "/usr/lib/python3/site-packages")
            frame["filename"] = sys.intern(name)
with gzip.GzipFile(path, "wb", mtime=0) as file:
    file.write(pickle.dumps(snapshot))
statistics = torch.cuda.memory_stats()
for name in ("allocated_bytes", "reserved_bytes", "active_bytes"):
    print(kind, name, *[f"{key} {statistics[f'{name}.all.{key}']}" for key in ("peak", "current")])

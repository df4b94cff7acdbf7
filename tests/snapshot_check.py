"""Looks at a memory snapshot as its readers do; Python's standard library is enough.

    snapshot_check.py rules FILE PYTORCHS    every opcode is one that PyTorch's viewer knows; every key that PyTorch's
                                             snapshot has is there, of the same type; the history can be undone from its
                                             last entry, as the viewer does it
    snapshot_check.py memory_viz FILE        torch.cuda._memory_viz draws and prints it; 77 without PyTorch

Exits with 1 and says what is wrong.
"""
import collections
import gzip
import importlib.util
import pickle
import pickletools
import sys


def load(path):
    with open(path, "rb") as file:
        data = file.read()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def check(truth, *what):
    if not truth:
        print(*what)
        sys.exit(1)


# torch/utils/viz/MemoryViz.js: unpickle()
KNOWN = set(
    "APPENDS BINGET BININT BININT1 BININT2 EMPTY_DICT EMPTY_LIST FRAME LONG1 LONG_BINGET MARK MEMOIZE PROTO SETITEMS "
    "SHORT_BINUNICODE STOP TUPLE2 APPEND NEWFALSE BINPUT BINUNICODE EMPTY_TUPLE NEWTRUE NONE BINFLOAT TUPLE TUPLE1 "
    "TUPLE3 LONG_BINPUT LIST DICT SETITEM".split()
)


def opcodes(data):
    """Lists are passed on the stack of a function, numbers become doubles."""
    depth, marks = 0, []
    for op, argument, position in pickletools.genops(data):
        check(op.name in KNOWN, "opcode", op.name, "at", position)
        if op.name == "PROTO":
            check(2 <= argument <= 4, "protocol", argument)
        if op.name in ("BININT", "BININT1", "BININT2", "LONG1"):
            check(abs(argument) < 2**53, "number", argument)
        if op.name == "MARK":
            marks.append(depth)
        elif op.name in ("APPENDS", "SETITEMS"):
            mark = marks.pop()
            check(depth - mark <= 1000, "batch of", depth - mark, "at", position)
            depth = mark
        elif op.name == "TUPLE2":
            depth -= 1
        elif op.name not in ("PROTO", "FRAME", "STOP", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            depth += 1


def kinds(items):
    """The keys of all dictionaries, with the types of their values."""
    found = collections.defaultdict(set)
    for item in items:
        for key, value in item.items():
            found[key].add(type(value).__name__)
    return found


def keys(data, pytorchs):
    ours, theirs = pickle.loads(data), pickle.loads(pytorchs)
    parts = {
        "snapshot": lambda s: [s],
        "segments": lambda s: s["segments"],
        "blocks": lambda s: [b for segment in s["segments"] for b in segment["blocks"]],
        "frames": lambda s: [f for entry in s["device_traces"][0] for f in entry["frames"]],
        "allocator_settings": lambda s: [s["allocator_settings"]],
        "roundup_power2_divisions": lambda s: [s["allocator_settings"]["roundup_power2_divisions"]],
        "external_annotations": lambda s: s["external_annotations"],
    }
    for action in {e["action"] for e in ours["device_traces"][0]} & {e["action"] for e in theirs["device_traces"][0]}:
        parts[action] = lambda s, a=action: [e for e in s["device_traces"][0] if e["action"] == a]
    added = {"category", "device_total_bytes", "memory_limit_bytes", "process_limit_bytes"}
    for part, items in parts.items():
        mine, model = kinds(items(ours)), kinds(items(theirs))
        check(set(model) == set(mine) - added, part, "has", sorted(mine), "and not", sorted(model))
        for key in model:
            check(mine[key] <= model[key], part, key, "is", mine[key], "and not", model[key])


def viewer(data):
    snapshot = pickle.loads(data)
    entries = snapshot["device_traces"][0]
    categories = {e["category"] for e in entries if "category" in e}
    check("unknown" in categories, "no entry is of category unknown")
    segments, blocks = {}, {}
    for segment in snapshot["segments"]:
        segments[segment["address"]] = segment["total_size"]
        address = segment["address"]
        for block in segment["blocks"]:
            check(block["address"] == address, "blocks do not tile the segment at", segment["address"])
            if block["state"] != "inactive":
                blocks[address] = block["state"]
            address += block["size"]
        check(address == segment["address"] + segment["total_size"], "segment at", segment["address"], "is not tiled")
        for key, states in (("allocated_size", ["active_allocated"]), ("active_size", blocks.values())):
            check(segment[key] == sum(b["size"] for b in segment["blocks"] if b["state"] in set(states)), key)
    for index in range(len(entries) - 1, -1, -1):
        entry = entries[index]
        action, address, size = entry["action"], entry.get("addr"), entry["size"]
        if action == "alloc":
            check(blocks.pop(address, "") == "active_allocated", index, entry)
        elif action == "free_completed":
            check(address not in blocks, index, entry)
            check(any(s <= address and address + size <= s + n for s, n in segments.items()), index, entry)
            blocks[address] = "active_pending_free"
        elif action == "free_requested":
            check(blocks.get(address) == "active_pending_free", index, entry)
            blocks[address] = "active_allocated"
        elif action == "segment_free":
            segments[address] = size
        elif action == "segment_unmap":  # pages that touch are one segment
            size += segments.pop(address + size, 0)
            below = [s for s, n in segments.items() if s + n == address]
            if below:
                segments[below[0]] += size
            else:
                segments[address] = size
        elif action == "segment_alloc":
            check(segments.pop(address, 0) == size, index, entry)
        elif action == "segment_map":
            whole = [(s, n) for s, n in segments.items() if s <= address and address + size <= s + n]
            check(len(whole) == 1, index, entry)
            start, n = whole[0]
            del segments[start]
            if address > start:
                segments[start] = address - start
            if start + n > address + size:
                segments[address + size] = start + n - address - size
    check(not segments and not blocks, "left at the beginning:", segments, blocks)


def rules(data, pytorchs):
    opcodes(data)
    keys(data, pytorchs)
    viewer(data)


def memory_viz(data):
    torch = importlib.util.find_spec("torch")
    if not torch:
        sys.exit(77)
    # The module alone: PyTorch as a whole may need libraries that are not here.
    path = torch.submodule_search_locations[0] + "/cuda/_memory_viz.py"
    spec = importlib.util.spec_from_file_location("memory_viz", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    snapshot = pickle.loads(data)
    reserved = sum(s["total_size"] for s in snapshot["segments"])
    summary = module.segsum(snapshot)
    check(f"total_reserved: {module.Bytes(reserved)}" in summary, summary)
    trace = module.trace(snapshot)
    check(trace.count("del ") == sum(e["action"] == "free_requested" for e in snapshot["device_traces"][0]), "trace()")
    lines = [module.segments(snapshot, lambda text: text), module.memory(snapshot, lambda text: text)]
    for text in lines:
        check("active_allocated;highwater:0:simulated;" in text, text[:500])
    module.compare(snapshot["segments"], snapshot["segments"], lambda text: text)
    for kind in (module.trace_plot(snapshot), module.segment_plot(snapshot), module.trace_plot(snapshot, filter_freed=True)):
        check("snapshot.pickle" in kind, "plot")


if __name__ == "__main__":
    globals()[sys.argv[1]](*[load(path) for path in sys.argv[2:]])

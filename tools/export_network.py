#!/usr/bin/env python3
"""export_network.py - records what one step of any nn.Module computes, as a network for highwater.

The model runs once, forward and loss, on meta tensors: nothing is allocated or computed.  What is
written is our network format of family "ops" (doc/formats.md): modules and parameters, every op in
order with its operands, when Python lets go of each value, and what autograd keeps of ops that
highwater has no recipe for.  A GPU is not needed, nor any package but PyTorch.

    export_network(model, args, kwargs, loss=fn, loss_args=(labels,)) -> dict

    export_network.py my_model.py:make_model --batch 2 --sequence-length 2048 -o my_model.json
    export_network.py --config config.json --batch 2 --sequence-length 2048 -o model.json
"""
import argparse
import fnmatch
import importlib.util
import json
import logging
import os
import sys
import weakref

import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

aten = torch.ops.aten
DTYPES = {
    torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16", torch.complex64: "complex64",
    torch.int64: "int64", torch.int32: "int32", torch.uint8: "uint8", torch.bool: "bool",
}
MOST_OPERANDS = 8  # of an op, a block or a module call
MOST_OUTPUTS = 5
MOST_RESULTS = 3  # of a block
MOST_DIMS = 5
MOST_TEMPORARIES = 12
MOST_STEPS = 64
META = torch.device("meta")


class ExportError(Exception):
    """What cannot be exported, and why, in one line."""


class NotABlock(Exception):
    """A module cannot be a block: its list is exported as part of the model's forward()."""

    def __init__(self, path, reason):
        super().__init__(reason)
        self.path = path


# ---- values ----


class Value:
    """A tensor as Python code holds it, in one function."""

    def __init__(self, scope, tensor):
        self.scope = scope
        self.dtype = tensor.dtype
        self.shape = tuple(tensor.shape)
        self.stride = tuple(tensor.stride())
        self.requires_grad = tensor.requires_grad
        self.slot = -1
        self.dropped = False

    def describe(self):
        if self.dtype not in DTYPES:
            raise ExportError(f"tensors of {self.dtype} are not supported")
        if len(self.shape) > MOST_DIMS:
            raise ExportError(f"a tensor of {len(self.shape)} dimensions: {MOST_DIMS} are supported")
        d = {"dtype": DTYPES[self.dtype], "shape": list(self.shape)}
        if not is_row_major(self.shape, self.stride):
            d["stride"] = list(self.stride)
        return d


def is_row_major(shape, stride):
    expected = 1
    for size, step in zip(reversed(shape), reversed(stride)):
        if size != 1 and step != expected:
            return False
        expected *= size
    return True


def geometry(tensor):
    return (tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype)


def storage_of(tensor):
    return tensor.untyped_storage()


def is_meta(x):
    return isinstance(x, torch.Tensor) and x.device.type == "meta"


def tensors_in(tree):
    return [x for x in tree_flatten(tree)[0] if is_meta(x)]


class _Made(torch.autograd.Function):
    """A new tensor that requires a gradient if one of the operands does."""

    @staticmethod
    def forward(ctx, make, *operands):
        return make()

    @staticmethod
    def backward(ctx, *gradients):
        raise RuntimeError("recorded tensors have no gradients")


def strided_like(tensor):
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)


# ---- functions ----


class Function:
    """A block's forward(), or the whole step: arguments and statements."""

    def __init__(self, path, outer):
        self.path = path  # of the block, "" for the step
        self.outer = outer
        self.arguments = []  # Value
        self.outer_values = []  # what the caller gives for each
        self.imported = {}  # id of an outer value -> argument
        self.statements = []
        self.values = []  # all of this function's, in order
        self.late_drops = []  # of this function's values, noticed while a block runs
        self.others = []  # results besides `result`
        self.ended = False

    def value(self, tensor):
        v = Value(self, tensor)
        self.values.append(v)
        return v

    def argument(self, outer_value, tensor):
        v = Value(self, tensor)
        self.arguments.append(v)
        self.outer_values.append(outer_value)
        self.imported[id(outer_value)] = v
        return v

    def drop(self, value):
        if value.dropped or value in self.arguments:
            return
        value.dropped = True
        self.statements.append({"drop": [value]})

    def relative(self, name):
        """The name of a parameter or module as the function knows it."""
        if not self.path:
            return name
        if name == self.path:
            return ""
        if not name.startswith(self.path + "."):
            raise NotABlock(self.path, f"it uses {name}, which is not its own")
        return name[len(self.path) + 1:]

    def to_dict(self):
        """Slots are numbered: arguments first, then outputs in the order in which they are made."""
        slot = 0
        for v in self.arguments:
            v.slot = slot
            slot += 1
        statements = []
        for s in self.statements:
            s = dict(s)
            for key in ("in", "drop"):
                if key in s:
                    s[key] = [x.slot if isinstance(x, Value) else self.relative(x) for x in s[key]]
            made = s.get("out", [])
            for v in made:
                v.slot = slot
                slot += 1
            if made and ("op" in s):
                s["out"] = [v.describe() for v in made]
            elif "out" in s:
                del s["out"]
            for key in ("enter", "exit"):
                if key in s:
                    s[key] = self.relative(s[key])
            if len(made) > 1 and "call" in s:
                s["results"] = len(made)
            if statements and "drop" in s and set(statements[-1]) == {"drop"}:
                statements[-1]["drop"] += s["drop"]
            else:
                statements.append(s)
        d = {"arguments": [v.describe() for v in self.arguments], "statements": statements,
             "result": self.result.slot}
        if self.others:
            d["others"] = [v.slot for v in self.others]
        return d


# ---- what one op keeps, and what its backward makes: found by running it alone ----


class _Allocations(TorchDispatchMode):
    """New storages of what runs below, in order, and when they go."""

    def __init__(self, known):
        super().__init__()
        self.known = {storage_of(t)._cdata for t in known}
        self.events = []
        self.number = {}  # storage -> number
        self.count = 0

    def _gone(self, key, number):
        self.number.pop(key, None)
        self.events.append(["free", number])

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for t in tensors_in(out):
            s = storage_of(t)
            key = s._cdata
            if key in self.known or key in self.number:
                continue
            number, self.count = self.count, self.count + 1
            self.number[key] = number
            self.events.append(["alloc", number, t.numel() * t.element_size()])
            weakref.finalize(s, self._gone, key, number)
        return out


class Spec:
    """A tensor's geometry, to make one like it later."""

    def __init__(self, t):
        self.shape, self.stride, self.dtype, self.device = t.shape, t.stride(), t.dtype, t.device
        self.requires_grad = t.requires_grad

    def make(self):
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=self.device)

    def key(self):
        return ("spec", tuple(self.shape), tuple(self.stride), self.dtype, self.requires_grad)


class Analysis:
    """What analyse() is to be asked once the model has run: autograd cannot be seen from below."""

    def __init__(self, call, args, kwargs):
        self.call = call
        self.args, self.kwargs = tree_map(lambda x: Spec(x) if is_meta(x) else x, (args, kwargs))

    def key(self):
        flat, spec = tree_flatten((self.args, self.kwargs))
        return (self.call, str(spec)) + tuple(x.key() if isinstance(x, Spec) else str(x) for x in flat)


def fresh(tree):
    """Tensors in place of the Specs of a tree, and those, in order."""
    found = []

    def one(x):
        if not isinstance(x, Spec):
            return x
        y = x.make()
        if x.requires_grad:  # not a leaf: it may be changed in place
            y = _Made.apply(x.make, y.requires_grad_())
        found.append(y)
        return y

    return tree_map(one, tree), found


def analyse(call, args, kwargs):
    """Saved tensors and backward of one call: {"saves": [...], "kept": bytes, "backward": [...]}, or None when it
    has no gradient."""
    packs = []

    def pack(t):
        packs.append(t)
        return t

    (args, kwargs), ins = fresh((args, kwargs))
    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        outs = tensors_in(call(*args, **kwargs))
    wanted = [x for x in ins if x.requires_grad]
    differentiable = [y for y in outs if y.requires_grad]
    if not wanted or not differentiable:
        return None
    names = {}
    for kind, tensors in (("out", outs), ("in", ins)):
        for i, t in enumerate(tensors):
            names[storage_of(t)._cdata] = f"{kind}{i}"
    saves, others = [], {}
    for t in packs:
        if not is_meta(t):
            continue
        key = storage_of(t)._cdata
        name = names.get(key)
        if name is None:
            others[key] = t.numel() * t.element_size()
        elif name not in saves:
            saves.append(name)
    incoming = [strided_like(y) for y in differentiable]
    result = {"saves": saves, "kept": sum(others.values())}
    known = ins + outs + incoming + packs
    try:
        with _Allocations(known) as made:
            gradients = torch.autograd.grad(differentiable, wanted, incoming, allow_unused=True)
            result["backward"] = backward_steps(made, gradients, wanted, ins, incoming)
    except ExportError:
        raise
    except Exception as e:  # an op without a backward for meta tensors
        print(f"export_network: backward of an op is taken as one dense gradient for each operand: {e}"
              .split("\n")[0], file=sys.stderr)
        result["backward"] = [["grad", i] for i, x in enumerate(ins) if x.requires_grad]
    return result


def backward_steps(made, gradients, wanted, ins, incoming):
    """Events of a backward as steps: gradients of operands, temporaries and their ends."""
    steps, owner = [], {}
    index = [i for i, x in enumerate(ins) if x.requires_grad]
    passed = []
    events = list(made.events)
    theirs = {storage_of(g)._cdata for g in incoming}
    for i, g in zip(index, gradients):
        if g is None:
            continue
        key = storage_of(g)._cdata
        if key in theirs:
            passed.append(["pass", i])
        elif key in made.number and made.number[key] not in owner:
            owner[made.number[key]] = i
        else:
            passed.append(["grad", i])
    live, free = {}, list(range(MOST_TEMPORARIES))
    for kind, number, *size in events:
        if kind == "alloc":
            if number in owner:
                steps.append(["grad", owner[number]])
            elif size[0] > 0 and free:
                live[number] = free.pop(0)
                steps.append(["temp", live[number], size[0]])
        elif number in live:
            free.insert(0, live.pop(number))
            steps.append(["release", free[0]])
    steps += [["release", n] for n in live.values()]
    return (steps + passed)[-MOST_STEPS:] if len(steps) <= MOST_STEPS else [s for s in steps if s[0] == "grad"] + passed


# ---- the ops that highwater has recipes for ----
# Each: (recorder, func, args, kwargs, ins, outs) -> attributes of the statement, or None when this call is not
# like the recipe.  ins: tensors among the arguments in order.


def _plain(name, n):
    return lambda c: {"op": name} if len(c.ins) == n else None


def _same_shape_as_one(name, scalar):
    """An element-wise op of two tensors of which one has the result's shape, or of a tensor and a number."""

    def match(c):
        if len(c.ins) == 1:
            return {"op": scalar} if scalar else None
        if c.kwargs.get("alpha", 1) != 1:
            return None
        out = c.outs[0].shape
        if len(c.ins) != 2 or out not in (c.ins[0].shape, c.ins[1].shape):
            return None
        return {"op": name}

    return match


def _view(c):
    return {"op": "view"}


def _transpose(c):
    if c.func is aten.t.default:
        return {"op": "transpose", "dim": 0} if c.ins[0].dim() == 2 else {"op": "view"}
    n = max(c.ins[0].dim(), 1)
    a, b = sorted(d % n for d in c.args[1:3])
    if a == b:
        return {"op": "view"}
    return {"op": "transpose", "dim": a} if b == a + 1 else None


def _part(c):
    out, x = c.outs[0], c.ins[0]
    return {"op": "slice", "offset": out.storage_offset() - x.storage_offset()}


def _split(c):
    x = c.ins[0]
    dim = (c.args[2] if len(c.args) > 2 else c.kwargs.get("dim", 0)) % x.dim()
    widths = [o.shape[-1] for o in c.outs]
    if dim != x.dim() - 1 or len(c.outs) > 3 or len(set(widths[1:])) > 1:
        return None
    return {"op": "split"}


def _cat(c):
    dim = c.args[1] if len(c.args) > 1 else c.kwargs.get("dim", 0)
    x = c.ins[0]
    return {"op": "cat"} if dim % x.dim() == x.dim() - 1 and len(c.ins) <= MOST_OPERANDS else None


def _mul(c):
    if len(c.ins) == 2 and c.outs[0].dtype.is_complex:
        return {"op": "mul_complex"} if c.ins[0].shape == c.outs[0].shape and not c.ins[1].requires_grad else None
    return _same_shape_as_one("mul", "mul_scalar")(c)


def _pow(c):
    return {"op": "pow"} if c.args[1] == 2 else None


def _to_copy(c):
    if c.ins[0].dtype == c.outs[0].dtype or c.outs[0].dtype not in DTYPES:
        return None
    return {"op": "to_copy" if c.ins[0].requires_grad else "to_if_needed"}


def _embedding(c):
    return {"op": "embedding"}


def _masked_fill(c):
    return {"op": "masked_fill"} if len(c.ins) == 2 and c.ins[0].shape == c.outs[0].shape else None


def _dropout(c):
    return {"op": "dropout", "keep": 1}


def _layer_norm(c):
    return {"op": "layer_norm", "keep": 1} if len(c.ins) == 3 else None


def _nll_loss(c):
    return {"op": "nll_loss", "keep": 1} if len(c.ins) == 2 else None


def _log_softmax(c):
    return {"op": "log_softmax"}


def _softmax(c):
    return {"op": "softmax"}


def _cumsum(c):
    return {"op": "cumsum"} if c.ins[0].dtype is torch.bool else None


def _pad(c):
    return {"op": "pad"} if len(c.args) < 3 or all(p >= 0 for p in c.args[1]) else None


def _sum(c):
    whole = c.outs[0].dim() == 0
    return {"op": "sum"} if whole or c.outs[0].dim() == c.ins[0].dim() else None


RECIPES = {
    aten.view.default: _view, aten._unsafe_view.default: lambda c: {"op": "unsafe_view"},
    aten._reshape_alias.default: _view, aten.unsqueeze.default: _view, aten.squeeze.default: _view,
    aten.squeeze.dim: _view, aten.squeeze.dims: _view, aten.t.default: _transpose,
    aten.transpose.int: _transpose, aten.view_as_complex.default: lambda c: {"op": "view_as_complex"},
    aten.view_as_real.default: lambda c: {"op": "view_as_real"}, aten.slice.Tensor: _part,
    aten.select.int: _part, aten.split.Tensor: _split, aten.split_with_sizes.default: _split,
    aten.expand.default: lambda c: {"op": "expand"},
    aten._to_copy.default: _to_copy, aten.clone.default: lambda c: {"op": "clone"},
    aten.add.Tensor: _same_shape_as_one("add", "add_scalar"), aten.add.Scalar: _plain("add_scalar", 1),
    aten.mul.Tensor: _mul, aten.mul.Scalar: _plain("mul_scalar", 1),
    aten.div.Scalar: _plain("div_scalar", 1),
    aten.div.Tensor: _plain("div_scalar", 1), aten.neg.default: _plain("neg", 1),
    aten.pow.Tensor_Scalar: _pow, aten.rsqrt.default: _plain("rsqrt", 1), aten.tanh.default: _plain("tanh", 1),
    aten.silu.default: _plain("silu", 1), aten.gelu.default: _plain("gelu", 1), aten.clamp.default: _plain("clamp", 1),
    aten.masked_fill.Scalar: _masked_fill, aten.mean.dim: lambda c: {"op": "mean"},
    aten.mean.default: lambda c: {"op": "mean"},
    aten.sum.default: _sum, aten.sum.dim_IntList: _sum, aten.cat.default: _cat,
    aten.constant_pad_nd.default: _pad,
    aten.native_dropout.default: _dropout, aten.mm.default: _plain("mm", 2), aten.addmm.default: _plain("addmm", 3),
    aten.bmm.default: _plain("bmm", 2), aten.native_layer_norm.default: _layer_norm,
    aten.embedding.default: _embedding, aten._log_softmax.default: _log_softmax,
    aten.nll_loss_forward.default: _nll_loss, aten._softmax.default: _softmax, aten.cumsum.default: _cumsum,
}


NO_GRADIENT = {"create", "detach", "recorded_constant", "to_if_needed", "cumsum"}


# Autocast (aten/src/ATen/autocast_mode.h): ops that compute in the 16-bit dtype, and in fp32.
AUTOCAST_NARROW = {aten.mm, aten.bmm, aten.addmm, aten.baddbmm, aten.addbmm, aten.mv, aten.addmv, aten.convolution}
AUTOCAST_WIDE = {
    getattr(aten, n) for n in (
        "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal", "rsqrt",
        "sinh", "tan", "pow", "softplus", "native_layer_norm", "native_group_norm", "nll_loss_forward",
        "nll_loss2d_forward", "mse_loss", "smooth_l1_loss", "huber_loss", "logsumexp", "prod", "_softmax",
        "_log_softmax", "cumprod", "cumsum", "sum", "linalg_vector_norm") if hasattr(aten, n)}


class Call:
    """One dispatched op."""

    def __init__(self, func, args, kwargs, outs):
        self.func, self.args, self.kwargs, self.outs = func, args, kwargs, outs
        self.ins = tensors_in((args, kwargs))


def flops_of(func, args, kwargs, out):
    """FLOPs by PyTorch's own counters, where it has one."""
    logging.getLogger("torch.utils.flop_counter").setLevel(logging.ERROR)  # it says that triton is not there
    from torch.utils.flop_counter import flop_registry
    packet = getattr(func, "overloadpacket", None)
    if packet not in flop_registry:
        return 0
    try:
        return int(flop_registry[packet](*args, **kwargs, out_val=out))
    except Exception:
        return 0


# ---- numbers behind integer tensors, which models ask for ----


class Twins:
    """Positions, masks and labels are computed for real beside the meta tensors, so that a model may ask for
    their values; what depends on weights or activations has none."""

    LARGEST, LARGEST_FLOAT = 1 << 24, 1 << 18  # elements

    def __init__(self):
        self.buffers = {}  # storage -> flat tensor

    def forget(self, key):
        self.buffers.pop(key, None)

    def of(self, t):
        flat = self.buffers.get(storage_of(t)._cdata)
        if flat is None or flat.dtype != t.dtype:
            return None
        return torch.as_strided(flat, t.shape, t.stride(), t.storage_offset())

    def put(self, t, real):
        bound = t.storage_offset() + 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride())) if t.numel() else 0
        if bound > (self.LARGEST_FLOAT if t.dtype.is_floating_point else self.LARGEST) or t.dtype.is_complex:
            return
        flat = torch.zeros(bound, dtype=t.dtype)
        torch.as_strided(flat, t.shape, t.stride(), t.storage_offset()).copy_(real)
        self.buffers[storage_of(t)._cdata] = flat

    def run(self, func, args, kwargs):
        """The op on real numbers, or None."""
        missing = False

        def one(x):
            nonlocal missing
            if isinstance(x, torch.device):
                return torch.device("cpu")
            if not is_meta(x):
                return x
            real = self.of(x)
            missing |= real is None
            return real

        args, kwargs = tree_map(one, (args, kwargs))
        if missing:
            return None
        try:
            return func(*args, **kwargs)
        except Exception:
            return None


# ---- recording ----


class Recorder(TorchDispatchMode):
    def __init__(self, model, blocks, attention, autocast=None):
        super().__init__()
        self.autocast = autocast  # the 16-bit dtype, or None
        self.model = model
        self.blocks = blocks  # path -> number
        self.attention = attention
        self.main = Function("", None)
        self.now = self.main
        self.paused = 0
        self.values = {}  # storage -> [(geometry, Value)], the newest last
        self.parameters = {}  # storage -> name
        self.names = {}  # module -> path
        self.dead = []
        self.twins = Twins()
        self.constants = []  # (Value, tensor)
        self.called = {}
        self.calls = []
        self.handles = []
        self.attention_width = 0
        self.looked_up, self.multiplied = set(), set()
        self.held = []
        self.functions = {}
        for path, m in model.named_modules():
            self.names[m] = path
        for name, p in model.named_parameters():
            self.parameters[storage_of(p)._cdata] = name
        self.trains = {name: p.requires_grad for name, p in model.named_parameters()}
        self.buffer_of = {}
        for name, t in model.named_buffers():
            if is_meta(t):
                self.buffer_of[storage_of(t)._cdata] = name
        self.used_buffers = set()

    # -- values --

    def gone(self, key):
        if self.values is not None:
            self.dead.append(key)

    def drain(self):
        """Values whose storage has gone since the last event."""
        dead, self.dead = self.dead, []
        for key in dead:
            self.twins.forget(key)
            for _, v in self.values.pop(key, ()):
                scope = v.scope
                if scope is self.now:
                    scope.drop(v)
                elif not scope.ended:
                    scope.late_drops.append(v)

    def bind(self, tensor, value):
        s = storage_of(tensor)
        key = s._cdata
        if key not in self.values:
            self.values[key] = []
            weakref.finalize(s, self.gone, key)
        self.values[key].append((geometry(tensor), value))

    def new_value(self, tensor, requires_grad=None):
        v = self.now.value(tensor)
        if requires_grad is not None:
            v.requires_grad = requires_grad
        self.bind(tensor, v)
        return v

    def find(self, tensor):
        """The value or parameter that a tensor is, in the function that runs."""
        key = storage_of(tensor)._cdata
        known, g = self.values.get(key), geometry(tensor)
        if key in self.parameters:
            views = [v for seen, v in known or () if seen == g and not v.scope.ended]
            return self.localize(views[-1], tensor) if views else self.parameters[key]
        if known is None:
            return self.localize(self.constant(tensor), tensor)
        wanted = tensor.requires_grad
        for same in (lambda seen, v: seen == g and v.requires_grad == wanted, lambda seen, v: seen == g,
                     lambda seen, v: v.requires_grad == wanted, lambda seen, v: True):
            matching = [v for seen, v in known if same(seen, v)]
            if matching:
                return self.localize(matching[-1], tensor)
        raise ExportError("a tensor is used that nothing has made")

    def localize(self, v, tensor):
        chain = []
        f = self.now
        while f is not None and f is not v.scope:
            chain.append(f)
            f = f.outer
        if f is None:
            raise NotABlock(v.scope.path, f"more than {MOST_RESULTS} tensors that it hands out are used after it")
        for f in reversed(chain):
            v = f.imported.get(id(v)) or f.argument(v, tensor)
        return v

    def constant(self, tensor):
        """A tensor that was there before: a buffer, or an attribute of the model."""
        key = storage_of(tensor)._cdata
        v = Value(self.main, tensor)
        v.requires_grad = False
        self.main.arguments.append(v)
        name = self.buffer_of.get(key, f"constant {len(self.constants)}")
        self.used_buffers.add(name)
        self.constants.append((v, name))
        self.held.append(tensor)
        self.bind(tensor, v)
        return v

    def input(self, tensor):
        v = Value(self.main, tensor)
        self.main.arguments.append(v)
        self.bind(tensor, v)
        self.held.append(tensor)
        if not tensor.dtype.is_floating_point:
            self.twins.put(tensor, torch.zeros(tensor.shape, dtype=tensor.dtype))

    # -- ops --

    def emit(self, attributes, operands, outs):
        """One op of the statements; outs: tensors that are new values."""
        s = dict(attributes)
        s["in"] = operands
        gradient = torch.is_grad_enabled() and s["op"] not in NO_GRADIENT and any(
            x.requires_grad if isinstance(x, Value) else self.trains[x] for x in operands)
        s["out"] = [self.new_value(t, gradient and (t.is_floating_point() or t.is_complex())) for t in outs]
        self.now.statements.append(s)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if self.paused:
            return func(*args, **kwargs)
        self.drain()
        self.paused += 1
        try:
            return self.dispatched(func, args, kwargs)
        finally:
            self.paused -= 1

    def dispatched(self, func, args, kwargs):
        if func is aten._local_scalar_dense.default and is_meta(args[0]):
            real = self.twins.of(args[0])
            if real is None:
                raise ExportError(f"the model asks for the value of a tensor that depends on weights or activations "
                                  f"({'x'.join(map(str, args[0].shape)) or 'one number'})")
            return real.item()
        if self.autocast is not None:
            args, kwargs = self.cast(func, args, kwargs)
        real = self.twins.run(func, args, kwargs)
        if func in (aten.nonzero.default, aten.equal.default, aten.is_nonzero.default):
            if real is None:
                raise ExportError(f"{func.name()} depends on values of weights or activations")
            return real.to(META) if isinstance(real, torch.Tensor) else real
        out = func(*args, **kwargs)
        outs = tensors_in(out)
        if outs:
            self.record(func, args, kwargs, out, outs)
            reals = tree_flatten(real)[0] if real is not None else []
            for t, r in zip(outs, reals):
                if isinstance(r, torch.Tensor) and self.twins.of(t) is None:
                    self.twins.put(t, r)
        return out

    def cast(self, func, args, kwargs):
        """The op's floating operands as autocast gives them."""
        narrow = func.overloadpacket in AUTOCAST_NARROW
        if not narrow and func.overloadpacket not in AUTOCAST_WIDE:
            return args, kwargs
        want = self.autocast if narrow else torch.float32

        def one(x):
            if not is_meta(x) or x.dtype not in (torch.float32, torch.bfloat16, torch.float16) or x.dtype == want:
                return x
            operand, made = self.find(x), torch.empty_like(x, dtype=want)
            cached = isinstance(operand, str) and self.trains[operand] and narrow
            wants = operand.requires_grad if isinstance(operand, Value) else self.trains[operand]
            self.emit({"op": "to_cached" if cached else "to_copy" if wants else "to_if_needed"}, [operand], [made])
            return made.requires_grad_(wants)

        flat, spec = tree_flatten((args, kwargs))  # C++ evaluates the last argument first
        return tree_unflatten([one(x) for x in reversed(flat)][::-1], spec)

    def record(self, func, args, kwargs, out, outs):
        c = Call(func, args, kwargs, outs)
        if func in (aten.detach.default, aten.alias.default, aten.lift_fresh.default) and len(c.ins) == 1:
            self.emit({"op": "detach"}, [self.find(c.ins[0])], outs)
            return
        if func is aten.permute.default and self.permute(c):
            return
        match = RECIPES.get(func)
        attributes = match(c) if match else None
        if attributes is None:
            self.record_unknown(func, args, kwargs, out, c)
            return
        attributes = dict(attributes)
        kept = attributes.pop("keep", len(outs))
        operands = [self.find(t) for t in c.ins]
        if func is aten.embedding.default:
            self.looked_up.add(operands[0])
        elif func in (aten.mm.default, aten.addmm.default, aten.bmm.default):
            self.note_products(c.ins)
        self.emit(attributes, operands, outs[:kept] if attributes["op"] != "dropout" else outs[:1])

    def note_products(self, ins):
        for t in ins:
            name = self.parameters.get(storage_of(t)._cdata)
            if name is not None:
                self.multiplied.add(name)

    def permute(self, c):
        """As swaps of neighbours: views all of them."""
        x, order = c.ins[0], [d % c.ins[0].dim() for d in c.args[1]]
        current, swaps = list(range(x.dim())), []
        for i, d in enumerate(order):
            for k in range(current.index(d), i, -1):
                current[k - 1], current[k] = current[k], current[k - 1]
                swaps.append(k - 1)
        if not swaps:
            return False
        t, source = x, self.find(x)
        for n, k in enumerate(swaps):
            last = n == len(swaps) - 1
            t = c.outs[0] if last else t.transpose(k, k + 1)
            v = self.new_value(t, x.requires_grad) if last else self.now.value(t)
            self.now.statements.append({"op": "transpose", "dim": k, "in": [source], "out": [v]})
            if n > 0:
                self.now.drop(source)
            source = v
        return True

    def record_unknown(self, func, args, kwargs, out, c):
        """No recipe: outputs, what is saved, and what backward makes are recorded."""
        new = [t for t in c.outs if t.numel() * t.element_size() >= 0]
        storages = {storage_of(t)._cdata: i for i, t in reversed(list(enumerate(c.ins)))}
        views = {k: storages[storage_of(t)._cdata] for k, t in enumerate(new) if storage_of(t)._cdata in storages}
        wants = any(t.requires_grad for t in c.ins) and torch.is_grad_enabled()
        name = str(func.overloadpacket.__name__)
        if wants and any(t.is_floating_point() or t.is_complex() for t in new):
            self.emit_recorded(name, c.ins, new, views, Analysis(func, args, kwargs), flops_of(func, args, kwargs, out))
        elif views or len(new) > 1:
            self.emit_recorded(name, c.ins, new, views, None, 0)
        else:
            self.emit({"op": "create", "what": name}, [], new)

    def emit_recorded(self, what, ins, outs, views, analysed, flops):
        if len(outs) > MOST_OUTPUTS or (analysed is not None and len(ins) > MOST_OPERANDS):
            raise ExportError(f"{what} has {len(ins)} operands and {len(outs)} results: {MOST_OPERANDS} and "
                              f"{MOST_OUTPUTS} are supported")
        ins = ins[:MOST_OPERANDS]
        operands = [self.find(t) for t in ins]
        s = {"op": "recorded" if analysed is not None else "recorded_constant", "what": what}
        if views:
            s["views"] = [[k, i, outs[k].storage_offset() - ins[i].storage_offset()] for k, i in views.items()
                          if i < len(ins)]
        if analysed is not None:
            s["analysis"] = analysed
        if flops:
            s["flops"] = flops
        self.emit(s, operands, outs)

    def custom(self, cls, call, args, kwargs):
        """A user's autograd.Function."""
        self.drain()
        self.paused += 1
        try:
            out = call(*args, **kwargs)
        finally:
            self.paused -= 1
        ins, outs = tensors_in((args, kwargs)), tensors_in(out)
        storages = {storage_of(t)._cdata: i for i, t in reversed(list(enumerate(ins)))}
        views = {k: storages[storage_of(t)._cdata] for k, t in enumerate(outs) if storage_of(t)._cdata in storages}
        self.emit_recorded(cls.__name__, ins, outs, views, Analysis(call, args, kwargs), 0)
        return out

    # -- modules --

    def before(self, module, args, kwargs):
        if self.paused:
            return None
        self.drain()
        path = self.names.get(module)
        if path is None:
            return None
        if path in self.blocks:
            self.begin_block(path, args, kwargs)
            return None
        tensors = [x for x in args if is_meta(x) and storage_of(x)._cdata not in self.parameters]
        tensors = tensors[:MOST_OPERANDS]
        operands = [self.find(t) for t in tensors]
        self.paused += 1
        received = [_Made.apply(lambda t=t: strided_like(t), t) if t.requires_grad else strided_like(t)
                    for t in tensors]
        for t, r in zip(tensors, received):
            real = self.twins.of(t)
            if real is not None:
                self.twins.put(r, real)
        self.paused -= 1
        if self.now is self.main and any(p is not None for p in module._parameters.values()):
            self.calls.append((path, len(self.functions)))
        out = [self.new_value(r, t.requires_grad) for t, r in zip(tensors, received)]
        self.now.statements.append({"enter": path, "in": operands, "out": out})
        changed = {id(t): r for t, r in zip(tensors, received)}
        return tuple(changed.get(id(x), x) for x in args), kwargs

    def after(self, module, args, kwargs, output):
        if self.paused:
            return
        self.drain()
        path = self.names.get(module)
        if path is None:
            return
        tensors = tensors_in(outputs_of(output))
        if path in self.blocks:
            self.end_block(path, tensors)
        elif tensors:
            tensors = tensors if path == "" else tensors[:1]
            if len(tensors) > MOST_OPERANDS:
                raise ExportError(f"the model returns {len(tensors)} tensors: {MOST_OPERANDS} are supported")
            self.now.statements.append({"exit": path, "in": [self.find(t) for t in tensors]})
        else:
            raise ExportError(f"{path or 'the model'} returns no tensor")

    def begin_block(self, path, args, kwargs):
        if path in self.called:
            raise NotABlock(path, "it is called more than once")
        self.called[path] = True
        f = Function(path, self.now)
        for t in tensors_in((args, kwargs)):
            if storage_of(t)._cdata in self.parameters:
                continue
            v = self.find(t)
            if id(v) not in f.imported:
                f.argument(v, t)
        self.now = f

    def end_block(self, path, tensors):
        f = self.now
        if f.path != path:
            raise NotABlock(path, "its calls do not nest")
        if not tensors:
            raise NotABlock(path, "it returns no tensor")
        f.result = self.find(tensors[0])
        if isinstance(f.result, str) or f.result in f.arguments:
            raise NotABlock(path, "it returns what it was given")
        if len(f.arguments) > MOST_OPERANDS:
            raise NotABlock(path, f"it uses {len(f.arguments)} tensors from outside")
        given = tensors[:1]
        for t in tensors[1:]:  # as many as can be handed out
            v = self.find(t)
            if isinstance(v, Value) and v.scope is f and v not in f.arguments + f.others + [f.result] and \
                    len(given) < MOST_RESULTS:
                f.others.append(v)
                given.append(t)
        for v in f.values:
            if v is not f.result and v not in f.others:
                f.drop(v)
        f.ended = True
        self.now = f.outer
        for t in given:
            known = self.values[storage_of(t)._cdata]
            known[:] = [pair for pair in known if pair[1].scope is not f]
        values = [self.new_value(t, v.requires_grad) for t, v in zip(given, [f.result] + f.others)]
        self.now.statements.append({"call": self.blocks[path], "in": f.outer_values, "out": values})
        self.functions[path] = f
        late, self.now.late_drops = self.now.late_drops, []
        for v in late:
            self.now.drop(v)

    def watch(self):
        for m in self.names:
            self.handles.append(m.register_forward_pre_hook(self.before, with_kwargs=True, prepend=True))
            self.handles.append(m.register_forward_hook(self.after, with_kwargs=True))

    def unwatch(self):
        for h in self.handles:
            h.remove()

    # -- calls that are recorded whole: their kernels differ on a GPU --

    def whole(self, attributes, ins, make):
        self.drain()
        self.paused += 1
        try:
            operands = [self.find(t) for t in ins]
            out = _Made.apply(make, *ins) if torch.is_grad_enabled() else make()
        finally:
            self.paused -= 1
        self.emit(attributes, operands, [out])
        return out

    def linear(self, x, weight, bias=None):
        ins = [x, weight] + ([bias] if bias is not None else [])
        alike = all(is_meta(t) and (self.autocast or t.dtype == x.dtype) for t in ins)
        if self.paused or not alike or x.dim() < 2:
            return PLAIN["linear"](x, weight, bias)
        self.note_products([weight])
        shape, dtype = x.shape[:-1] + weight.shape[:1], self.autocast or x.dtype
        return self.whole({"op": "linear"}, ins, lambda: torch.empty(shape, dtype=dtype, device=META))

    def sdpa(self, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
        if self.paused or not is_meta(query) or query.dim() != 4:
            return PLAIN["sdpa"](query, key, value, attn_mask=attn_mask, dropout_p=dropout_p, is_causal=is_causal,
                                 scale=scale, enable_gqa=enable_gqa)
        ins = [query, key, value] + ([attn_mask] if attn_mask is not None else [])
        dtype = self.autocast or query.dtype
        kind = self.attention or attention_kind(dtype, query, key, attn_mask)
        shape = query.shape[:-1] + value.shape[-1:]
        self.attention_width = max(self.attention_width, query.shape[1] * query.shape[3])

        def make():
            if kind == "math":
                return torch.empty(shape, dtype=dtype, device=META)
            if kind == "flash" and shape[-1] % 8:  # heads are padded to multiples of 8
                return torch.empty(shape[:-1] + (-(-shape[-1] // 8) * 8,), dtype=dtype, device=META)[..., :shape[-1]]
            inside = torch.empty_like(query.transpose(1, 2), dtype=dtype, device=META)
            return inside.transpose(1, 2) if inside.shape[-1] == shape[-1] else torch.empty(
                (shape[0], shape[2], shape[1], shape[3]), dtype=dtype, device=META).transpose(1, 2)

        attributes = {"op": "attention"}
        if is_causal:
            attributes["causal"] = True
        if dropout_p > 0:
            attributes["dropout"] = True
        return self.whole(attributes, ins, make)

    def rms_norm(self, input, normalized_shape, weight=None, eps=None):
        if self.paused or not is_meta(input) or weight is None:
            return PLAIN["rms_norm"](input, normalized_shape, weight, eps)
        return self.whole({"op": "rms_norm"}, [input, weight], lambda: torch.empty_like(input))

    def dropout(self, input, p=0.5, training=True, inplace=False):
        if self.paused or not is_meta(input) or inplace or not training or p <= 0 or p >= 1:
            return PLAIN["dropout"](input, p, training, inplace)
        return self.whole({"op": "dropout"}, [input], lambda: torch.empty_like(input))


PLAIN = {"linear": F.linear, "sdpa": F.scaled_dot_product_attention, "dropout": F.dropout,
         "rms_norm": getattr(F, "rms_norm", None)}


def attention_kind(dtype, query, key, mask):
    """Which kernel lays the result out: as torch chooses on an sm_80 GPU or later."""
    narrow = dtype in (torch.bfloat16, torch.float16)
    if narrow and mask is None and query.shape[3] <= 256:
        return "flash"
    multiple = 16 // dtype.itemsize
    same = query.shape[1] == key.shape[1]
    return "efficient" if same and query.shape[3] % multiple == 0 else "math"


def outputs_of(output):
    """A model's output as a tree: a dataclass or ModelOutput gives its values."""
    if hasattr(output, "to_tuple"):
        return output.to_tuple()
    if hasattr(output, "__dataclass_fields__"):
        return [getattr(output, name) for name in output.__dataclass_fields__]
    return output


# ---- the network ----


def block_lists(model, pattern):
    """Paths of the blocks: children of the outermost ModuleLists, or what the pattern matches."""
    blocks = []
    for path, m in model.named_modules():
        inside = any(path.startswith(b + ".") for b in blocks)
        if pattern is not None:
            if path and not inside and fnmatch.fnmatchcase(path, pattern):
                blocks.append(path)
        elif isinstance(m, torch.nn.ModuleList) and not inside and path:
            blocks += [f"{path}.{name}" for name, _ in m.named_children()]
    return blocks


def autocast_of(recorder):
    """torch.autocast as the recorded model may call it inside: it turns the recorded autocast off and on."""

    class Autocast:
        def __init__(self, device_type=None, dtype=None, enabled=True, cache_enabled=None):
            self.want = (dtype or torch.bfloat16) if enabled else None

        def __enter__(self):
            self.before, recorder.autocast = recorder.autocast, self.want
            return self

        def __exit__(self, *ignored):
            recorder.autocast = self.before

    return Autocast


class Patches:
    """Functions whose kernels on a GPU are not those of meta tensors, and autograd.Functions, go through the
    recorder."""

    def __init__(self, recorder):
        r = self.recorder = recorder
        self.set = [(F, "linear", r.linear), (F, "scaled_dot_product_attention", r.sdpa), (F, "dropout", r.dropout)]
        if PLAIN["rms_norm"] is not None:
            self.set.append((F, "rms_norm", r.rms_norm))
        if r.autocast is not None:
            self.set += [(torch, "is_autocast_enabled", lambda *ignored: r.autocast is not None),
                         (torch, "autocast", autocast_of(r)), (torch.amp, "autocast", autocast_of(r))]
        self.apply = torch.autograd.Function.__dict__["apply"]

    def __enter__(self):
        self.before = [(o, name, getattr(o, name)) for o, name, _ in self.set]
        for o, name, f in self.set:
            setattr(o, name, f)
        plain, recorder = self.apply.__func__, self.recorder

        def apply(cls, *args, **kwargs):
            tensors = tensors_in((args, kwargs))
            if cls is _Made or recorder.paused or not torch.is_grad_enabled() or \
                    not any(t.requires_grad for t in tensors):
                return plain(cls, *args, **kwargs)
            return recorder.custom(cls, lambda *a, **k: plain(cls, *a, **k), args, kwargs)

        torch.autograd.Function.apply = classmethod(apply)

    def __exit__(self, *ignored):
        for o, name, f in self.before:
            setattr(o, name, f)
        torch.autograd.Function.apply = self.apply


def record(model, args, kwargs, loss, loss_args, blocks, attention, autocast):
    """One forward pass and its loss; the recorder knows all about it."""
    r = Recorder(model, {path: i for i, path in enumerate(blocks)}, attention, autocast)
    for t in tensors_in((args, kwargs, loss_args)):
        if storage_of(t)._cdata not in r.values:
            r.input(t)
    inputs = list(r.main.arguments)
    r.watch()
    try:
        with Patches(r), torch.autograd.graph.saved_tensors_hooks(lambda t: None, lambda x: None), r:
            result = run_step(r, model, args, kwargs, loss, loss_args)
    finally:
        r.unwatch()
    r.main.result = result
    r.main.ended = True
    r.inputs = inputs
    return r


def run_step(r, model, args, kwargs, loss, loss_args):
    out = model(*args, **kwargs)
    r.loss_inside = loss is None and getattr(out, "loss", None) is not None
    if loss is not None:
        value = loss(out, *loss_args)
    elif r.loss_inside:
        value = out.loss
    else:
        value = default_loss(outputs_of(out), *loss_args)
    del out
    r.drain()
    if not is_meta(value) or value.numel() != 1:
        raise ExportError("the loss is not one number")
    result = r.find(value)
    for v in r.main.values:
        if v is not result:
            r.main.drop(v)
    return result


def default_loss(out, labels):
    """Cross entropy of the logits in fp32, as torchtitan has it."""
    logits = tensors_in(out)[0]
    return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(0, 1))


def export_network(model, args=(), kwargs=None, *, loss=None, loss_args=(), name=None, blocks=None, attention=None,
                   dtype=None, autocast=None):
    """The network of a model whose parameters and inputs are meta tensors, as a dict to be written as JSON.

    args, kwargs: the model's inputs.  loss: gets what the model returns and loss_args, gives one number; without it
    the model's own (.loss), or cross entropy of its logits with loss_args.  blocks: a pattern of module paths
    ("encoder.layer.*"), else the children of ModuleLists.  attention: the kernel whose layout
    scaled_dot_product_attention's results have ("flash", "efficient", "math"), else what PyTorch chooses.
    dtype: of the parameters as the model computes with them, else as they are.  autocast: torch.bfloat16 or
    torch.float16, the dtype of an autocast region around model and loss; parameters are then in fp32."""
    kwargs = dict(kwargs or {})
    if dtype is not None:
        for p in model.parameters():
            if p.is_floating_point():
                p.data = p.data.to(dtype)
    found = {p.dtype for p in model.parameters() if p.is_floating_point()}
    if len(found) != 1:
        raise ExportError(f"parameters have {len(found)} dtypes: {', '.join(sorted(map(str, found)))}; give one")
    if any(not is_meta(p) for p in model.parameters()):
        raise ExportError("the model is not on meta tensors: make it under torch.device('meta')")
    paths, r = block_lists(model, blocks), None
    while r is None:
        try:
            r = record(model, args, kwargs, loss, loss_args, paths, attention, autocast)
            missing = [b for b in paths if b not in r.called]
            if missing:
                r = None
                raise NotABlock(missing[0], "it is never called")
        except NotABlock as e:
            parent = e.path.rpartition(".")[0]
            siblings = [b for b in paths if b.rpartition(".")[0] == parent]
            if not siblings:
                raise ExportError(f"{e.path}: {e}") from e
            print(f"export_network: {e.path} is not a block: {e}", file=sys.stderr)
            paths = [b for b in paths if b not in siblings]
    return network_of(model, r, paths, found.pop(), name, autocast)


def describe_modules(model, blocks, r):
    first_names = {id(p): n for n, p in model.named_parameters()}
    modules, tied = [], []
    for path, m in model.named_modules():
        d = {"path": path, "type": type(m).__name__}
        if path in blocks:
            d["block"] = True
        parameters = []
        for n, p in m._parameters.items():
            if p is None:
                continue
            full = f"{path}.{n}" if path else n
            if first_names.get(id(p)) != full:
                tied.append({"name": full, "weight": first_names[id(p)]})
                continue
            q = {"name": n, "shape": list(p.shape)}
            if not p.requires_grad:
                q["trainable"] = False
            parameters.append(q)
        if parameters:
            d["parameters"] = parameters
        buffers = [{"name": n, "bytes": t.numel() * t.element_size()} for n, t in m._buffers.items()
                   if t is not None and (f"{path}.{n}" if path else n) not in r.used_buffers]
        if buffers:
            d["buffers"] = buffers
        modules.append(d)
    sizes = dict(model.named_parameters())
    tied.sort(key=lambda t: sizes[t["weight"]].numel())
    return modules, tied


def figures(model, r, blocks):
    """What FLOPs per token are counted by (tables that are only looked up do not multiply), and the ends of the
    model: FSDP plans can give the token embedding, and what comes after the last block, groups of their own."""
    shapes = dict(model.named_parameters())
    looked_up = [n for n in shapes if n in r.looked_up and shapes[n].dim() == 2]
    largest = max(looked_up, key=lambda n: shapes[n].shape[0], default=None)
    rows, width = shapes[largest].shape if largest is not None else (0, 0)
    embedding = largest.rpartition(".")[0] if largest is not None else ""
    return {"vocabulary": int(rows), "hidden": int(width), "attention_width": r.attention_width,
            "embedding_parameters": sum(shapes[n].numel() for n in looked_up if n not in r.multiplied),
            "embedding": [embedding] if embedding in [path for path, done in r.calls] else [],
            "head": [path for path, done in r.calls if blocks and path and done == len(blocks)]}


def finish_statements(f, known):
    """Fills in what analyses find."""
    for s in f.statements:
        a = s.pop("analysis", None)
        if a is None:
            continue
        key = a.key()
        if key not in known:
            known[key] = analyse(a.call, a.args, a.kwargs)
        if known[key] is None:
            s["op"] = "recorded_constant"
        else:
            s.update(known[key])


def network_of(model, r, blocks, dtype, name, autocast):
    modules, tied = describe_modules(model, set(blocks), r)
    functions, numbers, which, known = [], {}, [], {}
    for path in blocks:
        f = r.functions[path]
        finish_statements(f, known)
        d = f.to_dict()
        text = json.dumps(d, sort_keys=True)
        if text not in numbers:
            numbers[text] = len(functions)
            functions.append(d)
        which.append(numbers[text])
    finish_statements(r.main, known)
    main = r.main.to_dict()
    first = r.inputs[0]
    network = {
        "family": "ops",
        "name": name or type(model).__name__,
        "torch": torch.__version__.split("+")[0],
        "dtype": DTYPES[dtype],
        "autocast": DTYPES[autocast] if autocast else "none",
        "batch": int(first.shape[0]),
        "sequence_length": int(first.shape[1]) if len(first.shape) > 1 else 1,
        "figures": figures(model, r, blocks),
        "loss_inside": r.loss_inside,
        "checkpoints_forward": any(c.__name__ == "GradientCheckpointingLayer" for m in model.modules()
                                   for c in type(m).__mro__),
        "modules": modules,
    }
    if tied:
        network["tied"] = tied
    network["inputs"] = [v.describe() for v in r.inputs]
    network["constants"] = [dict(v.describe(), name=n) for v, n in r.constants]
    network["functions"] = functions
    network["block_functions"] = which
    network["main"] = {"statements": main["statements"], "result": main["result"]}
    return network


def write(network, stream):
    """JSON with a statement, a module and a value a line."""
    def lines(items, indent):
        return "[\n" + ",\n".join(indent + json.dumps(x) for x in items) + "]" if items else "[]"

    def function(f, indent):
        keys = [f'"{k}": ' + (lines(v, indent + " ") if isinstance(v, list) else json.dumps(v)) for k, v in f.items()]
        return "{" + (",\n" + indent).join(keys) + "}"

    parts = []
    for key, value in network.items():
        if key == "functions":
            text = "[" + ",\n  ".join(function(f, "   ") for f in value) + "]"
        elif key == "main":
            text = function(value, "  ")
        elif key in ("modules", "inputs", "constants"):
            text = lines(value, "  ")
        else:
            text = json.dumps(value)
        parts.append(f' "{key}": {text}')
    stream.write("{\n" + ",\n".join(parts) + "\n}\n")


# ---- command line ----


def model_of_file(where):
    path, _, function = where.rpartition(":")
    if not path or not os.path.exists(path):
        raise ExportError(f"{where}: give FILE.py:FUNCTION")
    spec = importlib.util.spec_from_file_location("exported_model", path)
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec.loader.exec_module(module)
    if not hasattr(module, function):
        raise ExportError(f"{path} has no function {function}")
    return getattr(module, function), module


def model_of_config(path, attention):
    try:
        import transformers
    except ImportError as e:
        raise ExportError("--config needs the transformers package") from e
    with open(path, encoding="utf-8") as f:
        fields = json.load(f)
    model_type = fields.pop("model_type", None)
    architectures = fields.pop("architectures", None) or []
    if model_type is None:
        raise ExportError(f"{path}: key 'model_type' is missing")
    for key in ("torch_dtype", "dtype"):
        fields.pop(key, None)
    config = transformers.AutoConfig.for_model(model_type, **fields)
    config.use_cache = False
    kind = getattr(transformers, architectures[0], None) if architectures else None
    with torch.device("meta"):
        chosen = {"attn_implementation": attention} if attention else {}
        if kind is not None:
            return kind._from_config(config, **chosen)
        return transformers.AutoModelForCausalLM.from_config(config, **chosen)


def parse(argv):
    p = argparse.ArgumentParser(prog="export_network.py", description="Records a model's step as a network.")
    p.add_argument("model", nargs="?", help="FILE.py:FUNCTION that makes the model (called under torch.device('meta'))")
    p.add_argument("--config", help="a config.json of transformers instead")
    p.add_argument("--attn-implementation", help="of transformers: sdpa or eager (what it chooses)")
    p.add_argument("--batch", type=int, default=1, help="sequences of a micro-batch (1)")
    p.add_argument("--sequence-length", type=int, default=2048, help="tokens of a sequence (2048)")
    p.add_argument("--dtype", choices=["bf16", "fp16", "fp32"], default="bf16",
                   help="that the model computes in (bf16)")
    p.add_argument("--autocast", choices=["bf16", "fp16"], help="compute under autocast over parameters in fp32")
    p.add_argument("--blocks", help="pattern of the paths of blocks (the children of ModuleLists)")
    p.add_argument("--attention", choices=["flash", "efficient", "math"],
                   help="kernel of scaled_dot_product_attention (what PyTorch chooses)")
    p.add_argument("--inputs", help="function of FILE.py that makes (args, kwargs, loss_args) of batch and length")
    p.add_argument("--loss", help="function of FILE.py: of the model's output and labels")
    p.add_argument("--name", help="of the network")
    p.add_argument("-o", "--output", default="-", help="file to write (standard output)")
    o = p.parse_args(argv)
    if (o.model is None) == (o.config is None):
        p.error("give FILE.py:FUNCTION or --config FILE")
    return o


def export_of_options(o):
    dtypes = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, None: None}
    dtype = dtypes["fp32" if o.autocast else o.dtype]
    module = None
    if o.config:
        model = model_of_config(o.config, o.attn_implementation)
    else:
        make, module = model_of_file(o.model)
        with torch.device("meta"):
            model = make()
    if not isinstance(model, torch.nn.Module):
        raise ExportError(f"{o.model} gives a {type(model).__name__}, not a module")
    model.train()
    tokens = torch.zeros(o.batch, o.sequence_length, dtype=torch.long, device="meta")
    args, kwargs, loss_args = (tokens,), {}, (torch.zeros_like(tokens),)
    if o.config:
        args, kwargs, loss_args = (), {"input_ids": tokens, "labels": tokens, "use_cache": False}, ()
        if not hasattr(model.config, "use_cache"):
            del kwargs["use_cache"]
    if o.inputs:
        with torch.device("meta"):
            args, kwargs, loss_args = getattr(module, o.inputs)(o.batch, o.sequence_length)
    loss = getattr(module, o.loss) if o.loss else None
    name = o.name or os.path.splitext(os.path.basename(o.output))[0] if o.output != "-" else o.name
    return export_network(model, args, kwargs, loss=loss, loss_args=loss_args, name=name, blocks=o.blocks,
                          attention=o.attention, dtype=dtype, autocast=dtypes[o.autocast])


def main(argv):
    o = parse(argv)
    try:
        network = export_of_options(o)
    except ExportError as e:
        print(f"export_network: {e}", file=sys.stderr)
        return 2
    if o.output == "-":
        write(network, sys.stdout)
        return 0
    with open(o.output + ".new", "w", encoding="utf-8") as f:
        write(network, f)
    os.replace(o.output + ".new", o.output)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

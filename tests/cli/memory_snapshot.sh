# memory_snapshot.sh - run --memory-snapshot and import memory-snapshot: what a run writes replays to the run's own peaks,
# is what PyTorch's readers expect, and is imported with all it says.  HIGHWATER_PYTHON: an interpreter that has PyTorch.
. "$top_srcdir/tests/cli/lib.sh"
look=$top_srcdir/tests/snapshot_check.py
theirs=$top_srcdir/traces/snapshot_training.pickle.gz

# number KEY FILE: the first value of a key.
number() {
  sed -n "s/^.*\"$1\":[[:space:]]*\([0-9]*\).*/\1/p" "$2" | head -n 1
}
# The highest of the run, its construction included, since a history goes from the beginning to the end.
peak() {
  { number "construction_peak_$1_bytes" run.json; number "peak_$1_bytes" run.json; } | sort -n | tail -n 1
}
is_same_peak() {
  is=$(number "$2" replayed.json)
  [ -n "$is" ] && [ "$is" = "$(peak "$1")" ]
}
nothing_differs() {
  grep -q '"first_divergence":[[:space:]]*null' replayed.json && grep -q '"first_misplaced":[[:space:]]*null' replayed.json
}
# A row of a table of the recording a line, of what does not depend on numbers of strings.
rows() {
  sed -n "/^  \"$1\"/,/]}/p" "$2/recording.json" | grep '^    \[' | cut -d, -f"$3"
}
same_rows() {
  rows "$1" kept "$2" >rows1
  rows "$1" imported "$2" >rows2
  [ -s rows1 ] && cmp rows1 rows2 >err 2>&1
}
same_line() {
  grep -F "\"$1\":" kept/recording.json >rows1
  grep -F "\"$1\":" imported/recording.json >rows2
  [ -s rows1 ] && cmp rows1 rows2 >err 2>&1
}
# NAME STATUS ARGS...
try() {
  name=$1 expected=$2
  shift 2
  rm -rf kept imported
  run run "$@" --memory-snapshot s.pickle --output kept --json
  ok "$name: the run says whether it fits" is_answer "$expected"
  cp out run.json
  run replay s.pickle --json
  ok "$name: so does the replay" is_answer "$([ "$expected" = 1 ] && echo 1 || echo 0)"
  cp out replayed.json
  if [ "$expected" = 0 ]; then
    ok "$name: the peak of allocated memory is the run's" is_same_peak allocated peak_allocated_bytes
    ok "$name: the peak of reserved memory is the run's" is_same_peak reserved peak_reserved_bytes
  fi
  ok "$name: every segment and address is the run's" nothing_differs
  answers "$name: it is imported" 0 import memory-snapshot s.pickle -o imported
  # allocation, bytes, what is allocated and reserved then, address, category, stream, step
  ok "$name: with every memory event" same_rows memory 2-10
  ok "$name: with every segment" same_rows segments 2-
  ok "$name: with the peak" same_line allocated_bytes
  ok "$name: with what it consists of" same_line categories
  ok "$name: with the peaks of each step" same_rows steps 4-6
  if ! "$python" -c 'import pickletools' >/dev/null 2>&1; then
    skip "$name: Python reads it" "no Python"
    return
  fi
  "$python" "$look" rules s.pickle "$theirs" >out 2>err
  status=$?
  ok "$name: it keeps the rules of the viewer, and its keys are PyTorch's" test "$status" -eq 0
  "$python" "$look" memory_viz s.pickle >out 2>err
  status=$?
  if [ "$status" -eq 77 ]; then
    skip "$name: torch.cuda._memory_viz reads it" "no PyTorch"
  else
    ok "$name: torch.cuda._memory_viz reads it" test "$status" -eq 0
  fi
}

for plan in ddp fsdp1 fsdp2 zero3; do
  try "$plan" 0 tiny --plan "$plan" --set batch.sequence_length=512
done
try "retries" 0 llama-3.2-1b --plan fsdp2 --set batch.sequence_length=2048 --memory-limit 8GiB
ok "there are some" sh -c 'test "$(sed -n "s/.*\"allocator_retries\":[[:space:]]*\([0-9]*\).*/\1/p" run.json | head -n 1)" -gt 0'
theirs=$top_srcdir/traces/snapshot_expandable.pickle.gz
try "expandable segments" 0 tiny --plan fsdp2 --set allocator.expandable_segments=true
theirs=$top_srcdir/traces/snapshot_out_of_memory.pickle.gz
try "out of memory" 1 tiny --plan fsdp2 --memory-limit 100MiB
ok "the same is asked for" same_line requested_bytes

answers "a snapshot of PyTorch is imported" 0 import memory-snapshot "$top_srcdir/traces/snapshot_training.pickle.gz" -o theirs
answers "it can be reported" 0 report theirs --json
# torch.cuda.max_memory_allocated() and max_memory_reserved() of that program: traces/README.md
ok "its peak is PyTorch's" prints '"peak_allocated_bytes":	231526400'
ok "so is what was reserved" prints '"peak_reserved_bytes":	243269632'
answers "it is described in words" 0 report theirs
answers "its timeline is a table" 0 report theirs --table timeline
ok "with the peak in it" prints ' 231526400 '

if "$python" -c 'import pickle' >/dev/null 2>&1; then
  # 20 MiB on device 1 live to the end; 600 bytes on device 0 are freed; 2 MiB go before the history begins.
  "$python" - <<'END'
import pickle
block = dict(size=20 << 20, requested_size=20 << 20, state="active_allocated", frames=[])
segment = dict(device=1, address=1 << 40, total_size=20 << 20, stream=0, segment_type="large", is_expandable=False, blocks=[block])
entry = lambda action, address, size: dict(action=action, addr=address, size=size, stream=0, time_us=1, frames=[])
first = [entry("free_requested", 1 << 41, 600), entry("free_completed", 1 << 41, 600), entry("segment_free", 1 << 41, 2 << 20)]
second = [entry("segment_alloc", 1 << 40, 20 << 20), entry("alloc", 1 << 40, 20 << 20)]
for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
    with open(f"p{protocol}.pickle", "wb") as file:
        pickle.dump(dict(segments=[segment], device_traces=[first, second]), file, protocol)
with open("called.pickle", "wb") as file:
    pickle.dump(print, file)
END
  for protocol in 2 3 4 5; do
    answers "protocol $protocol is read" 0 import memory-snapshot "p$protocol.pickle" -o "p$protocol"
    ok "of the device with most entries" grep -q '"allocated_bytes": 1024,' "p$protocol/recording.json"
  done
  answers "a device can be named" 0 import memory-snapshot p4.pickle -o p4 --device 1
  ok "it is another" grep -q '"allocated_bytes": 20971520,' p4/recording.json
  refuses "a device that is not there is named" "p4.pickle: device 7 has neither" import memory-snapshot p4.pickle -o p7 --device 7
  refuses "what would be executed is refused" "called.pickle: byte " import memory-snapshot called.pickle -o called
  ok "by its name" grep -q 'opcode .*GLOBAL is refused' err
  ok "nothing is written then" test ! -e called
fi

refuses "a snapshot needs a folder" "import: give the folder to write: -o DIR" import memory-snapshot s.pickle
refuses "standard output is no folder" "import: --output: a folder is needed" import memory-snapshot s.pickle -o -
refuses "a kind has a name" "import: no kind of file 'memory'; there are: " import memory s.pickle -o x
refuses "devices count from 0" "import: --device: a number from 0 is needed" import memory-snapshot s.pickle -o x --device=-2
refuses "a file that is not there is named" "nowhere: No such file" import memory-snapshot nowhere -o x
echo '{}' >text
refuses "a text is no pickle" "text: byte 0: " import memory-snapshot text -o x
head -c 1000 s.pickle >cut.pickle
refuses "a pickle that ends too early is refused" "cut.pickle: byte " import memory-snapshot cut.pickle -o x
refuses "it is not replayed either" "cut.pickle: byte " replay cut.pickle
refuses "a snapshot that cannot be written is named" "nowhere/s.pickle: cannot be written" run tiny --memory-snapshot nowhere/s.pickle
finish

# replay.sh - highwater replay: recordings and lists, text and JSON, exit status, what is refused.
. "$top_srcdir/tests/cli/lib.sh"
traces=$top_srcdir/traces

# The number of a JSON key of the last output's outermost object.
value() {
  sed -n "s/^[[:space:]]\"$1\":[[:space:]]*\([0-9]*\),*$/\1/p" out
}
# The same of the recording itself.
recorded() {
  gzip -dc "$traces/$1.trace.json.gz" | sed "s/.*\"$2\":\([0-9]*\).*/\1/"
}

for trace in fsdp2 fsdp1_retries plain_max_split plain_collection ddp_divisions fsdp2_expandable_retries; do
  answers "$trace is replayed" 0 replay "$traces/$trace.trace.json.gz" --json
  ok "$trace has the recorded peak of allocated memory" \
    test "$(value peak_allocated_bytes)" = "$(recorded $trace peak_allocated_traced)"
  ok "$trace has the recorded peak of reserved memory" \
    test "$(value peak_reserved_bytes)" = "$(recorded $trace peak_reserved_traced)"
  ok "$trace does not diverge" grep -q '"first_divergence":.*null' out
  ok "$trace does not run out of memory" grep -q '"out_of_memory":.*null' out
done

answers "out of memory is the answer no" 1 replay "$traces/fsdp2_expandable_oom.trace.json.gz" --json
ok "JSON says what was asked for" grep -q '"segment_bytes":.*33554432' out
ok "the whole report is there" prints '"streams"'
ok "the peak is that of the complete step" \
  test "$(value peak_allocated_bytes)" = "$(recorded fsdp2_expandable_oom peak_allocated_traced)"
answers "the text tells it too" 1 replay "$traces/fsdp2_expandable_oom.trace.json.gz"
ok "it says how much was tried" prints "tried to allocate 32.0 MiB"
ok "it names the code that asked" prints "Requested by"

gzip -dc "$traces/random.trace.json.gz" >plain.json
answers "an unpacked trace is read" 0 replay plain.json --json
cp out unpacked
answers "a packed one says the same" 0 replay "$traces/random.trace.json.gz" --json
ok "but for its name" sh -c 'grep -v "\"trace\"" unpacked >a; grep -v "\"trace\"" out | cmp -s - a'
answers "the same input" 0 replay plain.json --json
ok "gives the same bytes" cmp -s out unpacked

run replay "$traces/fsdp2.trace.json.gz" --memory-limit 250MiB
ok "a smaller device runs out" is_answer 1
ok "and diverges from the trace" prints "First divergence at event"
answers "a device between retries" 0 replay "$traces/fsdp2.trace.json.gz" --memory-limit 300MiB --json
ok "retries are counted" test "$(value allocator_retries)" -gt 0

cat >list <<'LIST'
# an activation and its gradient
alloc activation 3MiB
alloc gradient 600 7
free activation
empty_cache
alloc activation 10MiB
LIST
answers "a list is replayed" 0 replay list --json
ok "its peak is 10 MiB and 1 KiB" test "$(value peak_allocated_bytes)" = 10486784
ok "22 MiB were reserved" test "$(value peak_reserved_bytes)" = 23068672
ok "two segments are left" test "$(value segments)" = 2
"$highwater" replay - <list >out 2>err
status=$?
ok "standard input is read" is_answer 0
gzip -c list >list.gz
answers "a packed list is replayed" 0 replay list.gz
answers "allocator options can be changed" 0 replay list --alloc-conf expandable_segments:True --json
ok "a page of 20 MiB and one of 2 are mapped" test "$(value peak_reserved_bytes)" = 23068672
ok "expandable segments are on" grep -q '"expandable_segments":.*true' out

head -c 9000 "$traces/fsdp2.trace.json.gz" >truncated.gz
refuses "a truncated file" "truncated.gz: truncated: the compressed data ends too early" replay truncated.gz
{ head -c 5000 "$traces/fsdp2.trace.json.gz"; printf 'damage'; tail -c +5007 "$traces/fsdp2.trace.json.gz"; } >damaged.gz
refuses "a damaged file" "damaged.gz: " replay damaged.gz
head -c 9000 plain.json >cut.json
refuses "truncated JSON" "cut.json: byte 9000: the input ends" replay cut.json
printf 'free x\n' >bad
refuses "a free of nothing" "bad: line 1: free of 'x', which is not allocated" replay bad
refuses "a missing file" "no-such-file: No such file" replay no-such-file
refuses "a folder" "Is a directory" replay .
refuses "no file" "too few arguments" replay
refuses "two files" "too many arguments" replay list list
refuses "a size that is none" "--memory-limit: '80Gi' is not a size" replay list --memory-limit 80Gi
refuses "an unknown allocator option" "did you mean 'expandable_segments'" replay list --alloc-conf expandable_segment:True
refuses "segments of one kind are not those of the other" "made with expandable_segments:False" \
  replay "$traces/fsdp2.trace.json.gz" --alloc-conf expandable_segments:True
# More than 256 MiB of nothing packs to a quarter of a MiB.
head -c 270000000 /dev/zero | tr '\0' ' ' | gzip -1 >bomb.gz
refuses "an enormous file" "bomb.gz: larger than 256 MiB unpacked" replay bomb.gz

# A list has no phases; where even its first allocation fails, its peaks are those of the beginning.
echo 'alloc all 1GiB' >first
answers "memory that runs out at once" 1 replay first --memory-limit 1MiB
ok "is reported" grep -q 'Out of memory at event 0' out
ok "with a peak of nothing, at the start" grep -qE '^peak allocated +start +0 B' out
answers "so it is in JSON" 1 replay first --memory-limit 1MiB --json
ok "with a peak of nothing" test "$(value peak_allocated_bytes)" = 0
answers "nor does a process get anything that may have nothing" 1 replay first --alloc-conf per_process_memory_fraction:0

run run tiny --steps 1 --memory-snapshot limit.pickle
refuses "no memory at all is no limit" "--memory-limit: a limit is at least one byte" replay limit.pickle --memory-limit 0

finish

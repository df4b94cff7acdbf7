# formats.sh - doc/formats.md knows every key of what the program prints, every key of the presets and every option of a
# strategy; its example of a network runs.  Types and ranges there are compared by eye.
. "$top_srcdir/tests/cli/lib.sh"
formats=$top_srcdir/doc/formats.md

# knows WHAT: every word of the file `words` stands in the document as a key, `word` or `section.word` in backquotes.
knows() {
  : >out
  sort -u words | while read -r word; do
    grep -qE "[\`.]$word(\[\])?[\`.]" "$formats" || echo "$word" >>out
  done
  ok "every key of $1 is described" sh -c 'test -s words && test ! -s out'
}
# The keys of the JSON on standard input.
keys() {
  grep -oE '"[A-Za-z_0-9]+":' | tr -d '":'
}

sed -n '/^### Blocks/,/^| key/s/^    //p' "$formats" >network.json
answers "the example of a blocks network runs" 0 run network.json

run run tiny --json --set fsdp.embedding=root --set 'retain=[{"group": "layers.1"}]'
keys <out >words
knows "the report"
run run tiny --json --memory-limit 100MiB
keys <out >words
knows "the report of a run out of memory"
run run tiny --json --set failure.rank=3 --set 'failure.at=step 2 backward 0.4'
keys <out >words
knows "the report of a failure"
run run tiny --output folder
keys <folder/recording.json >words
grep -oE '"columns":\[[^]]*\]' folder/recording.json | tr -d '":[]' | sed 's/^columns//' | tr , '\n' >>words
knows "a recording"
run run tiny --output folder --set 'phases={"load": {"from": {"shard": 2}}}'
keys <folder/run.json >words
run run tiny --output folder --set failure.rank=3 --set 'failure.at=step 2 backward 0.4'
keys <folder/run.json >>words
knows "a run"
run run tiny --output other --set batch.micro_batch=2
run compare folder other --json --max-error 5%
keys <out >words
knows "a comparison"
run sweep tiny --vary mesh.shard=2,4 --output swept
keys <swept/sweep.json | grep -v shard >words
keys <swept/results.jsonl | grep -v shard >>words
run sweep tiny --vary mesh.shard=2,4 --json
keys <out | grep -v shard >>words
knows "a sweep"
run plan tiny --ranks 4 --json --output chosen.json
keys <out | grep -v "^_" >words
knows "a proposal"
run explain tiny --memory-limit 100MiB --json
keys <out >words
knows "an explanation"
run replay "$top_srcdir/tests/golden/replay-list/list.txt" --json
keys <out >words
knows "a replay"
run show tiny --plan fsdp2 --json
keys <out >words
knows "a network's summary"
run estimate tiny --json
keys <out >words
knows "an estimate"
printf '%s\n' '65536 2048 float none -1 40.00 1.64 1.43 0' '131072 4096 float none -1 50.00 2.62 2.29 0' >table.txt
run calibrate --from table.txt --output cluster.json --json
keys <out >words
knows "a calibration"
run calibrate --from "$top_srcdir/tests/fuzz/corpus/kineto/step" --json
keys <out >words
knows "a calibration from a trace"
sed '/"_fit"/,/}/d' cluster.json | keys | grep -v '^_' >words
knows "a calibrated cluster"
run list --json
keys <out >words
knows "the list"
run list strategy --json
sed -n 's/.*"key":[^"]*"\([a-z0-9_]*\)\.\([a-z0-9_]*\)".*/\1\\.\2/p' out >words
knows "the strategies' sections"
for kind in plan cluster device fabric; do
  cat "$top_srcdir/models/$kind"/*.json | sed '/"_sources"/,/^  }/d' | keys | grep -v '^_' >words
  knows "the presets of kind $kind"
done
finish

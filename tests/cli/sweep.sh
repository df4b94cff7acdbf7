# sweep.sh - highwater sweep: its outputs agree with single runs to the byte, an interrupted one goes on, what is wrong is
# named before anything runs.
. "$top_srcdir/tests/cli/lib.sh"

refuses "something is varied" "sweep: --vary KEY=VALUE,VALUE,... is needed" sweep tiny
refuses "a network is needed" "sweep: too few arguments" sweep
refuses "a misspelt key is recognized" "did you mean 'blocks_per_group'?" sweep tiny --vary fsdp.block_per_group=1,2
ok "and named with its option" grep -q -e '--vary fsdp.block_per_group=1: ' err
refuses "a misspelt section too" "did you mean 'fsdp'?" sweep tiny --vary fsd.blocks_per_group=1,2
refuses "too many variants are counted" "--vary: 1000000 variants are more than 100000" \
  sweep tiny --vary fsdp.blocks_per_group=1..1000 --vary optimizer.clip_grad_norm=1..1000
refuses "evidence needs a folder" "--evidence: needs --output" sweep tiny --vary mesh.shard=1,2 --evidence all
refuses "evidence is one of three words" "--evidence: is one of auto, all, none" \
  sweep tiny --vary mesh.shard=1,2 --evidence some --output x
refuses "one format is printed" "only one of --json and --csv" sweep tiny --vary mesh.shard=1,2 --json --csv
refuses "a folder is not standard output" "--output: a folder is needed" sweep tiny --vary mesh.shard=1,2 --output -
refuses "jobs are a number" "--jobs" sweep tiny --vary mesh.shard=1,2 --jobs=-1
refuses "a batch is held by one hand" "chooses accumulation.steps, which --vary gives too" \
  sweep tiny --vary accumulation.steps=1,2 --hold-global-batch
refuses "a section is not varied with a key of its own" "mesh is varied with mesh.shard" \
  sweep tiny --vary mesh.shard=1,2 --vary 'mesh={"shard":4}'
refuses "in either order" "mesh.shard is varied with mesh" sweep tiny --vary 'mesh={"shard":4}' --vary mesh.shard=1,2
answers "keys that begin alike are no section" 0 sweep tiny --steps 1 --vary mesh.shard=1 --vary mesh.replicate=1
refuses "a rank that no variant has is an error" "--rank: 8 is not in 0..7" sweep tiny --vary fsdp.blocks_per_group=1,2 --rank 8
answers "one that some have is not" 0 sweep tiny --vary mesh.shard=2,8 --rank 3
ok "the others are refused" grep -q '^2: --rank: 3 is not in 0..1' out
refuses "a network that is wrong is an error, not a result" "missing.json: cannot be read" \
  sweep missing.json --vary mesh.shard=1,2
refuses "what no variant can be is an error" "key 'mesh.shard': 0 is not in" sweep tiny --vary mesh.shard=0,-1
ok "nothing was left behind" test ! -e x
refuses "an empty name is named" "an empty name: cannot be written" sweep tiny --vary mesh.shard=1,2 --output ""
mkdir foreign
echo notes >foreign/notes.txt
refuses "a folder of something else is left alone" "is not a folder written by 'highwater sweep --output'" \
  sweep tiny --vary mesh.shard=1,2 --output foreign
ok "with what is in it" test "$(ls foreign)" = notes.txt

# ---- answers ----

answers "variants that fit are an answer" 0 sweep tiny --vary fsdp.blocks_per_group=1,2 --output kept
ok "what is fixed is said" grep -q '^Fixed: strategy fsdp2, shard degree 8, .*reshard after forward true' out
ok "the fastest that fits is marked" grep -qE '^ +[12]  \*  fits' out
answers "none that fits is another" 1 sweep tiny --vary fsdp.blocks_per_group=1,2 --memory-limit 10MiB
ok "with the reason of each" test "$(grep -c '^[12]: .* asks for ' out)" -eq 2
ok "and no best one" prints "No variant fits."
answers "one that fits is enough" 0 sweep tiny --vary memory_limit=10MiB,10GiB
answers "one that is refused does no harm" 0 sweep tiny --vary mesh.shard=0,8
ok "and is listed with its reason" grep -q "^0: --set mesh.shard=0: .*0 is not in 1" out
answers "batches that differ are pointed out" 0 sweep tiny --vary batch.micro_batch=1,2
ok "with what is compared then" grep -q '^The global batch is not fixed: ' out
answers "they can be held" 0 sweep tiny --vary batch.micro_batch=1,2 --set accumulation.steps=2 --hold-global-batch
ok "by accumulation" grep -q '^Fixed: .*global batch 131,072 tokens' out
answers "JSON has a line for each variant" 0 sweep tiny --vary fsdp.blocks_per_group=1,2,4 --json
ok "in order" test "$(sed 's/.*"variant":\([0-9]*\),.*/\1/' out | tr '\n' ' ')" = "1 2 3 "
answers "CSV too, under a heading" 0 sweep tiny --vary 'fsdp.groups=[["layers.0","layers.1"]],null' --csv
ok "values with commas are quoted" test "$(grep -c '"\[\[""layers.0"",""layers.1""\]\]"$' out)" -eq 1

# ---- the folder ----

for file in sweep.json results.jsonl results.csv results.tsv comparison.txt variants/1/recording.json variants/2/groups.tsv \
  variants/2/gathers.tsv variants/2/timeline.tsv variants/2/equivalence.txt variants/2/report.json; do
  ok "the folder has $file" test -s "kept/$file"
done
ok "every gradient is reduced once" sh -c 'test "$(grep -c "^equivalent" kept/variants/*/equivalence.txt | grep -c ":1$")" -eq 2'
answers "the run of a variant is a run like others" 0 plot timeline kept/variants/2 --terminal dumb

# Every figure of a row is that of a run of its own, as it prints it.
figure() {
  sed -n "s/^[[:space:]]*\"$1\":[[:space:]]*\([0-9.e+-]*\),*\$/\1/p" out | $2
}
answers "a sweep of two keys" 0 sweep tiny --vary fsdp.blocks_per_group=1,2,4 --vary activation_checkpointing.policy=none,full \
  --steps 2 --output product --evidence none
ok "keeps no runs unless asked" test ! -e product/variants
grep -v '^#' product/results.tsv >rows
ok "has a row for each combination, the last key first" \
  test "$(awk '{printf "%s ", $12}' rows)" = "1,none 1,full 2,none 2,full 4,none 4,full "
while read -r number verdict pareto allocated reserved headroom step tokens exposed collectives startup label blocks policy; do
  run run tiny --json --steps 2 --set fsdp.blocks_per_group="$blocks" --set activation_checkpointing.policy="$policy"
  ok "$label: verdict" grep -q "\"verdict\":[[:space:]]*\"$verdict\"" out
  ok "$label: most allocated in a step" test "$(figure peak_allocated_bytes 'sort -n' | tail -n 1)" = "$allocated"
  ok "$label: most reserved in a step" test "$(figure peak_reserved_bytes 'sort -n' | tail -n 1)" = "$reserved"
  ok "$label: headroom" test "$(figure headroom_bytes cat)" = "$headroom"
  ok "$label: step" test "$(figure step_s cat)" = "$step"
  ok "$label: tokens" test "$(figure tokens_per_s_per_gpu cat)" = "$tokens"
  ok "$label: exposed" test "$(figure exposed_communication_s cat)" = "$exposed"
  ok "$label: startup" test "$(figure startup_s cat)" = "$startup"
  ok "$label: collectives" test "$(sed -n '/"communication":/,$p' out | sed -n 's/^.*"count":[[:space:]]*\([0-9]*\),$/\1/p' |
    head -n 3 | awk '{n += $1} END {print n}')" = "$collectives"
done <rows
run run tiny --plan lora --json
startup=$(figure startup_s cat)
answers "a rank by itself" 0 sweep tiny --plan lora --vary steps=3 --json
ok "starts no collectives, which takes no time in either" grep -q "\"startup_s\":${startup:-null}," out
ok "and is known to" test "$startup" = 0
ok "the table is as wide as its heading" awk 'NR == 2 {n = NF - 1} NR > 2 && NF != n {bad = 1} END {exit bad || NR < 8}' product/results.tsv

# ---- interruptions ----

# Lines as a kill leaves them: the last one half written.
cp product/results.tsv whole.tsv
cp product/results.csv whole.csv
sort product/results.jsonl >whole.jsonl
head -n 2 product/results.jsonl >cut.jsonl
sed -n 3p product/results.jsonl | head -c 70 >>cut.jsonl
mv cut.jsonl product/results.jsonl
rm product/results.tsv product/results.csv
answers "the same command goes on" 0 sweep tiny --vary fsdp.blocks_per_group=1,2,4 \
  --vary activation_checkpointing.policy=none,full --steps 2 --output product --evidence none
ok "to the same table" cmp product/results.tsv whole.tsv
ok "and the same CSV" cmp product/results.csv whole.csv
sort product/results.jsonl >again.jsonl
ok "with each variant once" cmp again.jsonl whole.jsonl
refuses "another sweep is not mixed in" "product/sweep.json: is of another sweep" \
  sweep tiny --vary fsdp.blocks_per_group=1,2,4 --vary activation_checkpointing.policy=none,full --steps 3 --output product
sed 's/"hidden_size": 256/"hidden_size": 512/' "$HIGHWATER_MODELS/network/tiny.json" >network.json
answers "a network of a file" 0 sweep network.json --vary mesh.shard=2,4 --output changed
sed -i 's/"hidden_size": 512/"hidden_size": 1024/' network.json
refuses "which has changed since" "changed/sweep.json: is of another sweep" sweep network.json --vary mesh.shard=2,4 \
  --output changed

# A kill at any moment leaves names that were to be renamed: in the folder, beside a variant, and in it.
cp -r kept whole
rm -r kept/variants/2 kept/results.tsv
mkdir kept/variants/2 kept/variants/2.aB3dEf kept/variants/2.aB3dEf.old kept/variants/mine.aB3dEf
echo half >kept/variants/2/groups.tsv.aB3dEf
echo half >kept/variants/2.aB3dEf/recording.json.Zz9Zz9
echo half >kept/variants/2.aB3dEf.old/recording.json
echo half >kept/results.tsv.aB3dEf
echo half >kept/variants/1/equivalence.txt.aB3dEf
answers "a killed sweep goes on" 0 sweep tiny --vary fsdp.blocks_per_group=1,2 --output kept
ok "what is not its own stays" rmdir kept/variants/mine.aB3dEf
ok "half-written files and folders go, all else is as it was" diff -r whole kept
mkdir early
: >early/results.jsonl
echo half >early/sweep.json.aB3dEf
answers "one killed at its very start begins again" 0 sweep tiny --vary fsdp.blocks_per_group=1,2 --output early
sort early/results.jsonl >early.jsonl
sort whole/results.jsonl | cmp -s - early.jsonl
ok "with the same results" test $? -eq 0
ok "and nothing half-written is left" test ! -e early/sweep.json.aB3dEf
mkdir lines
echo results >lines/results.jsonl
refuses "results of something else are left alone" "is not a folder written by" \
  sweep tiny --vary fsdp.blocks_per_group=1,2 --output lines

# Numbers: the schedules of all variants, executed.
answers "variants are executed on numbers" 0 sweep tiny --vary fsdp.blocks_per_group=1,2,0 --verify --output numbers
ok "which says what they ran on" prints "Executed on numbers, 2 steps, beside unsharded runs; scaled: num_attention_heads 4 -> 2"
ok "and that losses are equal" prints "The 3 variants with 8 samples of 8 tokens of tiny, adamw clipped at 1 come to equal losses, within 1e-09"
ok "the evidence has each answer" grep -q '"equal":.*true' numbers/variants/2/verification.json
ok "so has the comparison" grep -q '^  1: equal$' numbers/comparison.txt
answers "the folder is the same without it" 0 sweep tiny --vary fsdp.blocks_per_group=1,2,0 --output numbers --csv
ok "and nobody is asked" sh -c '! grep -q verified out'
# One token alone is no surprise: all losses are zero.
printf '{"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
"vocab_size": 1}' >one.json
answers "losses that are zero are equal" 0 sweep one.json --set batch.sequence_length=16 --vary fsdp.blocks_per_group=1,2 --verify
ok "and said to be" prints "come to equal losses"

answers "what is too much work is not executed" 0 sweep tiny --vary mesh.shard=4,512 --verify --csv
ok "in a column" grep -q ',not executed,512$' out
answers "why says the row" 0 sweep tiny --vary mesh.shard=4,512 --verify --json
ok "of JSON" prints '"verified_reason":"512 micro-batches of all ranks in a step are more than the 256 that are tried"'
answers "what cannot be executed is said" 0 sweep tiny --vary compile=none,per_block --verify
ok "with the reason" grep -q "^per_block: not executed: .*key .compile.: verify cannot look into compiled kernels" out
ok "variants with another batch are not compared" sh -c '! grep -q "come to" out'

# A signal: what has begun is brought to an end, lines are whole, and the rest follows later.
for signal in INT TERM; do
  case $signal in INT) expected=130 ;; TERM) expected=143 ;; esac
  # A background command of a shell ignores SIGINT; env restores that where it can.
  if ! env --default-signal=INT true 2>/dev/null; then
    skip "SIG$signal stops a sweep" "env cannot restore signals here"
    continue
  fi
  env --default-signal=INT "$highwater" sweep tiny --vary optimizer.clip_grad_norm=1..3000 --jobs 1 --output "stopped-$signal" \
    >out 2>err &
  process=$!
  while [ "$(wc -l 2>/dev/null <"stopped-$signal/results.jsonl" || echo 0)" -lt 5 ] && kill -0 $process 2>/dev/null; do :; done
  kill -s "$signal" $process
  wait $process
  status=$?
  ok "SIG$signal stops a sweep" test "$status" -eq $expected
  ok "which says how far it came" grep -qE '^highwater: sweep: interrupted: [0-9]+ of 3000 variants are done; the same command goes on' err
  ok "and prints nothing else" test ! -s out
  ok "its lines are whole" sh -c "test -z \"\$(tail -c 1 stopped-$signal/results.jsonl)\" && ! grep -qv '}\$' stopped-$signal/results.jsonl"
done
ok "there is no progress bar in a file" sh -c "! grep -q '\\[' err"
finish

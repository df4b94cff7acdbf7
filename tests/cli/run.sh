# run.sh - the command line of highwater run: each refusal is one line that names what is wrong.
. "$top_srcdir/tests/cli/lib.sh"

refuses "a network is needed" "run: too few arguments" run
refuses "only one network is taken" "run: too many arguments" run tiny gpt2
refuses "at least one step is simulated" "run: --steps: 0 is not in 1..10000" run tiny --steps 0
refuses "steps are a number" "--steps" run tiny --steps three
refuses "ranks count from 0" "run: --rank: -1 is not in" run tiny --rank=-1
refuses "a limit of memory is a size" "run: --memory-limit: '80GB/s' is not a size" run tiny --memory-limit 80GB/s
refuses "a limit of memory is positive" "run: --memory-limit: a limit is at least one byte" run tiny --memory-limit 0
refuses "a negative limit is no size" "run: --memory-limit: '-1GiB' is not a size" run tiny --memory-limit=-1GiB
refuses "standard input can be one thing only" "only one of NETWORK, --plan and --cluster can be standard input" \
  run - --plan -
refuses "a misspelt network is recognized" "did you mean 'tiny'?" run tinny
refuses "a misspelt plan is recognized" "did you mean 'fsdp2'?" run tiny --plan fsdp22
refuses "a misspelt cluster is recognized" "did you mean 'h100-8'?" run tiny --cluster h10-8
refuses "a missing network is named" "missing.json: cannot be read: No such file" run missing.json
refuses "a missing plan is named" "missing.json: cannot be read: No such file" run tiny --plan missing.json
refuses "a missing cluster is named" "missing.json: cannot be read: No such file" run tiny --cluster missing.json
refuses "an empty name is no network" "a network is needed, not an empty name" run ""
refuses "nor a plan" "a plan is needed, not an empty name" run tiny --plan ""
refuses "numbers are decimal" "run: --steps: '0x10' is not a decimal number" run tiny --steps=0x10
refuses "and not octal" "run: --rank: '010' is not a decimal number" run tiny --rank 010
refuses "a folder is not standard output" "run: --output: a folder is needed" run tiny --output -
ok "and none is made" test ! -e ./-
refuses "half an object is no string" "--set 'mesh={': line 1: " run tiny --set 'mesh={'
refuses "half an array neither" "--set 'retain=[1': line 1: " run tiny --set 'retain=[1'
for command in run lower show; do
  refuses "$command says that --set was wrong" "highwater: --set mesh.shard=0: " $command tiny --set mesh.shard=0
  ok "and in which plan" grep -q "key 'mesh.shard': 0 is not in 1..1048576" err
done
refuses "below a section that was set, too" "--set mesh={\"shards\": 2}: " run tiny --set 'mesh={"shards": 2}'
refuses "what the plan's own keys do is not blamed on --set" "highwater: $HIGHWATER_MODELS" \
  run tiny --set strategy=ddp --set mesh.shard=1
refuses "FSDP1's root is never resharded" "key 'fsdp.reshard_root': only fsdp2 has it" \
  run tiny --plan fsdp1 --set fsdp.reshard_root=false
mkdir folder.json
refuses "a folder is no network" "folder.json: cannot be read" run folder.json
printf '{"model_type": "llama"' >truncated.json
refuses "a truncated network is named with its line" "truncated.json: line 1:" run truncated.json
"$highwater" run - <truncated.json >out 2>err
status=$?
ok "standard input is named in messages" is_refusal "standard input: line 1:"

# deepspeedai/DeepSpeed#237: someone trained on one device and wondered what ZeRO saves.
answers "a shard group of one is simulated" 0 run tiny --plan zero2 --set mesh.shard=1
ok "with a warning that nothing is sharded" grep -q 'strategy zero2 shards nothing' out

# A link is followed, as a shell's redirection does: what it points to is replaced, the link stays.
answers "a run is kept" 0 run tiny --output kept
ln -s kept link
answers "a run is kept through a link" 0 run tiny --output link
ok "the link is still one" test -L link
ok "the run is where the link points to" test -s kept/report.json
echo old >table.tsv
ln -s table.tsv link.tsv
answers "a table is written through a link" 0 run tiny --timeline link.tsv
ok "that link is still one, too" test -L link.tsv
ok "the table is where it points to" grep -q highwater-timeline-1 table.tsv
if [ -c /dev/full ]; then
  "$highwater" run tiny --timeline /dev/full >out 2>err
  status=$?
  ok "a full disk is called by its name" grep -q '^highwater: /dev/full: cannot be written: No space left' err
fi

# Every plan has an equivalent stage; ZeRO-2 by default sends more than its paper says.
for strategy in none ddp zero0 zero1 zero2 zero3 fsdp1 fsdp2; do
  echo "{\"strategy\": \"$strategy\"}" >strategy.json
  answers "$strategy runs" 0 run tiny --plan strategy.json
  ok "its equivalent stage is said" grep -qE '(^|\. )Equivalent to ZeRO stage [0-3]\.' out
done
answers "stage 2 runs" 0 run tiny --plan zero2
ok "what it sends is said, and what it should" \
  grep -q '^A micro-batch sends 3.00 elements per parameter; by ZeRO.s paper 2\.' out

# A failure ends the run, which is kept as far as it went.
answers "a worker fails" 0 run tiny --output failed --set failure.rank=3 --set 'failure.at=step 2 backward 0.4'
ok "and the others hang" grep -q 'ranks 0-2, 4-7 wait, rank 3 never arrives' out
answers "programs read it" 0 run tiny --json --set mesh.shard=4 --set mesh.replicate=2 --set failure.rank=3 \
  --set 'failure.at=step 2 backward 0.4'
ok "where a copy of the lost part is" sh -c 'tr -d "\n\t " <out | grep -q "\"copies_on\":{\"count\":1,\"runs\":\[\[7,7\]\]}"'
ok "what training goes on from" grep -q '"from":	"other_ranks"' out
ok "the run is kept up to then" grep -q '"rank":	3' failed/report.json
answers "figures can be made of it" 0 plot timeline failed --terminal dumb
refuses "an instant device has no moments" "key 'failure': has no moment on device instant" \
  run tiny --cluster instant --set failure.rank=3 --set 'failure.at=step 2 backward 0.4'
refuses "a failure is in a step that is simulated" "step 2 is beyond the 1 steps of this run" \
  run tiny --steps 1 --set failure.rank=3 --set 'failure.at=step 2 backward 0.4'
answers "memory may run out first" 1 run tiny --memory-limit 100MiB --set failure.rank=3 --set 'failure.at=step 2 clip 0'
ok "and the failure is not reached" grep -q 'memory runs out before rank 3 fails' out

# Steps that repeat are not played again.
answers "ten thousand steps take no longer than a few" 0 run tiny --steps 10000 --json
ok "the rest are counted" grep -qE '"repeated_steps":	99[0-9][0-9],' out
answers "sixteen are all simulated" 0 run tiny --steps 16 --json
ok "each of them" grep -q '"repeated_steps":	0,' out

# The model is built under the same limit.
answers "nothing at all may fit" 1 run tiny --memory-limit 1MiB
ok "what is asked for first is said" prints "a segment of 2.00 MiB; 1.00 MiB of 1.00 MiB left, 0 B allocated"
answers "a model that cannot be built does not fit" 1 run llama-3-8b --plan fsdp1 --memory-limit 20GiB
ok "and the construction is named" grep -q '^DOES NOT FIT  construction of layers.22' out
ok "with its peak" grep -q '^PEAK    20.0 GiB allocated in construction' out
answers "it is a run like others" 1 run llama-3-8b --plan fsdp1 --memory-limit 20GiB --output unbuilt --json
answers "of which figures can be made" 0 plot timeline unbuilt --terminal dumb

# Ranks of ZeRO-2 differ by what falls into their partition: here the embedding does into rank 0's.
answers "another rank that has no room is found" 1 run llama-3-8b --plan zero2 --rank 3 --memory-limit 36GiB \
  --set batch.sequence_length=2048
ok "and named" grep -q 'rank 0' out
# ZeroRedundancyOptimizer deals three equal layers to two ranks: rank 0 has the states of two.
printf '%s' '{"family": "blocks", "hidden": 2048, "embedding": false, "head": false, "loss": "sum",
  "blocks": [{"repeat": 3, "ops": [{"op": "linear", "out": 2048}]}]}' >three.json
answers "a rank that updates more than this one decides" 1 run three.json --rank 1 --memory-limit 260MiB --plan ddp \
  --set mesh.replicate=2 --set batch.sequence_length=64 --set precision=null --set ddp.zero_redundancy_optimizer=true
ok "and is named too" grep -q 'rank 0' out
answers "with room for both it fits" 0 run three.json --rank 1 --memory-limit 280MiB --plan ddp \
  --set mesh.replicate=2 --set batch.sequence_length=64 --set precision=null --set ddp.zero_redundancy_optimizer=true

# What the CPU writes is no op of the Program: an offloaded optimizer's states are there when a state dict reads them.
for state in full sharded; do
  answers "a $state state dict of an offloaded optimizer is in order" 0 lower tiny --check --set fsdp.cpu_offload=true \
    --set mesh.shard=2 --set phases.save.state=$state
done
# One token of one sequence: a row is as large as the vector that it is multiplied with.
sed 's/"torchtitan"/"transformers"/' "$HIGHWATER_MODELS/network/tiny.json" >one.json
for family in tiny one.json gpt2; do
  answers "one token is enough for $family" 0 run "$family" --set batch.sequence_length=1
done

# A tied weight that groups cannot share counts twice, and the report says so.
answers "a tied model in groups of their own" 0 run llama-3.2-1b --verbose
ok "its output layer has a weight of its own" grep -q '^The tied output layer counts with a weight of its own' out
ok "times before the device has begun are explained" grep -q 'the host may run ahead' out

answers "a trace is written" 0 run tiny --chrome-trace trace.json --json
peak=$(sed -n 's/.*"peak_allocated_bytes":[[:space:]]*\([0-9]*\),*$/\1/p' out | sort -n | tail -n 1)
most=$(sed -n 's/.*"name":"allocated".*"bytes":\([0-9]*\)}}.*/\1/p' trace.json | sort -n | tail -n 1)
ok "its counter peaks where the report does, to the byte" test "$peak" = "$most"
# The gather of layers.1 in the last step ends before the first kernel of its forward begins; its reduction begins
# after the last kernel of its backward.
awk -F'"ts":' '/"cat":"kernel"/ { split($2, a, /[,}]/); ts = a[1]; module = $0; sub(/.*"module":"/, "", module); sub(/".*/, "", module)
  if (/ncclDevKernel_AllGather/ && module == "layers.1") gathers[++g] = ts
  else if (/ncclDevKernel_ReduceScatter/ && module == "layers.1") reduces[++r] = ts
  else if (!/nccl/ && module ~ /^layers\.1\./) kernels[++k] = ts }
  END { exit !(g >= 3 && r >= 3 && k > 0 && gathers[1] < kernels[1] && reduces[1] > kernels[1]) }' trace.json
ok "gathers come before kernels of their group, reductions after" test $? -eq 0
# Three products of equal size: forward has one each, and of the gradients only the last weight's is computed.  That is 4
# of the 9 products of a step in which all train.
echo '{"family": "blocks", "hidden": 1024, "loss": "sum", "embedding": false, "head": false,
  "blocks": [{"repeat": 3, "ops": [{"op": "linear"}]}]}' >products.json
work() {
  "$highwater" run products.json --plan ddp --json "$@" | tr -d ',\t' |
    awk -F: '$1 == "\"step_s\"" {step = $2} $1 == "\"mfu\"" {mfu = $2} END {printf "%.9f", step * mfu * 1e6}'
}
all=$(work)
last=$(work --set 'trainable=["layers.2.*"]')
ok "gradients of frozen weights are no work of the model's" \
  awk "BEGIN {exit !($last > 0 && $last / $all > 3.99 / 9 && $last / $all < 4.01 / 9)}"
run run tiny --cluster h100-8 --set 'ranks.slow=[{"rank": 3, "compute": 2}]'
ok "what a slow rank costs stands with the step" prints "of waiting for other ranks"
run run tiny --all-ranks
ok "equal ranks have no slowest" prints "all are equally fast"
run run tiny --set compile=per_block --set activation_checkpointing=null
ok "the heading says that nothing is checkpointed" prints "no checkpointing"
ok "and that blocks are compiled" prints "compiled blocks"
run run llama-3.2-1b --set fsdp.prefetch_budget=2GiB
ok "what a prefetch budget reserves stands beside what it allocates" grep -q 'the peak is .* higher, .* are reserved' out
run run llama-3-70b --plan lora --cluster rtx4090-8
ok "a model too large for one GPU is not told to be sharded while it is built" sh -c '! grep -q zero_init out && grep -q "DOES NOT FIT" out'

refuses "a run has a name" "an empty name: cannot be written" run tiny --steps 1 --output ""
refuses "its trace too" "an empty name: cannot be written" run tiny --steps 1 --chrome-trace ""

# A bucket of ZeRO is sent in a slice for each rank; there are more ranks than an op has operands.
answers "ZeRO-1 has as many ranks as a mesh can have" 0 run tiny --plan zero1 --steps 1 --set mesh.shard=1048576
answers "ZeRO-2 too" 0 run tiny --plan zero2 --steps 1 --set mesh.shard=1048576

finish

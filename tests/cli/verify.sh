# verify.sh - a schedule on numbers: the answer, what was shrunk, and what is refused.  What is found is pinned by
# check_verification.
. "$top_srcdir/tests/cli/lib.sh"

answers "a large model is verified at a small size" 0 verify llama-3-8b --plan fsdp2 --scale 256 --orders 2
ok "what was shrunk is printed" prints "num_hidden_layers 32 -> 2, num_attention_heads 32 -> 4, num_key_value_heads 8 -> 1"
ok "so is the sequence" prints "batch.sequence_length 8192 -> 8"
ok "the answer says what was tried" prints "equal to an unsharded run within 1e-09, in the order of issue and 2 others"

answers "transformers' code is verified too" 0 verify mistral-7b --plan fsdp2 --scale 64 --orders 2 --steps 2
ok "with its window" prints "equal to an unsharded run within 1e-09, in the order of issue and 2 others"

# A table of positions is the same for all heads, as many as there are.
printf '{"model_type": "qwen3", "hidden_size": 12, "intermediate_size": 20, "num_hidden_layers": 1, "num_attention_heads": 2,
"num_key_value_heads": 1, "head_dim": 4, "vocab_size": 19, "implementation": "torchtitan"}' >joined.json
answers "torchtitan's Qwen 3 is verified" 0 verify joined.json --set batch.sequence_length=6 --set mesh.shard=2 --steps 1
# Half of a row of that table, cast, lies without gaps: unless a hook has cast the whole, as for the first block of a group.
sed 's/"num_hidden_layers": 1/"num_hidden_layers": 2/' joined.json >two.json
for groups in 0 2; do
  answers "with fsdp.blocks_per_group $groups too" 0 verify two.json --set batch.sequence_length=6 --set mesh.shard=2 --steps 1 \
    --set fsdp.blocks_per_group=$groups --precision plan
done
printf '{"model_type": "llama", "hidden_size": 12, "intermediate_size": 20, "num_hidden_layers": 1, "num_attention_heads": 2,
"vocab_size": 19, "head_dim": 4, "implementation": {"code": "torchtitan", "rope": "rotate_half"}}' >halves.json
answers "its norms of another dtype too" 0 verify joined.json --plan ddp --set batch.sequence_length=6 --set mesh.replicate=2 --steps 1
answers "so are halves that are rotated in its Llama" 0 verify halves.json --set batch.sequence_length=6 --set mesh.shard=2 --steps 1

printf '{"model_type": "gpt2", "n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 19, "n_positions": 16, "resid_pdrop": 1.0}' >drop.json
answers "dropout of everything" 0 verify drop.json --set batch.sequence_length=8 --set mesh.shard=2 --steps 1
printf '{"family": "blocks", "hidden": 4, "vocabulary": 1, "blocks": [{"ops": [{"op": "linear"}]}]}' >certain.json
answers "two losses of exactly nothing" 0 verify certain.json --plan fsdp2 --plan ddp --set batch.sequence_length=4 --steps 1
ok "are equal" prints "the losses of both plans are equal at every step"
refuses "labels that are none" "the unsharded run's loss of step 1 is no number" verify mistral-7b --scale 64 --steps 1 --set batch.sequence_length=1

# Attention's fp32 path is another one, whose gradient of the keys lies transposed.
printf '{"model_type": "llama", "hidden_size": 20, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2,
"vocab_size": 32}' >heads.json
answers "heads that attention pads" 0 verify heads.json --set batch.sequence_length=8 --steps 1
printf '{"model_type": "phi", "hidden_size": 160, "intermediate_size": 320, "num_hidden_layers": 2, "num_attention_heads": 2,
"vocab_size": 640, "partial_rotary_factor": 0.4}' >rotated.json
answers "the part of a head that is rotated keeps its pairs" 0 verify rotated.json --scale 16 --set batch.sequence_length=64 --steps 1
ok "in heads of ten numbers" prints "hidden_size 160 -> 20"

answers "in the plan's dtypes rounding explains what differs" 0 verify tiny --plan fsdp2 --scale 16 --set mesh.shard=2 --steps 2 --precision plan
ok "by so much" prints "gradients differ from those of the ranks alone by what rounding explains, in the order of issue and 0 others"
answers "as JSON too" 0 verify tiny --plan zero2 --scale 16 --set mesh.shard=2 --steps 1 --precision plan --json
ok "with how much of the bound is used" grep -q '"used":' out

answers "a restart in the plan's dtypes, under the same plan" 0 verify tiny --plan zero1 --scale 32 --set mesh.shard=2 --steps 2 --precision plan \
  --restart-after 1
ok "equals it bit by bit" prints "0 others; what goes on equals, bit by bit, the run without interruption"
answers "under another one" 0 verify tiny --scale 32 --set mesh.shard=2 --steps 2 --precision plan --restart zero1 --json
ok "as far as rounding explains" grep -q '"equal_bits":.*false' out
answers "so is a failure" 0 verify tiny --scale 32 --set mesh.shard=2 --set failure.rank=1 --set 'failure.at=step 2 backward 0.4' \
  --set failure.last_save=1 --precision plan
ok "and what is invalid is told apart" grep -q "^  rank 1's parameters as a new process makes them: the loss of step 2 is .*, not " out

answers "details name every parameter" 0 verify tiny --plan ddp --scale 16 --steps 1 --details
ok "with its owners" grep -q '^layers.1.feed_forward.w2.weight .* 8 ' out
# 32 rows of 16: eleven for each of the first ranks, the rest for the last.
run verify tiny --scale 16 --set mesh.shard=3 --steps 1 --details
ok "and with what each of them has" grep -q '^output.weight .* 0: 0-175, 1: 176-351, 2: 352-511$' out

answers "programs get JSON" 0 verify tiny --plan ddp --scale 16 --steps 1 --json
ok "which says that it is equal" grep -q '"equal":.*true' out
ok "and has the losses" prints '"unsharded_loss"'

answers "the same seed gives the same bytes" 0 verify tiny --plan hsdp --scale 16 --steps 1 --seed 7
cp out first
run verify tiny --plan hsdp --scale 16 --steps 1 --seed 7
ok "again" cmp -s first out
run verify tiny --plan hsdp --scale 16 --steps 1 --seed 8
ok "another one gives others" sh -c '! cmp -s first out'

answers "two plans are compared" 0 verify tiny --plan fsdp2 --plan ddp --scale 16 --set batch.sequence_length=64 --steps 2
ok "with each other too" prints "the losses of both plans are equal at every step"
answers "the same in JSON" 0 verify tiny --set-b fsdp.blocks_per_group=2 --scale 16 --steps 1 --json
ok "has both" grep -q '"equal_losses":.*true' out
refuses "another global batch" "samples in a step of all ranks: 8 in A (fsdp2), 4 in B (fsdp2)" verify tiny --scale 16 --set-b mesh.shard=4
refuses "three plans" "at most two plans" verify tiny --plan fsdp2 --plan ddp --plan zero1

answers "training goes on under another plan" 0 verify tiny --restart zero2 --restart-after 2 --scale 16
ok "which is said" prints "saved after step 2, from there on zero2 over 8 ranks, 1 micro-batches a rank"
answers "or with other groups" 0 verify tiny --scale 16 --steps 2 --restart-after 1 --set-b mesh.shard=3 --set-a mesh.shard=6 --set-b accumulation.steps=2 --json
ok "which JSON says" grep -q '"after_step":.*1' out
refuses "a restart after the last step" "--restart-after: 3 is not in 1..2" verify tiny --restart-after 3
refuses "a restart before the first" "--restart-after: -1 is not in 1..2" verify tiny --restart-after -1
refuses "a restart of one step" "--steps: a restart needs at least 2, one before it and one after" verify tiny --steps 1 --restart zero1
refuses "a restart of two plans" "only one plan can be saved" verify tiny --plan ddp --plan ddp --restart fsdp2

answers "a worker fails" 0 verify tiny --scale 16 --set failure.rank=1 --set 'failure.at=step 2 backward 0.4' --set failure.last_save=1
ok "it is said where training goes on" prints \
  "rank 1 fails in step 2, 40 % into backward; step 1 was saved: from there on fsdp2 over 8 ranks, 1 micro-batches a rank"
ok "and what it must not go on with" grep -q "^  rank 1's parameters as a new process makes them: the loss of step 2 is .*, not " out
answers "others go on" 0 verify tiny --scale 16 --set-a failure.rank=7 --set-a 'failure.at=step 1 backward 0.4' --json --restart fsdp1 \
  --set-b mesh.shard=4 --set-b accumulation.steps=2
ok "which JSON says" grep -q '"last_consistent_step":.*0' out
refuses "a failure in no step of it" "step 5 is beyond the 3 steps of this run" verify tiny --set failure.rank=1 --set 'failure.at=step 5 clip 0'
refuses "another place to go on" "no --restart-after" verify tiny --set-a failure.rank=1 --set-a 'failure.at=step 2 clip 0' --restart-after 1
refuses "another place under the same plan" "says itself where it goes on (last_save): no --restart-after" verify tiny --set failure.rank=1 \
  --set 'failure.at=step 2 clip 0' --restart-after 1
refuses "a failure of the other plan" "only the first can fail (--set-a says it of that alone)" verify tiny --set failure.rank=1 --set 'failure.at=step 2 clip 0' --restart ddp
refuses "plans that fail and are compared" "plans that are compared do not fail" verify tiny --set-a failure.rank=1 \
  --set-a 'failure.at=step 2 clip 0' --plan fsdp2 --plan ddp --set batch.sequence_length=64
refuses "a failure on a device without time" "key 'failure': has no moment on device instant" verify tiny --scale 16 --cluster instant \
  --set failure.rank=1 --set 'failure.at=step 2 clip 0'

refuses "a plan without an optimizer" "optimizer.name" verify tiny --set optimizer.name=none
refuses "code whose numbers nobody has said" "kernel topk: nobody has said what it computes" verify mixtral-8x7b --scale 64
answers "an optimizer on the host" 0 verify tiny --scale 16 --set fsdp.cpu_offload=true
refuses "a checkpoint of which nobody knows the numbers" "--restart goes on from one" verify tiny --set 'phases={"load":{}}'
refuses "compiled blocks" "key 'compile'" verify tiny --plan fsdp2 --set compile=per_block
refuses "a precision that is none" "--precision: it is fp64 or plan" verify tiny --precision fp8
refuses "a scale that is none" "--scale: 0 is not in 1..65536" verify tiny --scale 0
refuses "a network without sizes to shrink" "--scale: it names no layers and no width" verify worked-case --scale 2
refuses "more steps than are sensible" "--steps: 101 is not in 1..100" verify tiny --steps 101
printf '{"model_type": "llama", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16,
"vocab_size": 1099511627776}' >huge.json
refuses "more numbers than the machine has room for" "parameters as numbers do not fit into this machine's memory: shrink the network (--scale)" \
  verify huge.json --set batch.sequence_length=8
finish

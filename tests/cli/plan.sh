# plan.sh - highwater plan: what it proposes is what run and sweep find, leaves its headroom, and is refused in one line
# where it cannot be looked for.
. "$top_srcdir/tests/cli/lib.sh"

refuses "ranks are a number" "plan: " plan tiny --ranks=-1
refuses "headroom is below everything" "plan: --headroom: is from 0 to below 100 %" plan tiny --headroom 100%
refuses "headroom is a size" "plan: --headroom: a part of the memory (10%) or a size is needed" plan tiny --headroom much
refuses "it is less than there is" "plan: --headroom: as much as there is" plan tiny --headroom 200GiB
refuses "a batch has to be spread evenly" "plan: " plan tiny --global-batch 3
refuses "an unknown key is named" "fsdp.groop" plan tiny --set fsdp.groop=1
refuses "a network is needed" "plan: too few arguments" plan

# ---- what is proposed ----

small="tiny --set batch.sequence_length=1024"
answers "a plan is proposed" 0 plan $small

[ -z "${HIGHWATER_QUICK:-}" ] || {
  skip "what is proposed" "HIGHWATER_QUICK is set"
  finish
}
ok "its first lines say what it is" grep -q '^PLAN    ' out
ok "and how it fits" grep -qE '^FITS    .* reserved, .* to spare$' out
ok "its gradients have been followed" grep -q '^CHECK   equivalent: ' out
ok "the alternatives say why not" grep -qE '^sharding +(fsdp2|ddp), 8 .*(more|less|lacks)' out
answers "it can be written" 0 plan $small -o plan.json
answers "and printed as JSON" 0 plan $small --json
tr -d '[:space:]' <out >planned
# number KEY FILE: the first number under a key.
number() {
  sed "s/.*\"$1\":\([0-9.e+-]*\)[,}].*/\1/" "$2"
}
chosen=$(sed 's/.*"chosen":{\(.*\)"alternatives":.*/\1/' planned)
printf '%s\n' "$chosen" >chosen
answers "run takes the plan" 0 run tiny --plan plan.json --json
tr -d '[:space:]' <out >ran
ok "and finds the same reserved memory" test "$(number peak_reserved_bytes chosen)" = "$(sed 's/.*"memory":{"capacity_bytes":[^}]*"peak_reserved_bytes":\([0-9]*\),.*/\1/' ran)"
ok "and the same time of a step" test "$(number step_s chosen)" = "$(sed 's/.*"time":{"step_s":\([0-9.e+-]*\),.*/\1/' ran)"
answers "the plan alone goes to standard output" 0 plan $small -o -
ok "as a plan" cmp -s out plan.json

# ---- against all there are ----

# The axes that are left: three groupings, two policies of resharding, at one sharding, checkpointing and micro-batch.
fixed="--set strategy=fsdp2 --set mesh.shard=8 --set batch.sequence_length=1024 --set activation_checkpointing.policy=full --set fsdp.embedding=own --set fsdp.head=own"
answers "all of a small space are swept" 0 sweep gpt2 $fixed --csv --vary fsdp.blocks_per_group=1,2,4,8 \
  --vary fsdp.reshard_after_forward=true,false --vary fsdp.forward_prefetch=0,1,2 --vary fsdp.backward_prefetch=0,1,2
best=$(awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "step_s") c = i; next } c && $c > 0 && (!b || $c < b) { b = $c } END { print b }' out)
ok "each has a time" test -n "$best"
answers "the search" 0 plan gpt2 $fixed --json
tr -d '[:space:]' <out >planned
sed 's/.*"chosen":{\(.*\)"alternatives":.*/\1/' planned >chosen
ok "is within a thousandth of the best of them" awk "BEGIN { exit !($(number step_s chosen) <= 1.001 * $best) }"

# ---- headroom, and what does not fit ----

answers "headroom is a part of the memory" 0 plan $small --headroom 60% --json
tr -d '[:space:]' <out >planned
sed 's/.*"chosen":{\(.*\)"alternatives":.*/\1/' planned >chosen
ok "that the plan leaves" test "$(number headroom_bytes chosen)" -ge "$(number headroom_asked_bytes planned)"
ok "and it is what was asked for" test $(($(number headroom_asked_bytes planned) * 100 / $(number capacity_bytes planned))) -eq 60
answers "nothing may fit" 1 plan llama-3-70b --set strategy=fsdp2 --set mesh.shard=8 --set batch.sequence_length=1024
ok "then the closest is said" grep -q '^CLOSEST ' out
ok "and what it needs" grep -qE '^NEEDS   .* more than there is$' out
answers "ranks may be others than the plan's" 0 plan tiny --ranks 64 --set batch.sequence_length=1024
ok "all of them are used" grep -q ' on 64 ranks of h100-8, 64 sequences of 1024 tokens a step' out
answers "one is enough" 0 plan tiny --ranks 1 --plan ddp --set batch.sequence_length=1024
ok "then nothing is sharded" grep -q '^PLAN    none, ' out
answers "a batch of all ranks is kept" 0 plan tiny --global-batch 32 --set batch.sequence_length=512 --json
tr -d '[:space:]' <out >planned
ok "whatever the micro-batch" test "$(number sequences_per_step planned)" -eq 32

finish

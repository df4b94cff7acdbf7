# worked_case.sh - the commands of doc/worked-case.md print what it shows, and its figures are those of the arithmetic, to the
# byte where only sizes decide.
. "$top_srcdir/tests/cli/lib.sh"
. "$top_srcdir/tests/document.sh"
document doc/worked-case.md

# ---- the sizes ----

mib=$((1024 * 1024))
stem=17553408 encoders=$((39 * 171966464)) decoder=1503657984 half=832045056
all=$((stem + encoders + decoder + 2 * half)) trained=$((stem + encoders))
persistent=$((14336 * mib))
current=$((2868 * mib)) next=$((3174 * mib))
activations=$((2252 * mib)) workspace=$((1434 * mib))
scratch=$((next / 8))
counted=$((persistent + current + next + activations + workspace))

is() {
  [ "$1" -eq "$2" ]
}
# gib BYTES HUNDREDTHS: so many hundredths of a GiB, rounded.
gib() {
  [ $((($1 * 100 + 512 * mib) / (1024 * mib))) -eq "$2" ]
}
ok "parameters, gradients, two moments and 40 step counts are 14 GiB" is $((all / 8 * 4 + trained / 8 * 12 + 40 * 512)) $persistent
ok "the current block has 2868 MiB in bf16" is $((2 * decoder)) $current
ok "which are 2.80 GiB" gib $current 280
ok "the next one has 3174" is $((4 * half)) $next
ok "which are 3.10" gib $next 310
ok "kept by 39 blocks and the current one, and four values: 2252 MiB" is $((39 * 55 + 103 + 4)) $((activations / mib))
ok "which are 2.20 GiB" gib $activations 220
ok "the workspace is 1.40 GiB" gib $workspace 140
ok "together 23.5 GiB" is $counted $((47 * 512 * mib))

# ---- what is simulated ----

json() {
  run "$@" --cluster l40s-8 --json
  figures=$(tr -d '[:space:]' <out)
}
# of KEY...: the sum of so many figures of "memory", the peak's categories among them.
of() {
  of_sum=0
  for of_key in "$@"; do
    of_value=$(printf '%s\n' "${figures#*\"memory\":}" | grep -o "\"$of_key\":[0-9]*" | head -n 1)
    of_sum=$((of_sum + ${of_value#*:}))
  done
  echo $of_sum
}
state="parameter sharded_gradient optimizer_state"

json run spike
ok "as it was counted 14 GiB stay" is "$(of $state)" $persistent
ok "both groups are there once" is "$(of unsharded_parameter)" $((current + next))
ok "activations are 2252 MiB" is "$(of activation)" $activations
ok "the workspace 1434 MiB" is "$(of temporary)" $workspace
ok "and what the all-gather sends an eighth of its group" is "$(of all_gather_buffer)" $scratch
ok "there is nothing else" is "$(of peak_allocated_bytes)" $((counted + scratch))
ok "that is less than 24 GiB" test "$(of peak_allocated_bytes)" -lt $((24 * 1024 * mib))
ok "but reserved is more" test "$(of peak_reserved_bytes)" -gt $((24 * 1024 * mib))
json run spike-retained
ok "the debugging hook keeps 2.8 GiB more" is "$(of peak_allocated_bytes)" $((counted + scratch + current))
json run spike-no-prefetch
ok "without prefetching the next group and its scratch memory are not there" is "$(of peak_allocated_bytes)" $((counted - next))

# fsdp2 NAME BYTES HUNDREDTHS SETTINGS...: the peak of the network.
fsdp2() {
  fsdp2_name=$1 fsdp2_bytes=$2 fsdp2_hundredths=$3
  shift 3
  json run worked-case --plan worked-case "$@"
  ok "$fsdp2_name, to the byte" is "$(of peak_allocated_bytes)" $fsdp2_bytes
  ok "$fsdp2_name, in GiB" gib $fsdp2_bytes $fsdp2_hundredths
}
split='fsdp.groups=["layers.41.front","layers.*"]'
fsdp2 "with the deferred output 26.3 GiB" $((counted + current)) 2630
ok "of which 14 GiB stay" is "$(of $state)" $persistent
ok "and two outputs of all-gathers wait" is "$(of all_gather_buffer)" $((current + next))
fsdp2 "split, with a depth of one 24.75" $((counted + current - next / 2)) 2475 --set "$split"
fsdp2 "split, with implicit prefetch 23.2" $((counted + current - next)) 2320 --set "$split" --set fsdp.forward_prefetch=0
json run worked-case --plan worked-case --set fsdp.forward_prefetch=0
# While the next group is copied out: its output and its parameters beside the output of the one before; no block computes.
# The copy has a table of its own, some KiB.
over=$(($(of peak_allocated_bytes) - (persistent + activations - mib + current + 2 * next)))
ok "whole, with implicit prefetch 25.2" test $over -ge 0 -a $over -lt $((mib / 16))
fsdp2_limit="--cluster l40s-8 --memory-limit 24GiB"
answers "26.3 GiB are refused" 1 run worked-case --plan worked-case $fsdp2_limit
answers "so are 25.2" 1 run worked-case --plan worked-case $fsdp2_limit --set fsdp.forward_prefetch=0
answers "and 24.75" 1 run worked-case --plan worked-case $fsdp2_limit --set "$split"
answers "23.2 are not" 0 run worked-case --plan worked-case $fsdp2_limit --set "$split" --set fsdp.forward_prefetch=0

# Every Program's collectives meet on eight ranks, and its order holds.
for each in spike spike-retained spike-no-prefetch spike-split; do
  answers "$each is in order" 0 lower "$each" --check
  ok "all of its gathers are over eight ranks" sh -c '! grep "  collective " out | grep -qv "over shard (8 ranks"'
done
finish

# worked_case.sh - the worked case of doc/worked-case.md: its commands print what it shows, and its figures are those of the arithmetic.
. "$top_srcdir/tests/cli/lib.sh"
. "$top_srcdir/tests/document.sh"
document doc/worked-case.md

# ---- by the byte ----

mib=$((1024 * 1024))
trained=$((17553408 + 39 * 171966464))
current=1503657984
next=$((2 * 832045056))
activations=$((39 * 55 * mib + 107 * mib))
workspace=$((1434 * mib))

json() {
  run "$@" --json
  figures=$(tr -d '[:space:]' <out)
}
peak() {
  printf '%s\n' "$figures" | sed 's/.*"memory":{"capacity_bytes":[^}]*"peak_allocated_bytes":\([0-9]*\),.*/\1/'
}
category() {
  printf '%s\n' "$figures" | sed 's/.*"peak":{[^}]*"categories":{\([^}]*\)}.*/\1/' | tr ',' '\n' | sed -n "s/^\"$1\"://p"
}
# The allocator rounds each tensor up to 512 bytes; Adam's step counts take 512 each.
near() {
  difference=$(($1 - $2))
  [ "$difference" -ge 0 ] && [ "$difference" -le $mib ]
}
# gib BYTES HUNDREDTHS: so many hundredths of a GiB, rounded.
gib() {
  [ $((($1 * 100 + 512 * mib) / (1024 * mib))) -eq "$2" ]
}

json run spike
parameters=$(category parameter)
persistent=$((parameters + $(category sharded_gradient) + $(category optimizer_state)))
ok "parameters are an eighth in fp32" near "$parameters" $(((trained + current + next) / 8 * 4))
ok "persistent state is that, gradients and two moments" near "$persistent" $(((trained + current + next) / 8 * 4 + trained / 8 * 12))
ok "which is 14 GiB" gib "$persistent" 1400
ok "two groups are there in full, once" near "$(category unsharded_parameter)" $((2 * (current + next)))
ok "2.8 GiB" gib $((2 * current)) 280
ok "and 3.1 GiB" gib $((2 * next)) 310
ok "activations are 2.2 GiB" gib "$(category activation)" 220
ok "39 blocks' and the current one's" near "$(category activation)" $activations
ok "the workspace is 1.4 GiB" gib "$(category temporary)" 140
ok "and nothing else" near "$(category temporary)" $workspace
counted=$((persistent + 2 * (current + next) + activations + workspace))
ok "together 23.5 GiB" gib $counted 2350
spike=$(peak)
ok "what the all-gather sends comes to it" near "$spike" $((counted + 2 * next / 8))
json run spike-retained
ok "the reference keeps 2.8 GiB more" near "$(peak)" $((spike + 2 * current))
answers "it does not fit" 1 run spike --memory-limit 24GiB
answers "split it does" 0 run spike-split --memory-limit 24GiB

json run worked-case --plan worked-case
before=$(peak)
ok "FSDP2 has the deferred output beside it: 26.3 GiB" gib "$before" 2630
front='fsdp.groups=["layers.41.front","layers.*"]'
json run worked-case --plan worked-case --set "$front"
ok "split, with a depth of one: 24.75 GiB" gib "$(peak)" 2475
ok "half of the last block less" near $((before - $(peak))) $next
json run worked-case --plan worked-case --set "$front" --set fsdp.forward_prefetch=0
ok "split, with implicit prefetch: 23.2 GiB" gib "$(peak)" 2320
answers "the depth of one is refused" 1 run worked-case --plan worked-case --set "$front" --memory-limit 24GiB
finish

# estimate.sh - highwater estimate: its tables, its JSON, and what it refuses.
. "$top_srcdir/tests/cli/lib.sh"

answers "a network is estimated" 0 estimate tiny
ok "every stage has a line" sh -c 'for n in 0 1 2 3; do grep -qE "^  $n +[0-9]" out || exit 1; done'
ok "so has every strategy" sh -c 'for n in ddp zero0 zero1 zero2 fsdp2; do grep -qE "^  $n +[0-3] " out || exit 1; done'
ok "no line is wider than a terminal" sh -c '! grep -qE "^.{101}" out'

# estimate_zero2_model_states_mem_needs_all_cold and its sister of ZeRO-3 for t5-3b
answers "sizes take the place of a network" 0 estimate --parameters 2851598336 --largest-layer 32899072
ok "ZeRO-2 needs 11.29 GiB" grep -qE '^  2 +nothing +11\.29 ' out
ok "5.31 with its optimizer on the host" grep -qE '^  2 +optimizer +5\.31 ' out
ok "ZeRO-3 needs 6.10 GiB" grep -qE '^  3 +nothing +6\.10 ' out
ok "0.79 with its optimizer on the host" grep -qE '^  3 +optimizer +0\.79 ' out
ok "0.12 with its parameters too" grep -qE '^  3 +optimizer and parameters +0\.12 ' out
ok "strategies need a network" sh -c '! grep -q strategy out'

answers "the largest layer may be left out" 0 estimate --parameters 2851598336
ok "then ZeRO-2 is estimated" grep -qE '^  2 +nothing +11\.29 ' out
ok "stage 3 is not" sh -c '! grep -qE "^  3 +(nothing|optimizer)" out'
ok "and what it needs is said" grep -q 'Stage 3 gathers the largest layer: --largest-layer' out
answers "JSON does the same" 0 estimate --parameters 2851598336 --json
ok "with no size" grep -q '"largest_layer":	null' out

# FSDP1's flat gradients outlive zero_grad(), FSDP2's do not: both as measured.
answers "a network's strategies are lowered" 0 estimate llama-3-8b
ok "FSDP1 still holds 3.74 GiB of gradients" grep -qE '^  fsdp1 +3 +3\.74 +3\.74 ' out
ok "FSDP2 none" grep -qE '^  fsdp2 +3 +3\.74 +0\.00 ' out
ok "and the table says why" grep -q 'FSDP1 to the next forward' out
answers "a million ranks are estimated" 0 estimate llama-3-8b --ranks 1048576

answers "it prints JSON" 0 estimate tiny --ranks 16 --json
ok "with its format" grep -q '"format":	"highwater-estimate-1"' out
ok "for so many ranks" grep -q '"ranks":	16,' out

refuses "neither a network nor sizes" "needs either a network or --parameters" estimate
refuses "both" "needs either a network or --parameters" estimate tiny --parameters 5
refuses "no parameters" "--parameters: 0 is not in 1.." estimate --parameters 0
refuses "fewer than none" "--parameters: -5 is not in 1.." estimate --parameters=-5
refuses "a layer larger than the network" "--largest-layer: 20 is not in 1..10" estimate --parameters 10 --largest-layer 20
refuses "a layer that the network has itself" "--largest-layer goes with --parameters" estimate tiny --largest-layer 3
refuses "no ranks" "--ranks: 0 is not in 1..1048576" estimate tiny --ranks 0
refuses "a network that is not there" "nowhere" estimate nowhere
finish

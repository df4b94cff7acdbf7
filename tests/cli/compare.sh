# compare.sh - highwater compare on runs of the program itself: what differs between plans, limits, wrong command lines.
. "$top_srcdir/tests/cli/lib.sh"

run run tiny --output a
run run tiny --output again
run run tiny --output early --set fsdp.backward_prefetch=2
run run tiny --output double --set batch.micro_batch=2
run run tiny --output longer --steps 5

answers "a run made again is compared" 0 compare a again
ok "it is the same" grep -q '^SAME     the same to the byte and to the nanosecond$' out
ok "so nothing else is said" test "$(wc -l <out)" -eq 4
answers "all can be shown nevertheless" 0 compare a again --verbose
ok "with what was compared" grep -q 'Allocations and frees of the construction to step 3, .*: all [0-9]* are the same' out
answers "equal runs are within a limit of nothing" 0 compare a again --max-error 0
answers "more steps of the same are no difference" 0 compare a longer
ok "it is said that there are more" grep -q '^SAME .*; A has 3 steps, B 5$' out

answers "another prefetch is compared" 0 compare a early
ok "the peak differs" grep -q '^DIFFERS  peak allocated is ' out
ok "a gather is early" grep -q 'B  allocates .* for all-gather input of layers.1 (all_gather_buffer)' out
ok "before which A does something else" grep -q '2 events of B are missing in A' out
ok "later A allocates the same" grep -q 'In another order the allocations are the same' out
ok "another category has it" grep -qE 'all gather buffer .*\+100\.0 %' out

# A micro-batch of two: twice the tokens, and mm takes longer.
answers "a larger batch is over a small limit" 1 compare a double --max-error 5%
ok "which is said of the peak" grep -qE '^OVER     peak allocated: [0-9.]+ % of 5%$' out
answers "it is within a large one" 0 compare a double --max-error 100%
ok "which is said, too" grep -qE '^WITHIN   peak allocated: [0-9.]+ % of 100%$' out
answers "limits may be given by name" 0 compare a double --max-error kernels=0,collective_bytes=0
answers "one that does not hold is enough" 1 compare a double --max-error kernels=0,compute=5%
ok "the first difference is what the tokens take" grep -q '^    B  allocates 128 KiB for tokens' out
ok "in the construction" grep -q 'of the construction; ' out

answers "steps are compared with other steps" 0 compare a longer --step 3:5
ok "which are the same" grep -q '^SAME' out
answers "the first step makes optimizer states" 0 compare a a --step 1:2
ok "so it differs from the second" grep -q 'event [0-9]* of step 1 of A, of step 2 of B' out
answers "a recording is compared by its file" 0 compare a/recording.json again/recording.json
ok "it is the same, too" grep -q '^SAME' out
answers "a run out of memory is compared" 0 run tiny
run run tiny --output small --memory-limit 100MiB
answers "with one that fits" 0 compare a small
ok "it stops where memory ran out" grep -q 'B  does nothing more in this step' out

answers "differences are printed as JSON" 0 compare a early --json
ok "with where they begin" grep -q '"verdict":.*"only_b"' out
ok "and a format" grep -q highwater-comparison-1 out

# What the program writes for other tools comes back through the imports: it is the run that it was.
run run tiny --output exported --chrome-trace trace.json --memory-snapshot snapshot.pickle
run import memory-snapshot snapshot.pickle --output snapshot
answers "a snapshot is compared with the run that it is of" 0 compare exported snapshot --step all \
  --max-error peak_allocated=0,peak_reserved=0
ok "allocation by allocation" grep -qE '^Allocations and frees of the construction to step 3, by .*: all [0-9]{4} are the same' out
run import kineto trace.json --output trace
answers "a trace is compared with the run that it is of" 0 compare exported trace --max-error 0
ok "it is the same, too" grep -q '^SAME' out
answers "collective by collective" 0 compare exported trace --verbose
ok "by their communicators" grep -qE '^  all_gather of shard +11 +11 ' out

refuses "two runs are needed" "compare: too few arguments" compare a
refuses "only two" "compare: too many arguments" compare a again early
refuses "a run that is not there is named" "nowhere: cannot be read" compare a nowhere
refuses "a limit is a number" "compare: --max-error: 'five' is neither a percentage" compare a again --max-error five
refuses "a figure is one of the table" "compare: --max-error: no figure 'step_tine'; did you mean 'step_time'?" \
  compare a again --max-error step_tine=5%
refuses "a time has no bytes" "step_time is no size" compare a again --max-error step_time=1MiB
refuses "what is not recorded has no limit" "compare: --max-error: step_time is not known of B" \
  compare a small --max-error step_time=1%
refuses "a step is a number" "compare: --step: '0' is neither a step" compare a again --step 0
refuses "a step is one that both have" "compare: --step: a has no complete step 4; it has 3 steps" compare a longer --step 4
finish

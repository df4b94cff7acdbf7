# explain.sh - highwater explain on networks, on RUN folders and on messages.  What it finds is looked at in check_explain.
. "$top_srcdir/tests/cli/lib.sh"

same() {
  cmp "$1" "$2" >err 2>&1
}

# The value of a key on a line of its own in JSON.
value() {
  sed -n "s/^[[:space:]]*\"$1\":[[:space:]]*\"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}$/\1/p" "$2" | head -n 1
}

answers "a plan that fits is explained" 0 explain tiny
ok "the answer comes first" grep -q '^FITS ' out
ok "then who is alive at the peak, and until when" grep -q '^Alive at the peak  *MiB  *new  *held by  *until$' out
ok "what came last" prints "The high before it was "
ok "what is gathered" prints "Gathered groups"
ok "what is reserved" prints "Reserved then: "
ok "and changes, each to be copied" grep -q '^  fits .* --set [a-z_.]*=' out
cp out text

run run tiny --output kept
answers "a RUN is explained" 0 explain kept
ok "in the same words" same out text
answers "so is its file" 0 explain kept/recording.json
ok "without changes: a recording alone cannot be simulated" sh -c '! grep -q -e --set out'

answers "JSON has it, too" 0 explain tiny --json
ok "with its format" test "$(value format out)" = highwater-explanation-1
allocated=$(value allocated_bytes out)
run run tiny --json
ok "the story is of the reported peak" test "$(value peak_allocated_bytes out)" -eq "$allocated"

run="tiny --memory-limit 300MiB --set activation_checkpointing.policy=none"
answers "that it does not fit is the answer 1" 1 explain $run
ok "what is too few, to the byte" grep -q '([0-9]* bytes) too few' out
ok "what it would need" prints "With enough memory the peak would be "
ok "who is alive then" prints "Alive when memory runs out"
ok "and what would make it fit" prints "To make it fit"
set=$(sed -n '/^To make it fit/,$s/^  fits .*--set \([^ ]*\)$/\1/p' out | head -n 1)
ok "one change of one key does" test -n "$set"
answers "a run with it fits" 0 run $run --set "$set"
run run $run --output small
answers "a RUN that does not fit is explained" 1 explain small

answers "a model that is whole on each rank while it is built is explained" 1 \
  explain llama-3-8b --plan zero3 --set mesh.shard=64 --cluster h100-8 --set batch.sequence_length=512 --memory-limit 12GiB
ok "memory runs out there" prints "DOES NOT FIT  construction of"
ok "and zero_init makes it fit" grep -q '^  fits .* --set deepspeed.zero_init=true$' out

message='CUDA out of memory. Tried to allocate 98.00 MiB. GPU 0 has a total capacity of 79.10 GiB of which 60.19 MiB is free. Of the allocated memory 75.99 GiB is allocated by PyTorch, and 1.09 GiB is reserved by PyTorch but unallocated.'
answers "a size that nothing asks for is the answer 1" 1 explain tiny --message "$message"
ok "what was asked for" prints "cudaMalloc was asked for 98.0 MiB: the tensor has more than 96.0 MiB and at most 98.0 MiB."
ok "what the figures say" prints "Fragmented: 1.09 GiB are reserved and not allocated"

run run $run --json
ours=$(sed -n 's/^[[:space:]]*"message":[[:space:]]*"\(.*\)"$/\1/p' out)
what=$(echo "$ours" | sed 's/.*: \([^:]*\) asks for.*/\1/')
answers "the message of our own run" 0 explain tiny --set activation_checkpointing.policy=none --message "$ours"
ok "names what failed, and that it does" grep -q "^\* $what " out
cp out text
printf 'Traceback:\n%s\n' "$ours" >traceback
"$highwater" explain tiny --set activation_checkpointing.policy=none --message - <traceback >out 2>err
status=$?
ok "a message is read from standard input" is_answer 0
ok "and is the same there" same out text
answers "a RUN has the plan of the message" 0 explain small --message "$ours"
answers "candidates as JSON" 0 explain small --message "$ours" --json
ok "with their format" test "$(value format out)" = highwater-oom-message-1
ok "the first is where the simulation runs out" test "$(value runs_out_here out)" = true

refuses "a message has figures" "--message: no 'Tried to allocate ...' is in it" explain tiny --message "CUDA error"
refuses "a RUN has its plan" "explain: a RUN has its plan" explain kept --plan ddp
refuses "a recording has none" "explain: --message: the RUN was measured" explain kept/recording.json --message "$ours"
refuses "JSON has everything" "explain: --json has everything" explain tiny --json --verbose
refuses "a network is needed" "explain: too few arguments" explain
refuses "a wrong key is named" "--set mesh.shards=8: " explain tiny --set mesh.shards=8

refuses "a message is read in any locale" "--message: no 'Tried to allocate ...' is in it" explain tiny --message "Speicher voll – Gerät 0"

finish

# program.sh - run and lower take a Program's text in a network's place: what is known of it is said, what only a plan or a
# network could say is refused or left out.  What its ops mean is pinned by check_executor.
. "$top_srcdir/tests/cli/lib.sh"
mib=$((1024 * 1024))

# One group of 32 MiB is gathered over 8 ranks beside 4 MiB of shards, and used.
cat >small.program <<'END'

# a comment before it changes nothing
highwater-program-1
name 0 "shard"
name 1 "forward"
name 2 "layers.0"
module 0 "layers.0"
layout 0 dtype=bf16 shape=2097152 stride=1
layout 1 dtype=bf16 shape=16777216 stride=1
communicator 0 name=0 ranks=8 stride=1
kernel 0 kind=memory dtype=bf16 variant=0 name=1 launches=1 m=0 n=0 k=0 flops=1000000000 bytes=0
collective 0 kind=all_gather dtype=bf16 communicator=0 name=2 bytes=33554432
storage 0 bytes=4194304 space=device category=parameter stream=compute module=0 what=2
storage 1 bytes=33554432 space=device category=unsharded_parameter stream=compute module=0 what=2
tensor 0 storage=0 layout=0 offset=0
tensor 1 storage=1 layout=1 offset=0
events 2
list
alloc compute 0
launch compute 0 w0
event_record compute 0
stream_wait all_gather 0
list
range_push 1 phase 0
alloc compute 1
event_record compute 0
stream_wait all_gather 0
collective all_gather 0 @0 r0 w1
event_record all_gather 1
stream_wait compute 1
launch compute 0 @0 r1
free compute 1
range_pop
steps 1 1 1 1
END
answers "a Program runs" 0 run small.program
ok "it is called as its file" prints "small - no plan over 8 x h100-sxm-80gb (1 node)"
ok "its gather is over the 8 ranks of a node" prints "shard, 8 ranks, NVSwitch"
answers "and says its figures" 0 run small.program --json
json=$(tr -d '[:space:]' <out)
has() {
  case $json in *"$1"*) true ;; *) false ;; esac
}
ok "the peak is shards and gathered parameters" has "\"peak_allocated_bytes\":$((36 * mib)),"
ok "its own four steps are run" has '"index":4,'
ok "what is gathered is a group" has '"name":"layers.0","modules":["layers.0"],"parameters":16777216,"unsharded_bytes":33554432,"shard_bytes":4194304'
ok "utilization is not known" has '"mfu":null'

answers "a limit counts" 1 run small.program --memory-limit 40MiB
ok "and what does not fit is said" prints "layers.0 asks for 32.0 MiB, a segment of 32.0 MiB; 20.0 MiB of 40.0 MiB left"
answers "so does the cluster" 0 run small.program --cluster instant
answers "a Program is found by its first line, whatever the file is called" 0 run - <small.program
ok "it has no name then" prints "standard input - no plan"
answers "a Program is a preset" 0 run spike --cluster l40s-8
answers "presets are listed" 0 list program
ok "with what they are" prints "spike-split"

answers "it leaves a folder and a trace" 0 run small.program --output folder --chrome-trace trace.json --timeline timeline.tsv
ok "the folder has what there is" test -s folder/recording.json -a -s folder/report.json -a -s folder/cluster.json -a -s folder/program.txt
ok "and no network or plan" test ! -e folder/network.json -a ! -e folder/plan.json
ok "the trace has the gather" grep -q '"ncclDevKernel_AllGather' trace.json
answers "the folder can be reported" 0 report folder
ok "as the run was" prints "36.0 MiB allocated"

refuses "it has no plan" "small.program: --plan: this is a Program, what one rank issues, and has no plan" run small.program --plan fsdp2
refuses "nor keys of one" "small.program: --set: this is a Program" run small.program --set mesh.shard=4
refuses "nor other ranks" "small.program: --all-ranks: this is a Program" run small.program --all-ranks
sed '/^stream_wait compute 1$/d' small.program >early.program
refuses "what no execution may do is refused" "early.program: program: step 1" run early.program
sed '/^steps/d' small.program >short.program
refuses "so is a text that is cut off" "short.program: line 34: the text ends before the steps" run short.program
printf 'highwater-program-1\nsteps\0\n' >nul.program
refuses "and one with a NUL character" "nul.program: a NUL character" run nul.program

answers "why it does not fit can be asked" 1 explain small.program --memory-limit 40MiB
ok "what is alive then is said" prints "12.0 MiB (12582912 bytes) too few"
answers "of a folder, too" 0 explain folder
run run small.program --memory-limit 40MiB --output folder
answers "which keeps the Program" 1 explain folder
ok "so what it needs is known" prints "With enough memory the peak would be 36.0 MiB allocated"
for command in "sweep small.program --vary steps=1,2" "plan small.program" "explain small.program --message -"; do
  echo "CUDA out of memory. Tried to allocate 98.00 MiB." >message
  run $command <message
  ok "a network is needed by: $command" is_refusal "small.program: is a Program, which has no plan: a network is needed here"
done

answers "lower prints its steps" 0 lower small.program --check
ok "all four of them" test "$(grep -c 'collective' out)" -eq 4
answers "or its text" 0 lower small.program --program
cp out again.program
answers "which can be read again" 0 lower again.program --program
ok "and is the same then" cmp -s again.program out
refuses "lower has no plan for it either" "small.program: --set: this is a Program" lower small.program --set mesh.shard=4
refuses "nor more steps than it has" "--step: 5 is not in 0..4" lower small.program --step 5
finish

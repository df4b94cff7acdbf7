# calibrate.sh - highwater calibrate --from: tables to lines, to errors, to a cluster that run takes; what is refused.
. "$top_srcdir/tests/cli/lib.sh"

# table FILE NODES GPUS ALPHA BUSBW: all-gathers of 1 KiB to 1 GiB as nccl-tests prints them, times in the files times.
table() {
  awk -v nodes="$2" -v gpus="$3" -v alpha="$4" -v busbw="$5" 'BEGIN {
    ranks = nodes * gpus
    print "# Collective test starting: all_gather_perf"
    for (r = 0; r < ranks; r++)
      printf "#  Rank %2d Group  0 Pid %d on host-%d device %2d [0x%02x] NVIDIA H100 80GB HBM3\n", r, 100 + r, int(r / gpus), r % gpus, r % gpus
    print "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong"
    for (bytes = 1024; bytes <= 1073741824; bytes *= 2) {
      factor = (ranks - 1) / ranks
      time = alpha + factor * bytes / busbw / 1000
      rate = bytes / time / 1000
      printf "%d %d float none -1 %.4f %.2f %.2f 0 %.4f %.2f %.2f 0\n", bytes, bytes / 4 / ranks, time, rate, rate * factor, time, rate, rate * factor
    }
  }' >"$1"
}
# number KEY: its first value in the last output.
number() {
  sed -n "s/^.*\"$1\":[[:space:]]*\([0-9.e+-]*\).*$/\1/p" out | head -n 1
}
near() {
  awk -v a="$1" -v b="$2" 'BEGIN { exit !(a > 0.97 * b && a < 1.03 * b) }'
}

table inside.txt 1 8 20 250
table two.txt 2 8 40 100
answers "a table is fitted" 0 calibrate --from inside.txt
ok "it says what the table is of" prints "inside.txt:11  all_gather, 8 ranks on 1 node"
ok "it says how many rows were used" prints "21 rows used, 0 rejected; bus bandwidth up to 24"
ok "it compares with the cluster of this GPU" prints "defaults of h100-8"
answers "JSON is for programs" 0 calibrate --from inside.txt two.txt --json
ok "every key is there" sh -c 'for key in tables file collective ranks rows rejected_rows model median_error p90_error lines alpha_us bus_bandwidth_GBps; do
  grep -q "\"$key\":" out || exit 1; done'
ok "the start-up is found" near "$(number alpha_us)" 20
ok "so is the bandwidth" near "$(number bus_bandwidth_GBps)" 250
ok "both tables are there" test "$(grep -c '"model":' out)" = 2
cp out first
answers "once more" 0 calibrate --from inside.txt --from two.txt --json
ok "the same input gives the same bytes" cmp -s out first

answers "a cluster file is written" 0 calibrate --from two.txt inside.txt --output measured.json
answers "run takes it" 0 run tiny --cluster measured.json --set mesh.shard=16 --json
ok "and says that it used the table" grep -q '"all_gather over 16 ranks on 2 nodes"' out
answers "so does calibrate" 0 calibrate --from two.txt --cluster measured.json --json
ok "bandwidths of the tables are the cluster's" grep -q '"inter_efficiency":.*0\.2' measured.json
answers "twice gives the same file" 0 calibrate --from two.txt inside.txt --output again.json
ok "byte for byte" cmp -s measured.json again.json
answers "a file may come from standard input" 0 calibrate --from /dev/stdin --json <two.txt
answers "a cluster may be named" 0 calibrate --from two.txt --cluster a100-80gb-8
ok "and is compared with" prints "defaults of a100-80gb-8"

printf 'no table\nat all\n' >letter.txt
refuses "a letter is refused with its line" "letter.txt: line 2: no nccl-tests table" calibrate --from letter.txt
refuses "a cluster that is not there is refused" "did you mean 'h100-8'?" calibrate --from two.txt --cluster h100-88
refuses "a folder that is not there cannot be written to" "nowhere" calibrate --from two.txt --output nowhere/x.json
table four.txt 2 4 30 90
answers "nodes are as large as the tables say" 0 calibrate --from four.txt --output four.json
ok "four GPUs here" grep -q '"gpus_per_node":.*4' four.json
answers "so a run on two nodes of four" 0 run tiny --cluster four.json --set mesh.shard=8 --json
ok "takes the times of the table" grep -q '"all_gather over 8 ranks on 2 nodes"' out
answers "a cluster that is named keeps its nodes" 0 calibrate --from four.txt --output eight.json --cluster h100-8
ok "eight GPUs there" grep -q '"gpus_per_node":.*8' eight.json
sed 's/H100 80GB HBM3/H200/' inside.txt >other.txt
refuses "tables of different GPUs make no cluster" "tables of NVIDIA H100 80GB HBM3 and of NVIDIA H200" \
  calibrate --from two.txt other.txt --output mixed.json
answers "unless it is named" 0 calibrate --from two.txt other.txt --output mixed.json --cluster h200-8
run calibrate --from two.txt letter.txt --json
ok "of good and bad files the good ones are answered" sh -c 'grep -q "\"all_gather\"" out && grep -q "letter.txt: line 2" out'
ok "with the status of a no" test "$status" -eq 1
ok "and the bad ones named" grep -q "letter.txt: line 2" err

echo "65536 16384 float none 0 40.00 1.64 1.64 0 40.00 1.64 1.64 0" >broadcast.txt
refuses "ranks that a table does not say are asked for" "give --ranks" calibrate --from broadcast.txt
answers "and taken" 0 calibrate --from broadcast.txt --ranks 16 --nodes 2
ok "as given" prints "broadcast, 16 ranks on 2 nodes"
# Samples of one GPU as an earlier calibration stored them: products at 400 TFLOP/s, 2.4 TB/s, cudaMalloc in 100 us.
cat >samples.json <<'END'
{"format": "highwater-measurements-1", "date": "2026-11-30", "complete": true,
 "facts": {"device": "NVIDIA H100 80GB HBM3", "ranks": 1, "ranks_of_node": 1, "sms": 132, "memory_bytes": 85045477376},
 "experiments": [
  {"kind": "gemm", "dtype": "bf16", "m": 8192, "n": 8192, "k": 8192, "samples_us": [2748.8, 2748.7, 2749], "round_medians_us": [2748.8]},
  {"kind": "memory", "bytes": 268435456, "samples_us": [111.85, 111.8, 111.9], "round_medians_us": [111.85]},
  {"kind": "memory", "bytes": 268435456, "beside": "traffic", "blocks": 24, "samples_us": [149.13], "round_medians_us": [149.13]},
  {"kind": "launch", "samples_us": [2.5], "round_medians_us": [2.5]},
  {"kind": "cuda_malloc", "bytes": 2097152, "samples_us": [100, 101, 99], "round_medians_us": [100]},
  {"kind": "cuda_free", "bytes": 2097152, "failure": "no such luck"}]}
END
answers "stored samples are fitted again" 0 calibrate --from samples.json --output mine.json
ok "constants are compared with the preset's" prints "h100-sxm-80gb"
ok "what was not measured is said" prints "not measured"
ok "what failed too" prints "failed: cuda_free of 2.00 MiB: no such luck"
ok "and what one GPU cannot tell" prints "One GPU: collectives, and what links carry, stay as the cluster has them."
ok "a slower kernel beside traffic" prints "1.33 x"
ok "a launch" prints "A bare launch takes the host 2.5 us"
answers "run takes the file" 0 run llama-3-8b --cluster mine.json --json
ok "with the device in it" prints '"NVIDIA H100 80GB HBM3"'
ok "a quarter of the bandwidth was gone" grep -q '"memory_limit":.*0\.25' mine.json
answers "JSON has the constants" 0 calibrate --from samples.json --json
ok "the measured cudaMalloc" sh -c 'grep -A1 "\"cuda_malloc_us\"" out | grep -q "100"'
refuses "samples of an unknown device need a name" "name the device to begin with by --device" calibrate \
  --from "$(sed 's/NVIDIA H100 80GB HBM3/Voodoo 2/' samples.json >voodoo.json; echo voodoo.json)"
answers "which may be given" 0 calibrate --from voodoo.json --device a10g-24gb
# A step of one rank: a product at 600 TFLOP/s, 2.5 TB/s, all-gathers of two sizes at 300 GB/s after 20 us.
cat >step.json <<'END'
{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85045477376, "numSms": 132}],
 "cuda_runtime_version": 12060, "distributedInfo": {"world_size": 8, "nccl_version": "2.26.2"}, "traceEvents": [
 {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#4", "pid": 9, "tid": 9, "ts": 1, "dur": 900},
 {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 9, "tid": 9, "ts": 10, "dur": 9, "args": {"External id": 1,
  "Input type": ["c10::BFloat16", "c10::BFloat16"], "Input Dims": [[8192, 8192], [8192, 8192]]}},
 {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 20, "dur": 1832.52, "args": {"External id": 1}},
 {"ph": "X", "cat": "cpu_op", "name": "aten::mul", "pid": 9, "tid": 9, "ts": 40, "dur": 9, "args": {"External id": 2,
  "Input type": ["c10::BFloat16", "c10::BFloat16"], "Input Dims": [[8192, 8192], [8192, 8192]]}},
 {"ph": "X", "cat": "kernel", "name": "elementwise", "pid": 0, "tid": 7, "ts": 3000, "dur": 161.061, "args": {"External id": 2}},
 {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllGather_RING_LL", "pid": 0, "tid": 20, "ts": 4000, "dur": 244.9, "args": {
  "Collective name": "_allgather_base", "In msg nelems": 4816896, "Out msg nelems": 38535168, "Group size": 8, "dtype": "BFloat16"}},
 {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllGather_RING_LL", "pid": 0, "tid": 20, "ts": 5000, "dur": 919.7, "args": {
  "Collective name": "_allgather_base", "In msg nelems": 19267584, "Out msg nelems": 154140672, "Group size": 8, "dtype": "BFloat16"}}
]}
END
answers "a trace of a step is fitted" 0 calibrate --from step.json --output step.cluster
ok "it says what was seen" prints "NVIDIA H100 80GB HBM3, one of 8: 1 steps, 2 ops, 4 kernels and copies"
ok "each op has its rate" sh -c 'grep -q "aten::mm.* 600 TFLOP/s" out && grep -q "aten::mul.* 2500 GB/s" out'
ok "the collectives are fitted" prints "all_gather, 8 ranks on 1 node"
answers "run takes the cluster" 0 run tiny --cluster step.cluster --json
ok "with its collectives" grep -q '"all_gather over 8 ranks on 1 node' out
gzip -c step.json >step.json.gz
answers "gzip or not, several ranks are one set of rows" 0 calibrate --from step.json step.json.gz --json
ok "two calls of each op" sh -c 'test "$(grep -c "\"runs\":.2," out)" -eq 4'
ok "the experiment that it is" grep -q '"experiment":.*"gemm bf16 8192 x 8192 x 8192"' out
ok "and what a profiler says of the host" grep -q '"forward_op_us":.*30' out
head -c 1400 step.json >cut.json
answers "a trace that was cut is used up to there" 0 calibrate --from cut.json
ok "and says so" prints "cut.json: cut short at byte 1400"
echo '{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 2}]}' >cpu.json
refuses "a trace without kernels is refused" "cpu.json: no kernels in it: profile with ProfilerActivity.CUDA" calibrate --from cpu.json
refuses "so is what is broken" "byte " calibrate --from "$(sed 's/"ts": 3000/"ts": soon/' step.json >broken.json; echo broken.json)"
refuses "traces and tables are not mixed" "step.json is a trace and two.txt is none" calibrate --from step.json two.txt
refuses "a trace that names no GPU needs a device" "name it by --device" calibrate \
  --from "$(sed 's/"deviceProperties"/"unknown"/' step.json >nameless.json; echo nameless.json)"
answers "which may be given" 0 calibrate --from nameless.json --device h100-sxm-80gb --output nameless.cluster
answers "and then makes a cluster" 0 run tiny --cluster nameless.cluster --json
refuses "options for measuring do not go with files" "are for measuring, not for --from" calibrate --from two.txt --budget 5min
refuses "no file of measurements is overwritten" "'./two.txt' holds the measurements" \
  calibrate --from inside.txt two.txt --output ./two.txt
refuses "nor are samples by the cluster" "'x.json' holds the measurements" calibrate --samples x.json --output x.json
refuses "a node has a rank at least" "--nodes: 17 nodes are more than the 16 ranks of two.txt" calibrate --from two.txt --nodes 17
refuses "tables have no device" "--device is for measuring and for stored samples" calibrate --from two.txt --device h100-sxm-80gb
refuses "stored samples say their ranks" "--ranks and --nodes are for tables" calibrate --from samples.json --ranks 8
refuses "a budget is a time" "is not a time up to a day" calibrate --budget 5lightyears
refuses "a plan needs a network" "--plan and --set need a network" calibrate --plan fsdp2
refuses "ranks are for tables" "are for tables of --from" calibrate --ranks 8
# With or without CUDA: this program cannot measure where there is no GPU.
run calibrate --budget 1s
ok "what is missing for measuring is said" sh -c 'test "$1" -eq 0 || grep -qE -e "--with-cuda|GPU" err' sh "$status"
finish

# bad_input.sh - input that makes no sense: whoever reads it ends with status 2 and one line that says what is wrong,
# prints nothing else and writes no file.
#
# Each case changes one thing in a small network, plan or cluster, and is tried with every command that reads it.
. "$top_srcdir/tests/cli/lib.sh"

llama='{"model_type": "llama", "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256, "implementation": "torchtitan"}'
plan='{"strategy": "fsdp2", "mesh": {"shard": 8}, "batch": {"sequence_length": 32}}'
cluster='{"device": "h100-sxm-80gb", "gpus_per_node": 8, "intra_node": {"fabric": "nvswitch"},
  "inter_node": {"fabric": "infiniband", "nics": 8, "gbit_per_nic": 400}}'
printf '%s' "$llama" >network.json
printf '%s' "$plan" >plan.json
printf '%s' "$cluster" >cluster.json

# Commands that read a network alone, or a plan too; show comes with a later version.
with_network="run lower"
"$highwater" --help | grep -q '^  show ' && with_network="run lower show"
with_plan="run lower"

is_clean_refusal() {
  is_refusal "$1" && [ ! -e kept ] && [ ! -e table.tsv ]
}

# refused NAME TEXT COMMAND ARGS...: the files that run would have written are not there either
refused() {
  name=$1 text=$2
  shift 2
  rm -rf kept table.tsv
  if [ "$1" = run ]; then
    run "$@" --output kept --timeline table.tsv
  else
    run "$@"
  fi
  ok "$name ($1)" is_clean_refusal "$text"
}

# The input files for show are the network alone.
inputs_of() {
  [ "$1" = show ] || echo "--plan plan.json --cluster cluster.json"
}

# network NAME TEXT JSON
network() {
  printf '%s' "$3" >bad.json
  for command in $with_network; do
    refused "$1" "$2" "$command" bad.json $(inputs_of "$command")
  done
}

# llama NAME TEXT SED: the small network with something replaced
llama() {
  network "$1" "$2" "$(printf '%s' "$llama" | sed "$3")"
}

# blocks NAME TEXT OPS
blocks() {
  network "$1" "$2" '{"family": "blocks", "hidden": 64, "vocabulary": 128, "blocks": [{"ops": ['"$3"']}]}'
}

# plan NAME TEXT JSON
plan() {
  printf '%s' "$3" >bad.json
  for command in $with_plan; do
    refused "$1" "$2" "$command" network.json --plan bad.json --cluster cluster.json
  done
}

# fsdp2 NAME TEXT SECTIONS; ddp and none likewise: a plan of that strategy with more in it
fsdp2() {
  plan "$1" "$2" '{"strategy": "fsdp2", "mesh": {"shard": 8}, "batch": {"sequence_length": 32}, '"$3"'}'
}
ddp() {
  plan "$1" "$2" '{"strategy": "ddp", "batch": {"sequence_length": 32}, '"$3"'}'
}
none() {
  plan "$1" "$2" '{"strategy": "none", "batch": {"sequence_length": 32}, '"$3"'}'
}

# cluster NAME TEXT SED
cluster() {
  printf '%s' "$cluster" | sed "$3" >bad.json
  for command in $with_plan; do
    refused "$1" "$2" "$command" network.json --plan plan.json --cluster bad.json
  done
}

# options NAME TEXT ARGS...
options() {
  name=$1 text=$2
  shift 2
  for command in $with_plan; do
    refused "$name" "$text" "$command" "$@"
  done
}

# What is changed below is accepted as it stands.
for command in $with_network; do
  answers "the unchanged input is accepted ($command)" 0 "$command" network.json $(inputs_of "$command")
done

# ---- files
options "a missing network" "missing.json: cannot be read: No such file" missing.json
options "a missing plan" "missing.json: cannot be read: No such file" network.json --plan missing.json
options "a missing cluster" "missing.json: cannot be read: No such file" network.json --cluster missing.json
options "an unknown network preset" "no such network preset" llama-3-9000b
options "an unknown plan preset" "no such plan preset" network.json --plan zero9
options "an unknown cluster preset" "no such cluster preset" network.json --cluster tpu-pod
network "an empty file" "bad.json: line 1: the text ends" ""
network "a truncated file" "bad.json: line 2: the text ends" "$(printf '%s' "$llama" | sed '$s/"vocab_size.*//')"
network "text after the end" "bad.json: line 2: 'x' stands where the end of the text" "${llama}x"
network "a list instead of an object" "bad.json: line 1: an object ({...}) is expected" "[]"
network "a key that stands twice" "key 'hidden_size' stands twice" '{"hidden_size": 1, "hidden_size": 2}'
network "a number that JSON does not have" "'N' stands where a value is expected" '{"hidden_size": NaN}'
network "too deep a nesting" "nested more than 64 levels deep" "$(printf '%0100d' 0 | tr 0 '[')"
plan "a truncated plan" "bad.json: line 1: the text ends" '{"strategy": "fsdp2", "mesh": {'
{
  printf '{"model_type": "llama", "x": "'
  head -c 67108864 /dev/zero | tr '\0' x
  printf '"}'
} >enormous.json
for command in $with_network; do
  refused "an enormous file" "enormous.json" "$command" enormous.json
done
options "an enormous plan" "enormous.json" network.json --plan enormous.json
rm enormous.json

# ---- networks
network "no model_type" "key 'model_type' is missing" '{"hidden_size": 64}'
llama "an unknown model_type" "'mamba' is not one of" 's/"llama"/"mamba"/'
llama "a quantized network" "key 'quantization_config'" 's/"vocab_size"/"quantization_config": {"bits": 4}, &/'
llama "an unknown implementation" "'megatron' is not one of" 's/torchtitan/megatron/'
llama "an unknown key of the implementation" "unknown key 'implementation.speed'" \
  's/"torchtitan"/{"code": "torchtitan", "speed": 1}/'
llama "an unknown way to rotate" "key 'implementation.rope': 'spiral'" 's/"torchtitan"/{"rope": "spiral"}/'
llama "a size that is text" "key 'hidden_size': a whole number is needed" 's/"hidden_size": 64/"hidden_size": "64"/'
llama "a size with a fraction" "key 'hidden_size': 64.5 is not a whole number" 's/"hidden_size": 64/"hidden_size": 64.5/'
llama "a size that is missing" "key 'intermediate_size' is missing" 's/"intermediate_size": 160,//'
llama "a negative size" "key 'vocab_size': -256 is not in" 's/"vocab_size": 256/"vocab_size": -256/'
llama "a size beyond all numbers" "key 'hidden_size': 1e+30" 's/"hidden_size": 64/"hidden_size": 1e30/'
llama "zero layers" "key 'num_hidden_layers': 0 is not in" 's/"num_hidden_layers": 2/"num_hidden_layers": 0/'
llama "a billion layers" "key 'num_hidden_layers'" 's/"num_hidden_layers": 2/"num_hidden_layers": 1000000000/'
llama "uneven heads" "key 'num_attention_heads': 5 does not divide the width 64" \
  's/"num_attention_heads": 4/"num_attention_heads": 5/; s/"num_key_value_heads": 2/"num_key_value_heads": 1/'
llama "uneven key and value heads" "key 'num_key_value_heads': 3 does not divide" \
  's/"num_key_value_heads": 2/"num_key_value_heads": 3/'
llama "an odd head to be rotated" "key 'head_dim': 15 is odd" 's/"vocab_size"/"head_dim": 15, &/'
llama "heads whose width overflows" "1099511627776 x 1099511627776 elements are too many for a tensor" \
  's/"vocab_size"/"head_dim": 1099511627776, &/; s/"num_attention_heads": 4/"num_attention_heads": 1099511627776/'
llama "a matrix beyond 2^63 elements" "key 'vocab_size': 1099511627776 x 16777216 elements are too many" \
  's/"hidden_size": 64/"hidden_size": 16777216/; s/"vocab_size": 256/"vocab_size": 1099511627776/'

# ---- networks as blocks
network "an unknown key of a network of blocks" "unknown key 'depth'" \
  '{"family": "blocks", "hidden": 64, "vocabulary": 128, "depth": 3, "blocks": [{"ops": [{"op": "gelu"}]}]}'
network "no blocks" "a network has at least one block" '{"family": "blocks", "hidden": 64, "vocabulary": 128, "blocks": []}'
network "zero repetitions" "key 'blocks[0].repeat': 0" \
  '{"family": "blocks", "hidden": 64, "vocabulary": 128, "blocks": [{"repeat": 0, "ops": [{"op": "gelu"}]}]}'
network "a table without its vocabulary" "key 'vocabulary': is needed" \
  '{"family": "blocks", "hidden": 64, "blocks": [{"ops": [{"op": "gelu"}]}]}'
network "modules of one name" "key 'head': is named 'x' like 'list'" \
  '{"family": "blocks", "hidden": 64, "vocabulary": 128, "list": "x", "head": {"name": "x"}, "blocks": [{"ops": [{"op": "gelu"}]}]}'
blocks "no ops" "a block has 1 to 256 ops" ""
blocks "an unknown op" "'conv' is not one of" '{"op": "conv"}'
blocks "an unknown key of an op" "unknown key 'blocks[0].ops[0].width'" '{"op": "linear", "width": 64}'
blocks "a key of another op" "unknown key 'blocks[0].ops[0].heads'" '{"op": "linear", "heads": 4}'
blocks "ops that do not fit together" "the block ends with width 32" '{"op": "linear", "out": 32}'
blocks "heads that do not divide the width" "5 does not divide the width 64" '{"op": "attention", "heads": 5}'
blocks "a value that is not there" "there is no value 'y'" '{"op": "add", "with": "y"}'
blocks "two ops of one name" "two ops of the block are named 'a'" '{"op": "linear", "name": "a"}, {"op": "linear", "name": "a"}'
blocks "a negative number of parameters" "-1 is not in" '{"op": "numbers", "parameters": -1}'
blocks "a size that is no size" "is not a size" '{"op": "numbers", "activation_bytes": "plenty"}'
blocks "activations beyond 2^63 bytes" "is beyond 8 EiB" '{"op": "numbers", "activation_bytes": "9000000TiB"}'
blocks "activations that no machine has" "bad.json:" '{"op": "numbers", "activation_bytes": "7000000TiB"}'
network "more tensors than an optimizer step can name" "the network has more than 16383 parameter tensors" \
  '{"family": "blocks", "hidden": 8, "vocabulary": 16, "blocks": [{"repeat": 2048, "ops": [{"op": "linear"}, {"op": "linear"},
    {"op": "linear"}, {"op": "linear"}, {"op": "linear"}, {"op": "linear"}, {"op": "linear"}, {"op": "linear"}]}]}'
network "parameters whose sum overflows" "the network has more than 2^50 parameters" \
  '{"family": "blocks", "hidden": 64, "vocabulary": 128, "blocks": [{"repeat": 4096, "ops": [{"op": "numbers", "parameters": 1099511627776}]}]}'

# ---- plans
plan "an unknown key names the nearest" "unknown key 'mseh'; did you mean 'mesh'?" '{"mseh": {"shard": 8}}'
plan "an unknown key of a section" "unknown key 'batch.size'" '{"batch": {"size": 8}}'
plan "an unknown strategy" "key 'strategy': 'fsdp9' is not one of" '{"strategy": "fsdp9"}'
plan "a section that is a number" "key 'mesh': an object is needed, not a number" '{"mesh": 8}'
plan "a list that is an object" "key 'retain': an array is needed" '{"retain": {"group": "root"}}'
plan "a mesh of no ranks" "key 'mesh.shard': 0 is not in" '{"mesh": {"shard": 0}}'
plan "a mesh of negative ranks" "key 'mesh.replicate': -2 is not in" '{"mesh": {"replicate": -2}}'
plan "a mesh that overflows" "ranks, more than" '{"strategy": "fsdp2", "mesh": {"shard": 1000000, "replicate": 1000000}}'
plan "ranks that are text" "key 'mesh.shard': a whole number is needed" '{"mesh": {"shard": "8"}}'
plan "no sequences" "key 'batch.micro_batch': 0 is not in" '{"batch": {"micro_batch": 0}}'
plan "a length that overflows what is saved" "elements are too many for a tensor" \
  '{"strategy": "fsdp2", "batch": {"micro_batch": 1048576, "sequence_length": 2147483647}}'
plan "no micro-batches" "key 'accumulation.steps': 0 is not in" '{"accumulation": {"steps": 0}}'
plan "more micro-batches than can be simulated" "key 'accumulation.steps'" '{"accumulation": {"steps": 1000000}}'
plan "an unknown dtype" "key 'precision.compute': 'fp7' is not one of" '{"precision": {"compute": "fp7"}}'
plan "an unknown policy" "'some' is not one of" '{"activation_checkpointing": {"policy": "some"}}'
plan "more than all of the blocks" "key 'activation_checkpointing.fraction': 1.5" \
  '{"activation_checkpointing": {"policy": "fraction", "fraction": 1.5}}'
plan "an unknown optimizer" "key 'optimizer.name': 'lion'" '{"optimizer": {"name": "lion"}}'
plan "a negative norm" "key 'optimizer.clip_grad_norm': -1" '{"optimizer": {"clip_grad_norm": -1}}'
plan "a threshold above all memory" "key 'allocator.garbage_collection_threshold': 2" \
  '{"allocator": {"garbage_collection_threshold": 2}}'
plan "divisions that are no power of two" "3 is not a power of 2" '{"allocator": {"roundup_power2_divisions": 3}}'
plan "a split size beyond 2^63" "is beyond 8 EiB" '{"allocator": {"max_split_size": "99999999TiB"}}'
for key in offload; do
  plan "the reserved key $key" "key '$key': not yet supported" '{"'$key'": 1}'
done

# ---- phases
plan "a phase that there is not" "unknown key 'phases.train'" '{"phases": {"train": {}}}'
plan "an initialization from nowhere" "key 'phases.initialize.from' is missing" '{"phases": {"initialize": {}}}'
plan "a sharded model on the host" "key 'phases.initialize.on'" '{"phases": {"initialize": {"from": "meta", "on": "cpu"}}}'
plan "an evaluation that never comes" "key 'phases.evaluate.every': 0" '{"phases": {"evaluate": {"every": 0}}}'
plan "half a state dict" "key 'phases.save.state': 'half' is not one of sharded, full" \
  '{"phases": {"save": {"state": "half"}}}'
plan "a checkpoint of an unknown strategy" "key 'phases.load.from.strategy': 'zero4'" \
  '{"phases": {"load": {"from": {"strategy": "zero4"}}}}'
plan "an unshard that never ends" "key 'retain[0].until': an unshard ends with its step" \
  '{"retain": [{"group": "root", "as": "unsharded", "until": "end_of_run"}]}'
plan "a seed of nothing" "key 'ranks.seed': has a meaning only with jitter" '{"ranks": {"seed": 5}}'
plan "patterns that match nothing" "key 'trainable': 'layer.*' matches no parameter" '{"trainable": ["layer.*"]}'
plan "nothing that trains" "key 'trainable': nothing trains" '{"trainable": ["!*"]}'
plan "adapters on nothing" "key 'lora.targets': 'proj' names no linear layer" '{"lora": {"rank": 4, "targets": ["proj"]}}'

# ---- what a strategy cannot honour
fsdp2 "a section of another strategy" "key 'ddp': strategy 'fsdp2' does not use this section" '"ddp": {}'
none "a section of FSDP without it" "key 'fsdp': strategy 'none' does not use this section" '"fsdp": {}'
fsdp2 "an unknown option" "unknown key 'fsdp.speed'" '"fsdp": {"speed": 1}'
fsdp2 "an option of another type" "key 'fsdp.forward_prefetch': 1.5 is not a whole number" '"fsdp": {"forward_prefetch": 1.5}'
fsdp2 "a negative option" "key 'fsdp.backward_prefetch': -1 is not in" '"fsdp": {"backward_prefetch": -1}'
fsdp2 "an unknown place" "key 'fsdp.embedding': 'moon' is not one of" '"fsdp": {"embedding": "moon"}'
fsdp2 "a smaller group that does not divide the mesh" "3 does not divide mesh.shard 8" '"fsdp": {"reshard_after_forward": 3}'
fsdp2 "a smaller group that is larger" "16 does not divide mesh.shard 8" '"fsdp": {"reshard_after_forward": 16}'
fsdp2 "resharding a head that has no group" "key 'fsdp.reshard_head'" '"fsdp": {"reshard_head": true}'
fsdp2 "groups of more blocks than there are" "3 is more than the network's 2 blocks" '"fsdp": {"blocks_per_group": 3}'
fsdp2 "a sharding strategy of FSDP1" "key 'fsdp.sharding_strategy'" '"fsdp": {"sharding_strategy": "NO_SHARD"}'
fsdp2 "flat parameters of FSDP1" "key 'fsdp.use_orig_params': only FSDP1 has it" '"fsdp": {"use_orig_params": false}'
fsdp2 "a rate limiter of FSDP1" "key 'fsdp.limit_all_gathers'" '"fsdp": {"limit_all_gathers": false}'
fsdp2 "autocast under mixed precision" "key 'precision.autocast'" '"precision": {"compute": "bf16", "autocast": true}'
fsdp2 "autocast to fp32" "key 'precision.autocast'" '"precision": {"autocast": true}'
fsdp2 "a group that is not there" "there is no group 'layers.9': the groups are root, layers.0, layers.1" \
  '"retain": [{"group": "layers.9"}]'
fsdp2 "a group without parameters" "the groups are tok_embeddings, layers.0, layers.1, norm" \
  '"fsdp": {"embedding": "own", "head": "own"}, "retain": [{"group": "root"}]'
fsdp2 "a group retained twice" "'root' is retained twice" '"retain": [{"group": "root"}, {"group": "root"}]'
fsdp2 "an unknown moment" "key 'retain[0].until'" '"retain": [{"group": "root", "until": "doomsday"}]'
ddp "sharding by ddp" "key 'mesh.shard': ddp does not shard" '"mesh": {"shard": 2}'
ddp "a reduction in another dtype" "key 'precision.reduce'" '"precision": {"compute": "fp32", "reduce": "bf16"}'
ddp "computing in another dtype" "key 'precision.compute'" '"precision": {"compute": "bf16"}'
ddp "casting outputs" "key 'precision.output'" '"precision": {"output": "fp32"}'
ddp "resharding nothing" "key 'accumulation.reshard_after_backward'" '"accumulation": {"reshard_after_backward": false}'
ddp "a last backward that ddp does not know" "key 'accumulation.set_last_backward'" '"accumulation": {"set_last_backward": true}'
ddp "checkpointing around what is not there" "key 'activation_checkpointing.around'" \
  '"activation_checkpointing": {"policy": "full", "around": "fsdp"}'
ddp "retaining without groups" "key 'retain': strategy ddp has no groups" '"retain": [{"group": "root"}]'
ddp "an empty bucket" "key 'ddp.bucket_cap_mb': 0 is not in" '"ddp": {"bucket_cap_mb": 0}'
none "one rank that shards" "key 'mesh': strategy none has one rank" '"mesh": {"shard": 2}'
none "one rank that replicates" "key 'mesh': strategy none has one rank" '"mesh": {"replicate": 2}'

printf '%s' '{"model_type": "gpt2", "n_embd": 64, "n_layer": 1, "n_head": 4, "vocab_size": 128, "n_positions": 1}' >short.json
options "more tokens than positions" "short.json: key 'n_positions': 1 positions are fewer" short.json --plan plan.json

sed 's/"n_positions": 1/"n_positions": 64, "resid_pdrop": -1/' short.json >dropout.json
options "a negative dropout" "key 'resid_pdrop': -1 is not in 0..1" dropout.json --plan plan.json

# ---- clusters
cluster "an unknown key of a cluster" "unknown key 'colour'" 's/"device"/"colour": 1, &/'
cluster "an unknown device" "no such device preset" 's/h100-sxm-80gb/h999/'
cluster "nodes without GPUs" "key 'gpus_per_node': 0 is not in" 's/"gpus_per_node": 8/"gpus_per_node": 0/'
cluster "an unknown fabric" "'string' is not one of" 's/nvswitch/string/'
cluster "no network cards" "key 'inter_node.nics': 0 is not in" 's/"nics": 8/"nics": 0/'
cluster "negative bandwidth" "key 'inter_node.gbit_per_nic': -400" 's/400/-400/'
cluster "a negative context" "key 'process_memory.context_bytes'" \
  's/"gpus_per_node"/"process_memory": {"context_bytes": -1}, &/'

sed 's/"memory_bytes": *[^,]*/"memory_bytes": 0/' "$HIGHWATER_MODELS/device/h100-sxm-80gb.json" >device.json
cluster "a device without memory" "./device.json: key 'memory_bytes': 0 bytes is not in 1048576.." 's/h100-sxm-80gb/.\/device.json/'

# ---- command line
set -- network.json --plan plan.json
options "an assignment without a value" "--set 'mesh.shard': key=value" "$@" --set mesh.shard
options "an assignment without a key" "--set '=8': key=value" "$@" --set =8
options "an assignment with an empty section" "--set 'mesh..shard=8': key=value" "$@" --set mesh..shard=8
options "an assignment through a value" "'shard' in plan.json is not a section" "$@" --set mesh.shard.x=8
options "an assignment to an unknown key" "unknown key 'mesh.shards'; did you mean 'shard'?" "$@" --set mesh.shards=8
options "an assignment into an array" "--set ranks.slow.0.rank=3: plan.json: key 'ranks.slow': an array is needed" \
  "$@" --set ranks.slow.0.rank=3
options "an assignment of another type" "key 'mesh.shard': a whole number is needed" "$@" --set mesh.shard=eight
options "a rank beyond the mesh" "--rank: 8 is not in 0..7" "$@" --rank 8
options "a negative rank" "--rank: -1 is not in 0.." "$@" --rank=-1
options "a rank that is no number" "--rank" "$@" --rank first
options "no steps" "--steps: 0 is not in 1..10000" "$@" --steps 0
options "negative steps" "--steps: -1 is not in 1..10000" "$@" --steps=-1
options "too many steps" "--steps: 10001 is not in 1..10000" "$@" --steps 10001
options "steps that are no number" "--steps" "$@" --steps few
refused "more ranks than are simulated one by one" "--all-ranks: 16385 ranks are more than the 16384" \
  run "$@" --all-ranks --set mesh.shard=16385
refused "jitter of more ranks than that" "key 'ranks.jitter': 16385 ranks would be simulated one by one" \
  run "$@" --set mesh.shard=16385 --set ranks.jitter=0.1
refused "a step beyond the last" "--step: 3 is not in 0..2" lower "$@" --steps 2 --step 3
refused "a step before the construction" "--step: -1 is not in 0..2" lower "$@" --steps 2 --step=-1
refused "a Program of one step" "--program prints all of it: not together with --step" lower "$@" --program --step 1
refused "a Program of allocations" "not together with --allocations" lower "$@" --program --allocations
finish

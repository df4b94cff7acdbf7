# exported.sh - networks that tools/export_network.py recorded (tests/data/exported): the peaks that PyTorch 2.11 and its
# allocator had when they ran the same models (2 layers, width 256, 2 sequences of 512 tokens; FSDP2 on 8 ranks, or one
# rank in bf16 or under autocast); what of such a file is refused, in which words.
. "$top_srcdir/tests/cli/lib.sh"
exports=$top_srcdir/tests/data/exported

cat >fsdp2.json <<'PLAN'
{"strategy": "fsdp2", "mesh": {"shard": 8}, "batch": {"micro_batch": 2, "sequence_length": 512},
 "precision": {"parameters": "fp32", "compute": "bf16", "reduce": "fp32"},
 "optimizer": {"name": "adamw", "implementation": "fused", "zero_grad": "end"},
 "fsdp": {"blocks_per_group": 1, "embedding": "root", "head": "root", "reshard_after_forward": true}}
PLAN
cat >plain.json <<'PLAN'
{"strategy": "none", "batch": {"micro_batch": 2, "sequence_length": 512}, "precision": {"parameters": "bf16"},
 "optimizer": {"name": "adamw", "implementation": "fused"}}
PLAN

# peaks NAME PLAN CHECKPOINTING ALLOCATED RESERVED
peaks() {
  run run "$exports/$1.json" --plan "$2.json" --set "activation_checkpointing.policy=$3" --cluster instant --json
  tr -d '\t,' <out >figures
  ok "$1 under $2 with checkpointing $3 needs $4 bytes" grep -q "^\"peak_allocated_bytes\":$4\$" figures
  ok "$1 under $2 with checkpointing $3 reserves $5 bytes" grep -q "^\"peak_reserved_bytes\":$5\$" figures
}
peaks torchtitan fsdp2 none 139355136 192937984
peaks torchtitan fsdp2 full 124623872 186646528
peaks torchtitan plain none 154100736 165675008
peaks torchtitan plain full 139369472 159383552
peaks llama fsdp2 none 149966336 222298112
peaks llama fsdp2 full 131044864 205520896
peaks qwen2 fsdp2 none 147357696 199229440
peaks qwen2 fsdp2 full 129484800 186646528
peaks gpt2 fsdp2 none 159915520 203423744
peaks gpt2 fsdp2 full 130487808 180355072

# bf16 autocast over fp32 parameters: what transformers' own config.json gives as well
cat >autocast.json <<'PLAN'
{"strategy": "none", "batch": {"micro_batch": 2, "sequence_length": 512},
 "precision": {"parameters": "fp32", "compute": "bf16", "autocast": true},
 "optimizer": {"name": "adamw", "implementation": "fused", "zero_grad": "end"}}
PLAN
peaks gpt2_autocast autocast none 206496768 222298112
peaks gpt2_autocast autocast full 160291840 176160768
cat >config.json <<'CONFIG'
{"model_type": "gpt2", "n_embd": 256, "n_layer": 2, "n_head": 4, "n_positions": 1024, "vocab_size": 4096}
CONFIG
exported=$exports exports=.
peaks config autocast none 206496768 222298112
peaks config autocast full 160291840 176160768
exports=$exported

for strategy in fsdp1 zero1 zero2 zero3; do
  answers "$strategy trains an exported network" 0 run "$exports/gpt2.json" --plan "$strategy" \
    --set batch.micro_batch=2 --set batch.sequence_length=512
done
answers "what was exported in bf16 is computed in fp32" 0 run "$exports/gpt2.json" --plan plain.json \
  --set precision.parameters=fp32
refuses "not where attention then runs as another kernel" "attention gives fp32[2,4,512,64] under this plan, where" \
  run "$exports/llama.json" --plan plain.json --set precision.parameters=fp32
answers "gradients are accumulated" 0 run "$exports/llama.json" --plan fsdp2.json --set accumulation.steps=2

# Mistakes: a small network of one block, and one line of it spoilt.
cat >good.json <<'NETWORK'
{"family": "ops", "dtype": "bf16", "batch": 2, "sequence_length": 8,
 "figures": {"vocabulary": 16, "hidden": 4, "embedding_parameters": 64, "embedding": ["table"], "head": ["out"]},
 "modules": [
  {"path": "", "type": "Model"},
  {"path": "table", "type": "Embedding", "parameters": [{"name": "weight", "shape": [16, 4]}]},
  {"path": "layers", "type": "ModuleList"},
  {"path": "layers.0", "type": "Block", "block": true, "parameters": [{"name": "gain", "shape": [4]}]},
  {"path": "out", "type": "Linear", "parameters": [{"name": "weight", "shape": [16, 4]}]}],
 "inputs": [{"dtype": "int64", "shape": [2, 8]}, {"dtype": "int64", "shape": [16]}],
 "functions": [{"arguments": [{"dtype": "bf16", "shape": [2, 8, 4]}],
   "statements": [
    {"op": "rms_norm", "in": [0, "gain"], "out": [{"dtype": "bf16", "shape": [2, 8, 4]}]},
    {"op": "recorded", "what": "sin", "in": [1], "out": [{"dtype": "bf16", "shape": [2, 8, 4]}], "saves": ["in0"],
     "backward": [["temp", 0, 128], ["grad", 0], ["release", 0]]},
    {"drop": [1]}],
   "result": 2}],
 "block_functions": [0],
 "main": {"statements": [
   {"enter": "", "in": [0]},
   {"op": "embedding", "in": ["table.weight", 2], "out": [{"dtype": "bf16", "shape": [2, 8, 4]}]},
   {"call": 0, "in": [3]},
   {"drop": [3]},
   {"op": "linear", "in": [4, "out.weight"], "out": [{"dtype": "bf16", "shape": [2, 8, 16]}]},
   {"drop": [4]},
   {"exit": "", "in": [5]},
   {"drop": [2]},
   {"op": "view", "in": [5], "out": [{"dtype": "bf16", "shape": [16, 16]}]},
   {"op": "log_softmax", "in": [6], "out": [{"dtype": "bf16", "shape": [16, 16]}]},
   {"op": "nll_loss", "in": [7, 1], "out": [{"dtype": "bf16", "shape": []}]},
   {"drop": [5, 6, 7]}],
  "result": 8}}
NETWORK
answers "a small network is played" 0 run good.json --set batch.micro_batch=2 --set batch.sequence_length=8 \
  --set mesh.shard=2
ok "its parameters are counted" prints "132 parameters"

# rejects NAME MESSAGE OLD NEW: good.json with the first OLD as NEW (of sed).
rejects() {
  sed "s/$3/$4/" good.json >bad.json
  if cmp -s good.json bad.json; then
    ok "$1: '$3' is in the file" false
  else
    refuses "$1" "bad.json: $2" run bad.json --set batch.micro_batch=2 --set batch.sequence_length=8
  fi
}
rejects "an unknown op" "key 'functions[0].statements[0].op': 'norm' is not one of view" '"rms_norm"' '"norm"'
rejects "a value out of range" "key 'functions[0].statements[1].in': value 7 is not made yet: there are 2" '"in": \[1\], "out"' '"in": [7], "out"'
rejects "a value that needs itself" "key 'functions[0].statements[1].in': value 2 is not made yet" '"in": \[1\], "out"' '"in": [2], "out"'
rejects "a value that is gone" "key 'main.statements[8].in': value 5 was dropped before" '"drop": \[2\]}' '"drop": [2, 5]}'
rejects "an argument that is dropped" "key 'functions[0].statements[2].drop': value 0 is an argument" '"drop": \[1\]' '"drop": [0]'
rejects "a result that is gone" "key 'functions[0].result': value 1 is dropped" '"result": 2' '"result": 1'
rejects "sizes that overflow" "key 'inputs[0].shape': the elements are too many for a tensor" '"shape": \[2, 8\]' '"shape": [70368744177664, 8]'
rejects "a size beyond 2^46" "key 'inputs[0].shape': at most 5 whole numbers in 0..70368744177664" '"shape": \[2, 8\]' '"shape": [1e300, 8]'
rejects "a parameter that is not there" "key 'functions[0].statements[0]': there is no parameter 'layers.0.bias'" '"gain"\], "out"' '"bias"], "out"'
rejects "a module that is not there" "key 'figures.head': there is no module 'lm_head'" '"head": \["out"\]' '"head": ["lm_head"]'
rejects "a module without its parent" "key 'modules[3].path': 'blocks.0' is not a child" '"path": "layers.0"' '"path": "blocks.0"'
rejects "a shape that the op does not give" "key 'main.statements[4]': linear gives bf16[2,8,16] under this plan, where the exported model had bf16[2,8,15]" '"shape": \[2, 8, 16\]' '"shape": [2, 8, 15]'
rejects "operands that do not go together" "key 'main.statements[4]': linear: operands are [..., in], [out, in]" '"in": \[4, "out.weight"\]' '"in": [4, "layers.0.gain"]'
rejects "a gradient that comes twice" "key 'functions[0].statements[1].backward': steps are" '\["grad", 0\], ' '["grad", 0], ["grad", 0], '
rejects "a temporary that stays" "key 'functions[0].statements[1].backward': steps are" ', \["release", 0\]' ''
rejects "a saved tensor that the op has not" "key 'functions[0].statements[1].saves': at most" '"saves": \["in0"\]' '"saves": ["in1"]'
rejects "a block that is not one" "key 'main': statement 2 calls block 3, which is not one of the modules" '"call": 0' '"call": 3'
rejects "a block without a function" "key 'block_functions': 1 modules are blocks, and 0 have a function" '"block_functions": \[0\]' '"block_functions": []'
rejects "results that the block does not give" "key 'main': statement 2 has 2 results of block 0 instead of 1" '"call": 0' '"results": 2, "call": 0'
rejects "a result twice" "key 'functions[0].others': value 2 is a result twice" '"result": 2' '"result": 2, "others": [2]'
rejects "a key that nobody knows" "unknown key 'functions[0].statements[0].output'" '"in": \[0, "gain"\]' '"output": 1, "in": [0, "gain"]'
rejects "a model that is not left" "key 'main': the model is entered and left once" '{"exit": "", "in": \[5\]},' ''

small="--set batch.micro_batch=2 --set batch.sequence_length=8"
refuses "another micro-batch" "good.json: key 'batch': exported for micro-batches of 2, the plan's batch.micro_batch is 1" \
  run good.json --set batch.sequence_length=8
refuses "another length" "key 'sequence_length': exported for sequences of 8, the plan's batch.sequence_length is 16" \
  run good.json --set batch.micro_batch=2 --set batch.sequence_length=16
refuses "autocast that it has not seen" "key 'autocast': exported without autocast, the plan computes under it" \
  run good.json --plan ddp $small
sed 's/"dtype": "bf16", "batch"/"dtype": "fp32", "batch"/' good.json >wide.json
refuses "a narrower dtype" "key 'dtype': exported in fp32, the plan computes in bf16" run wide.json $small
finish

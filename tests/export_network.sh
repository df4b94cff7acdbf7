# export_network.sh - tools/export_network.py, where there is a Python with PyTorch (HIGHWATER_PYTHON names another one than
# python3; HIGHWATER_PYTHON_LIBRARIES what it needs of LD_LIBRARY_PATH): what it sees of a model whose ops, modules and
# saved tensors are known, what it refuses, and that what it writes is played.
. "$top_srcdir/tests/cli/lib.sh"
models=$top_srcdir/tests/export_model.py

with_python -c 'import torch'
if [ "$status" -ne 0 ]; then
  skip "a model is exported" "no PyTorch for $python"
  finish
fi
export_network() {
  with_python "$top_srcdir/tools/export_network.py" "$@"
}
has() {
  grep -qF -e "$1" model.json
}

export_network "$models:make" --batch 2 --sequence-length 16 -o model.json
ok "a model is exported" test "$status" -eq 0 -a ! -s err
ok "its blocks are alike" has '"block_functions": [0, 0, 0]'
ok "its output layer has the table's weight" has '"tied": [{"name": "out.weight", "weight": "table.weight"}]'
ok "a buffer that is used is a constant" has '"name": "layers.0.scale"'
ok "an op without a recipe keeps its operand" has '"what": "sin", "in": [5], "out": [{"dtype": "bf16", "shape": [2, 16, 64]}], "saves": ["in0"], "kept": 0'
ok "a user's function keeps what it said" has '"what": "Cube", "in": [6], "out": [{"dtype": "bf16", "shape": [2, 16, 64]}], "saves": ["in0"], "kept": 0'
ok "dropout is the GPU's kernel" has '"op": "dropout"'
run run model.json --set batch.micro_batch=2 --set batch.sequence_length=16 --plan fsdp2 --set mesh.shard=2
ok "it is played" is_answer 0
run show model.json --set batch.micro_batch=2 --set batch.sequence_length=16
ok "it has 100 * 32 + 3 * (32 * 64 + 64 + 64 * 32) parameters" prints "15,680 parameters"

cp model.json first.json
export_network "$models:make" --batch 2 --sequence-length 16 -o model.json
ok "the same model gives the same file" cmp -s first.json model.json
export_network "$models:make" --batch 2 --sequence-length 16 --loss mean_loss --dtype fp32 -o model.json
ok "a loss of one's own is exported" has '"op": "mean"'
ok "the dtype is said" has '"dtype": "fp32"'
export_network "$models:make" --blocks 'layers.1' -o model.json
ok "blocks may be named" has '"block_functions": [0]'

# declines NAME TEXT ARGS...: exit 2, one line with TEXT, and no file.
declines() {
  lib_name=$1 lib_text=$2
  shift 2
  rm -f none.json
  export_network "$@" -o none.json
  ok "$lib_name" sh -c "test $status -eq 2 -a ! -e none.json && grep -qF -e \"$lib_text\" err"
}
declines "control flow by values is refused" "the model asks for the value of a tensor that depends on weights" \
  "$models:make_branch"
declines "a function that is not there is named" "has no function absent" "$models:absent"
declines "a file that is not there is named" "give FILE.py:FUNCTION" "absent.py:make"

# The exports of tests/data are what the exporter writes of transformers' models, where that is installed too.
with_python -c 'import transformers'
if [ "$status" -ne 0 ]; then
  skip "a config.json is exported" "no transformers"
else
  cat >config.json <<'CONFIG'
{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 256, "num_hidden_layers": 2,
 "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 512, "vocab_size": 4096, "head_dim": 64}
CONFIG
  export_network --config config.json --batch 2 --sequence-length 512 -o model.json
  for network in config model; do
    run run $network.json --plan fsdp2 --set batch.micro_batch=2 --set batch.sequence_length=512 --json
    grep -E '"(peak_(allocated|reserved)_bytes|step_seconds)"' out >$network.figures
  done
  ok "an export has the peaks of the family" cmp -s config.figures model.figures
fi
finish

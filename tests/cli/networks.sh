# networks.sh - networks of the family "blocks": what each key may be, and the line for each mistake; implementations that
# a family's code does not have.  That their steps are right is not pinned here.
. "$top_srcdir/tests/cli/lib.sh"

# network OPS: two equal blocks of these.
network() {
  printf '{"family": "blocks", "hidden": 64, "vocabulary": 10, "blocks": [{"repeat": 2, "ops": [%s]}]}\n' "$1" >network.json
}
accepts() {
  network "$2"
  answers "$1" 0 run network.json --set batch.sequence_length=32 --set mesh.shard=2
}
rejects() {
  network "$3"
  refuses "$1" "network.json: $2" run network.json
}

linear='{"op": "linear"}'
accepts "a linear layer is as wide as what it gets" "$linear"
ok "an embedding, a head and two blocks of 64 x 64 are there" prints "9.47 K parameters"
accepts "an op is numbers unless it says otherwise" '{"parameters": 1000, "activation_bytes": "1MiB", "forward_flops": 1e9}'
accepts "values have names" '{"op": "layer_norm", "as": "n"}, {"op": "linear", "out": 128, "as": "a", "name": "up"},
  {"op": "linear", "from": "n", "out": 128, "name": "gate"}, {"op": "mul", "with": "a"},
  {"op": "linear", "out": 64, "name": "down"}, {"op": "add", "with": "input"}'
accepts "attention shares key heads" '{"op": "attention", "heads": 4, "kv_heads": 2, "bias": true}'

rejects "a block has ops" "key 'blocks[0].ops': a block has 1 to 256 ops, not 0" ''
rejects "an op is one of the table" "key 'blocks[0].ops[0].op': 'conv' is not one of linear, layer_norm" '{"op": "conv"}'
rejects "each op has its own keys" "unknown key 'blocks[0].ops[0].out'" '{"op": "gelu", "out": 3}'
rejects "a name must be known" "key 'blocks[0].ops[0].with': there is no value 'x' before this op" '{"op": "add", "with": "x"}'
rejects "an operand is as wide as the other" "key 'blocks[0].ops[1].with': 'input' is not as wide" \
  '{"op": "linear", "out": 32}, {"op": "add", "with": "input"}'
rejects "a block ends as wide as it began" "key 'blocks[0].ops': the block ends with width 32" '{"op": "linear", "out": 32}'
rejects "heads divide the width" "key 'blocks[0].ops[0].heads': 7 does not divide the width 64" '{"op": "attention", "heads": 7}'
rejects "key heads divide heads" "key 'blocks[0].ops[0].kv_heads': 3 does not divide heads 4" \
  '{"op": "attention", "heads": 4, "kv_heads": 3}'
accepts "ops of a block without names are numbered by kind" "$linear, $linear"
rejects "ops of a block have different names" "key 'blocks[0].ops[1].name': two ops of the block are named 'up'" \
  '{"op": "linear", "name": "up"}, {"op": "linear", "name": "up"}'
rejects "a name is one step of a path" "key 'blocks[0].ops[0].name': 'a.b' is no name of a module" \
  '{"op": "linear", "name": "a.b"}'
rejects "sizes that overflow are no sizes" "opaque: 8796093022208000000 elements are too many for a tensor" '{"activation_bytes": "8000000TiB"}'

# Whole networks.
whole() {
  printf '%s\n' "$3" >network.json
  refuses "$1" "network.json: $2" run network.json
}
whole "a network has blocks" "key 'blocks': a network has at least one block" '{"family": "blocks", "hidden": 8, "vocabulary": 9}'
whole "a loss over a vocabulary needs one" "key 'vocabulary': is needed by" \
  '{"family": "blocks", "hidden": 8, "blocks": [{"ops": [{"op": "gelu"}]}]}'
whole "modules have different names" "key 'embedding': is named 'embedding' like 'list'" \
  '{"family": "blocks", "hidden": 8, "vocabulary": 9, "list": "embedding", "blocks": [{"ops": [{"op": "gelu"}]}]}'
whole "there are at most 4096 blocks" "key 'blocks': there are more than 4096 blocks" \
  '{"family": "blocks", "hidden": 8, "vocabulary": 9, "blocks": [{"repeat": 4096, "ops": [{}]}, {"ops": [{}]}]}'
whole "a family must be known" "key 'model_type': 'llma' is not one of llama" '{"model_type": "llma"}'
whole "a family's fields must be there" "key 'hidden_size' is missing" '{"model_type": "llama"}'

# Orders that hold: what is read was written before, and lies within its memory.
vit() {
  printf '{"model_type": "vit", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "image_size": 224, "patch_size": %s, "num_labels": 10}\n' "$1" >network.json
}
vit 16
answers "a class token in fp32 before patches in bf16" 0 lower network.json --plan ddp --set batch.micro_batch=2 --check
vit 1
answers "gains of more than 65536 rows are summed in two stages" 0 lower network.json --plan zero1 --set batch.micro_batch=2 --check

# T5's biases of positions are the second thing that a block gets, and their gradients are added up in their own shape.
for plan in fsdp2 fsdp1 zero3; do
  answers "gradients of what blocks share, $plan" 0 lower t5-base --plan "$plan" --set batch.sequence_length=128 \
    --set batch.micro_batch=2 --check
done

# Code bases do what they do.
llama() {
  printf '{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "vocab_size": 100, "intermediate_size": 128, "implementation": %s}\n' "$1" >network.json
}
for wrong in '{"rope": "none"}' '{"rope": "complex"}' '{"loss": "model"}' '{"kv_heads": "repeated"}'; do
  llama "$wrong"
  refuses "transformers has no $wrong" "key 'implementation': the" run network.json
done
llama '{"code": "torchtitan", "rope": "none", "kv_heads": "repeated", "loss": "model"}'
answers "torchtitan's code has variants" 0 run network.json --set batch.sequence_length=32 --set mesh.shard=2
finish

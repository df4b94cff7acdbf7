# show.sh - highwater show: text, JSON, plans and settings; every network that cannot be is refused in one line.
. "$top_srcdir/tests/cli/lib.sh"

for file in "$top_srcdir"/models/network/*.json; do
  name=${file##*/}
  name=${name%.json}
  answers "$name is shown" 0 show "$name"
  ok "$name's FLOPs are said" prints "FLOPs per token"
  answers "$name is shown as JSON" 0 show "$name" --json
done

run show llama-3-8b
cp out first
ok "the exact count of parameters is said" prints "8,030,261,248 parameters"
ok "blocks that are alike share a line" grep -q "^layers.0-31  *TransformerBlock" out
run show llama-3-8b
ok "the same question has the same answer" cmp -s first out
answers "a plan says how many tokens" 0 show llama-3-8b --set batch.sequence_length=4096 --set batch.micro_batch=2
ok "they are in the answer" prints "2 x 4096 tokens"
answers "a plan forms groups" 0 show llama-3-8b --plan fsdp2
ok "the groups are listed" prints "layers.0 to layers.31"
answers "a plan without groups says so" 0 show llama-3-8b
ok "it says so" prints "Strategy none forms no groups."
run show gpt2 --plan fsdp2 --set mesh.shard=7 --set batch.sequence_length=1024
ok "50257 rows over 7 ranks are padded by 3 of 768" prints "4.50 KiB"
ok "members of a group are named" grep -q "norm, output\$" out
ok "all blocks together are said" prints "under the plan's policy, full."
answers "a network's exported form has its own batch" 0 show "$top_srcdir/tests/data/exported/gpt2.json"
ok "it says so" prints "2 x 512 tokens"
ok "nobody else's code computes it" prints "as it was recorded"
answers "a plan of DeepSpeed is shown" 0 show "$top_srcdir/tests/data/exported/llama.json" --plan zero3 \
  --set batch.micro_batch=2 --set batch.sequence_length=512
answers "a model with few positions is shown with as many" 0 show gpt2
ok "its sequences are that long" prints "in sequences of 1024 tokens"
"$highwater" show - --json <"$top_srcdir/models/network/tiny.json" >out 2>err
status=$?
ok "a network can come from standard input" is_answer 0

refuses "a network is needed" "show: too few arguments" show
refuses "only one network is taken" "show: too many arguments" show tiny gpt2
refuses "a misspelt network is recognized" "did you mean 'tiny'?" show tinny
refuses "a misspelt plan is recognized" "did you mean 'fsdp2'?" show tiny --plan fsdp22
refuses "a missing network is named" "missing.json: cannot be read: No such file" show missing.json
refuses "strategy none has one rank" "show's own plan: key 'mesh'" show tiny --set mesh.shard=8
refuses "positions cannot be exceeded" "key 'n_positions': 1024 positions are fewer" \
  show gpt2 --set batch.sequence_length=2048
printf '{"model_type": "llama"' >truncated.json
refuses "a truncated network is named with its line" "truncated.json: line 1:" show truncated.json

echo '{"model_type": "llama", "implementation": "torchtitan", "hidden_size": 64, "intermediate_size": 96,' \
  '"num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 128}' >good.json
answers "the network that the next ones spoil is good" 0 show good.json

# refuses_network NAME MESSAGE KEY=VALUE...: good.json with these fields is refused, naming the file.
refuses_network() {
  refused_name=$1 refused_text=$2
  shift 2
  cp good.json bad.json
  for field in "$@"; do
    key=${field%%=*} value=${field#*=}
    if grep -q "\"$key\"" bad.json; then
      sed "s/\"$key\": [^,}]*/\"$key\": $value/" bad.json >spoilt.json
    else
      sed "s/}\$/, \"$key\": $value}/" bad.json >spoilt.json
    fi
    mv spoilt.json bad.json
  done
  run show bad.json
  ok "$refused_name is refused with its file" is_refusal "bad.json: "
  ok "$refused_name is refused" is_refusal "$refused_text"
}

refuses_network "no layers" "key 'num_hidden_layers': 0 is not in 1.." num_hidden_layers=0
refuses_network "too many layers" "key 'num_hidden_layers': 1099511627776 is not in 1..4096" num_hidden_layers=1099511627776
refuses_network "a negative width" "key 'hidden_size': -64 is not in 1.." hidden_size=-64
refuses_network "half a layer" "key 'num_hidden_layers': 2.5 is not a whole number" num_hidden_layers=2.5
refuses_network "a width in words" "key 'hidden_size': a whole number is needed" 'hidden_size="64"'
refuses_network "heads that do not divide the width" "key 'num_attention_heads': 5 does not divide the width 64" \
  num_attention_heads=5
refuses_network "key heads that do not divide the heads" "key 'num_key_value_heads': 3 does not divide the 4" \
  num_key_value_heads=3
refuses_network "an odd head" "key 'head_dim': 15 is odd" head_dim=15
refuses_network "a table of 2^80 elements" "key 'vocab_size'" vocab_size=1099511627776 hidden_size=1099511627776 \
  intermediate_size=1
refuses_network "an MLP of 2^80 elements" "key 'intermediate_size'" intermediate_size=1099511627776 \
  hidden_size=1099511627776
refuses_network "a number beyond 2^53" "key 'vocab_size'" vocab_size=1e300
refuses_network "more parameters than can be counted" "the network has more than 2^50 parameters" hidden_size=4194304 \
  intermediate_size=4194304 num_hidden_layers=4096
refuses "a batch that no tensor can hold" "batch.micro_batch 1048576 and batch.sequence_length 2147483647" \
  show good.json --set batch.micro_batch=1048576 --set batch.sequence_length=2147483647
echo '{"model_type": "mamba"}' >bad.json
refuses "an unknown family is named with those that are known" "bad.json: key 'model_type': 'mamba' is not one of llama" \
  show bad.json
finish

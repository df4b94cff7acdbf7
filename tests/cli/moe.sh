# moe.sh - mixtures of experts on the command line: what show lists, the order of a group's parameters, the load factor.
. "$top_srcdir/tests/cli/lib.sh"

cat >network.json <<'END'
{"model_type": "gpt_oss", "hidden_size": 64, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
 "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 100, "num_local_experts": 4, "num_experts_per_tok": 2}
END
answers "a mixture is shown" 0 show network.json --set batch.sequence_length=16
ok "its experts are one tensor a matrix" grep -qF 'gate_up_proj [4, 64, 64]' out

# torch.distributed.fsdp visits children before the module itself: the sinks are the attention's own parameter.
answers "a group is gathered" 0 lower network.json --set batch.sequence_length=16 --allocations --steps 1
grep 'unsharded_parameter model.layers.0.self_attn' out | sed 's/.*layers.0.self_attn.//' | head -n 9 | tr '\n' ' ' >order
ok "a module's own parameters come behind those of the modules in it" \
  grep -qxF 'q_proj.weight q_proj.bias k_proj.weight k_proj.bias v_proj.weight v_proj.bias o_proj.weight o_proj.bias sinks ' order

answers "experts may be loaded unevenly" 0 run network.json --set batch.sequence_length=16 --set moe.load_imbalance=2 \
  --set moe.experts=eager
refuses "no expert has more tokens than there are" "key 'moe.load_imbalance': 2.5 is more than 2" \
  run network.json --set batch.sequence_length=16 --set moe.load_imbalance=2.5
finish

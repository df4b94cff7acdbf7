# numeric_torch.sh - what the numeric executor computes beside PyTorch in fp64, where there is a Python with torch and
# transformers (HIGHWATER_PYTHON, HIGHWATER_PYTHON_LIBRARIES as for export_network.sh): losses, gradients, parameters and
# states of three steps of small models of transformers.  The epsilon of all norms is 1e-5, no token is padding.
. "$top_srcdir/tests/cli/lib.sh"
with_python -c 'import torch, transformers'
if [ "$status" -ne 0 ]; then
  skip "a model is PyTorch's" "no transformers for $python"
  finish
fi

cat >plan.json <<'PLAN'
{"strategy": "none", "batch": {"micro_batch": 2, "sequence_length": 8}, "optimizer": {"clip_grad_norm": 1}}
PLAN
small='"hidden_size": 16, "num_hidden_layers": 2, "vocab_size": 19, "intermediate_size": 24'
same='"rms_norm_eps": 1e-5, "layer_norm_eps": 1e-5, "layer_norm_epsilon": 1e-5, "pad_token_id": null, "eos_token_id": null, "bos_token_id": null'
grouped='"num_attention_heads": 4, "num_key_value_heads": 2'
single='"num_attention_heads": 2, "max_position_embeddings": 16'
eager='"implementation": {"attention": "eager"}'

# model NAME MODEL_TYPE FIELDS: its config, and what it computes here.
model() {
  printf '{"model_type": "%s", %s, %s, %s}\n' "$2" "$small" "$same" "$3" >"$1.config"
  "$top_builddir/tests/numeric_values" "$1.config" plan.json >"$1.values" 2>"$1.err"
}

model llama llama "$grouped"
model eager llama "$grouped, \"tie_word_embeddings\": true, \"attention_bias\": true, $eager"
model gpt2 gpt2 "$single, \"n_inner\": 24, \"attn_pdrop\": 0, \"resid_pdrop\": 0, \"embd_pdrop\": 0"
model mistral mistral "$grouped, \"sliding_window\": 3"
model qwen3 qwen3 "$grouped, \"head_dim\": 8"
model gemma gemma "$grouped, \"head_dim\": 8"
model gemma2 gemma2 "$grouped, \"head_dim\": 8, \"query_pre_attn_scalar\": 8, \"sliding_window\": 3, $eager"
model neox gpt_neox "$single, \"rotary_pct\": 0.5"
model olmo olmo "$grouped, \"clip_qkv\": 0.5"
model cohere cohere "$grouped, \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 10000}"

with_python "$top_srcdir/tests/numeric_torch.py" 1 *.config
equal() {
  ok "$1" grep -q "^equal $2 " out
}
equal "Llama's steps are PyTorch's" llama
equal "with eager attention, biases and tied embeddings too" eager
equal "GPT-2's are" gpt2
equal "windows are Mistral's" mistral
equal "norms of queries and keys are Qwen3's" qwen3
equal "gains of one plus a weight are Gemma's" gemma
equal "soft caps are Gemma 2's" gemma2
equal "parts of heads are rotated as in GPT-NeoX" neox
equal "norms have no parameters in OLMo" olmo
equal "neighbours are rotated as in Command R" cohere
finish

/* layers_lora.c - low-rank adapters as PEFT adds them (peft/tuners/lora/layer.py, Linear), or
 * written out in a line of Python. */
#include "network/layers_lora.h"

int
lora_begin(Builder *b, const char *name)
{
  const LoraSpec *lora = builder_shape(b)->lora;
  if (lora == NULL)
    return 0;
  g_autofree char *path = builder_path(b, name);
  gboolean wanted = lora->all ? builder_in_block(b) : lora_spec_targets(lora, path);
  return wanted ? builder_module(b, name, NETWORK_ADAPTER_TYPE) : 0;
}

/* A linear layer without a bias; containers in its name are never called. */
static int
define_factor(Builder *b, const char *name, gint64 out, gint64 in)
{
  builder_module(b, name, "Linear");
  int weight = builder_parameter(b, "weight", 2, out, in);
  builder_module_end(b);
  return weight;
}

void
lora_end(Builder *b, int adapter, gint64 out, gint64 in, Linear *layer)
{
  layer->adapter = adapter;
  if (adapter == 0)
    return;
  const LoraSpec *lora = builder_shape(b)->lora;
  builder_adapter(b, TRUE);
  if (lora->code == LORA_PEFT) {
    builder_module(b, "lora_dropout.default", lora->dropout ? "Dropout" : "Identity");
    builder_module_end(b);
  }
  layer->a = define_factor(b, "lora_A.default", lora->rank, in);
  layer->b = define_factor(b, "lora_B.default", out, lora->rank);
  builder_adapter(b, FALSE);
  builder_module_end(b);
}

static Val
factor(Builder *b, Val x, int weight)
{
  return linear(b, x, (Linear){.weight = weight, .bias = -1});
}

static Val
dropout_module(Builder *b, Val x, int module)
{
  x = call_module(b, module, x);
  return builder_leave(b, builder_shape(b)->lora->dropout && !builder_shape(b)->evaluation
                              ? unary_with(b, OP_DROPOUT, x, "p", 0.1)
                              : x);
}

/* peft's default of lora_alpha; no time or memory depends on it. */
#define PEFT_ALPHA 8.0

/* x = x.to(A's dtype); result = result + B(A(dropout(x))) * scaling; return result.to(its dtype) */
static Val
peft_forward(Builder *b, Val x, Linear layer, Val result)
{
  DType dtype = (DType) builder_info(b, result).dtype;
  DType factors = (DType) builder_info(b, builder_weight(b, layer.a)).dtype;
  int module = parameter_module(b, layer.a) - 1;
  result = let(b, "result", result);
  x = let(b, "x", to(b, x, factors));
  Val low = factor(b, dropout_module(b, x, module), layer.a);
  Val scaled = unary_with(b, OP_MUL_SCALAR, factor(b, low, layer.b), "value",
                          PEFT_ALPHA / (double) builder_shape(b)->lora->rank);
  result = let(b, "result", binary(b, OP_ADD, result, scaled));
  return builder_leave(b, let(b, "result", to(b, result, dtype)));
}

Val
lora_linear(Builder *b, Val x, Linear layer, Val (*base)(Builder *b, Val x, Linear layer))
{
  x = call_module(b, layer.adapter, x);
  Val result = base(b, x, layer);
  if (builder_shape(b)->lora->code == LORA_PEFT)
    return peft_forward(b, x, layer, result);
  Val added = factor(b, factor(b, x, layer.a), layer.b);
  return builder_leave(b, binary(b, OP_ADD, result, added));
}

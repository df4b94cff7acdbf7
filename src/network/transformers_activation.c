/* transformers_activation.c - transformers' table of activation functions. */
#include "network/transformers_activation.h"

#include <string.h>

static Val
silu(Builder *b, Val x)
{
  return unary(b, OP_SILU, x);
}

/* F.gelu, exact or with its tanh approximation: one kernel either way. */
static Val
gelu(Builder *b, Val x)
{
  return unary(b, OP_GELU, x);
}

static Val
relu(Builder *b, Val x)
{
  return unary(b, OP_RELU, x);
}

/* 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) */
static Val
gelu_new(Builder *b, Val x)
{
  Val half = unary(b, OP_MUL_SCALAR, x);
  Val cubic = binary(b, OP_ADD, x, unary(b, OP_MUL_SCALAR, unary(b, OP_POW, x)));
  Val t = unary(b, OP_TANH, unary(b, OP_MUL_SCALAR, cubic));
  return binary(b, OP_MUL, half, unary(b, OP_ADD_SCALAR, t));
}

/* 0.5 * x * (1 + tanh(x * 0.7978845608 * (1 + 0.044715 * x * x))) */
static Val
gelu_fast(Builder *b, Val x)
{
  Val half = unary(b, OP_MUL_SCALAR, x);
  Val scaled = unary(b, OP_MUL_SCALAR, x);
  Val square = binary(b, OP_MUL, unary(b, OP_MUL_SCALAR, x), x);
  Val inner = binary(b, OP_MUL, scaled, unary(b, OP_ADD_SCALAR, square));
  Val t = unary(b, OP_TANH, inner);
  return binary(b, OP_MUL, half, unary(b, OP_ADD_SCALAR, t));
}

/* x * sigmoid(1.702 * x) */
static Val
quick_gelu(Builder *b, Val x)
{
  return binary(b, OP_MUL, x, unary(b, OP_SIGMOID, unary(b, OP_MUL_SCALAR, x)));
}

static const Activation activations[] = {
    {"silu", "SiLUActivation", silu},
    {"swish", "SiLUActivation", silu},
    {"gelu", "GELUActivation", gelu},
    {"gelu_pytorch_tanh", "GELUTanh", gelu},
    {"gelu_new", "NewGELUActivation", gelu_new},
    {"gelu_fast", "FastGELUActivation", gelu_fast},
    {"quick_gelu", "QuickGELUActivation", quick_gelu},
    {"relu", "ReLU", relu},
};

const Activation *
activation_find(const char *name)
{
  for (gsize i = 0; i < G_N_ELEMENTS(activations); i++)
    if (strcmp(activations[i].name, name) == 0)
      return &activations[i];
  return NULL;
}

const Activation *
activation_read(NetworkSpec *spec, const char *names, const char *fallback)
{
  const char *name = network_spec_string(spec, names, fallback);
  const Activation *activation = activation_find(name);
  if (activation != NULL)
    return activation;
  g_autoptr(GString) known = g_string_new(activations[0].name);
  for (gsize i = 1; i < G_N_ELEMENTS(activations); i++)
    g_string_append_printf(known, ", %s", activations[i].name);
  network_spec_fail(spec, names, "'%.60s' is not one of %s", name, known->str);
  return &activations[0];
}

int
activation_define(Builder *b, const Activation *activation, const char *name)
{
  int module = builder_module(b, name, activation->type);
  builder_module_end(b);
  return module;
}

Val
activation_call(Builder *b, const Activation *activation, int module, Val x)
{
  x = call_module(b, module, x);
  return builder_leave(b, activation->forward(b, x));
}

/* transformers_activation.c - transformers' table of activation functions. */
#include "network/transformers_activation.h"

#include <math.h>
#include <string.h>

static Val
silu(Builder *b, Val x)
{
  return unary(b, OP_SILU, x);
}

static Val
gelu(Builder *b, Val x)
{
  return unary(b, OP_GELU, x);
}

/* F.gelu with its tanh approximation: one kernel too. */
static Val
gelu_tanh(Builder *b, Val x)
{
  return unary_with(b, OP_GELU, x, "tanh", 1);
}

static Val
relu(Builder *b, Val x)
{
  return unary(b, OP_RELU, x);
}

static Val
times(Builder *b, Val x, double number)
{
  return unary_with(b, OP_MUL_SCALAR, x, "value", number);
}

static Val
plus_one(Builder *b, Val x)
{
  return unary_with(b, OP_ADD_SCALAR, x, "value", 1);
}

/* 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))); autocast computes powers in fp32. */
static Val
gelu_new(Builder *b, Val x)
{
  Val half = times(b, x, 0.5);
  Val cube = unary_with(b, OP_POW, autocast_wide(b, x), "power", 3);
  Val cubic = binary(b, OP_ADD, x, times(b, cube, 0.044715));
  Val t = unary(b, OP_TANH, times(b, cubic, sqrt(2 / G_PI)));
  return binary(b, OP_MUL, half, plus_one(b, t));
}

/* 0.5 * x * (1 + tanh(x * 0.7978845608 * (1 + 0.044715 * x * x))) */
static Val
gelu_fast(Builder *b, Val x)
{
  Val half = times(b, x, 0.5);
  Val scaled = times(b, x, 0.7978845608);
  Val square = binary(b, OP_MUL, times(b, x, 0.044715), x);
  Val inner = binary(b, OP_MUL, scaled, plus_one(b, square));
  Val t = unary(b, OP_TANH, inner);
  return binary(b, OP_MUL, half, plus_one(b, t));
}

/* x * sigmoid(1.702 * x) */
static Val
quick_gelu(Builder *b, Val x)
{
  return binary(b, OP_MUL, x, unary(b, OP_SIGMOID, times(b, x, 1.702)));
}

static const Activation activations[] = {
    {"silu", "SiLUActivation", silu},
    {"swish", "SiLUActivation", silu},
    {"gelu", "GELUActivation", gelu},
    {"gelu_pytorch_tanh", "GELUTanh", gelu_tanh},
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

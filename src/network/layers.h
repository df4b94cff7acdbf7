/* layers.h - what models are made of, as PyTorch and its users write them: linear, norms, RoPE,
 * attention, losses.
 *
 * Each function issues the ops of the code it names, with its locals; families call them from their
 * forward(). */
#ifndef HIGHWATER_NETWORK_LAYERS_H
#define HIGHWATER_NETWORK_LAYERS_H

#include "network/builder.h"
#include "spec/network_spec.h"

/* x as shape dims (batch, length, ...): up to five sizes. */
ValueInfo value_shape(DType dtype, int dims, ...);

/* The same shape in another dtype. */
ValueInfo value_like_dtype(ValueInfo info, DType dtype);
/* An op of one operand whose output has this shape and dtype. */
Val shaped(Builder *b, OpId op, Val x, ValueInfo result);
/* x.reshape(shape): a view, or a view of a copy where memory order forbids one.  Of shape only the
 * sizes count. */
Val reshape(Builder *b, Val x, ValueInfo shape);
/* The same with the sizes given. */
Val view(Builder *b, Val x, int dims, ...);
/* x.transpose(1, 2), of a matrix x.t(). */
Val transpose(Builder *b, Val x);
/* x.transpose(-2, -1), and x.transpose(0, 1). */
Val transpose_last(Builder *b, Val x);
Val transpose_first(Builder *b, Val x);
/* x.to(dtype): x itself when it has it. */
Val to(Builder *b, Val x, DType dtype);
/* x.contiguous(): x itself when it is. */
Val contiguous(Builder *b, Val x);
/* What a model gives back, as the training loop gets it: copies where NetworkShape.clones_outputs
 * says so, of tensors with a node; without one the copy goes.  Takes the outputs. */
void receive_outputs(Builder *b, int n, Val *outputs);
/* x[..., first : first + size] of the last dimension: a view. */
Val slice_last(Builder *b, Val x, gint64 first, gint64 size);
/* torch.split(x, [first, rest], dim=-1) as names: views. */
void split_last(Builder *b, Val x, gint64 first, const char *const names[2], Val out[2]);
/* x[..., first::2] of the last dimension: a view. */
Val every_second(Builder *b, Val x, gint64 first);
/* torch.cat((x, y), dim=-1); where dtypes differ, autocast has the narrower one cast. */
Val join_last(Builder *b, Val x, Val y);
/* x.select(dim, index): a view. */
Val select_at(Builder *b, Val x, int dim, gint64 index);
/* x.chunk(n, dim=-1): views of equal width. */
void chunk(Builder *b, Val x, int n, Val *out);
/* torch.split(x, sizes, dim), also in parts of one size, and torch.cat(parts, dim), of any number n
 * of parts of one dtype. */
void split_parts(Builder *b, Val x, int dim, gint64 n, const gint64 *sizes, Val *out);
void split_equally(Builder *b, Val x, int dim, gint64 n, Val *out);
Val join_parts(Builder *b, int dim, gint64 n, const Val *parts);
/* x.expand(sizes): a view; sizes has x's dtype and, of other dimensions, those to broadcast to. */
Val expand(Builder *b, Val x, ValueInfo sizes);
/* x.sum or x.mean (op) over the last dimension, which is kept. */
Val reduce_last(Builder *b, OpId op, Val x);
/* x.pow(2).mean(-1, keepdim=True) */
/* What is added to a variance, whatever the config says; no time or memory depends on it. */
#define NORM_EPSILON 1e-5
/* Frequencies of rotary embeddings fall to one over this, in the same way. */
#define ROTARY_THETA 1e4
Val mean_square(Builder *b, Val x);
/* An op of two operands, or of one. */
Val binary(Builder *b, OpId op, Val x, Val y);
Val unary(Builder *b, OpId op, Val x);
/* An op of one operand and a number, which is called so in what its kernel means (meaning.h). */
Val unary_with(Builder *b, OpId op, Val x, const char *key, double number);
/* F.dropout(x, p): x itself where nothing is dropped. */
Val dropout(Builder *b, double p, Val x);
/* A tensor of this shape that needs no gradient, made from some others (borrowed). */
Val create(Builder *b, const char *what, ValueInfo info);
/* The same where it is said what it is: a formula, with a number unless key is NULL, of a tensor
 * (borrowed; NO_VAL: of none). */
typedef struct {
  const char *formula, *key;
  double number;
} Creation;
Val create_as(Builder *b, const char *what, ValueInfo info, const Creation *how, Val from);

/* The same of a registered buffer, or a part of it. */
Val buffer_value(Builder *b, ValueInfo info);

/* A module's __call__ with one argument, which its forward() sees as a name; builder_leave ends it.
 */
Val call_module(Builder *b, int module, Val x);
Val call_module_by_keyword(Builder *b, int module, Val x);
/* The module that a parameter was defined in. */
int parameter_module(Builder *b, int parameter);

/* Parameters of a linear layer, by index; bias -1: none.  module: the one that is called, when the
 * weight is another's; 0: the weight's own. */
typedef struct {
  int weight, bias, module;
  int adapter; /* the module around the layer that adds an adapter, 0: none */
  int a, b;    /* the adapter's weights */
} Linear;
/* Defines a module `name` with weight [out, in] and, if wanted, bias [out], and an adapter around
 * it if the network's shape says so. */
Linear define_linear(Builder *b, const char *name, gint64 out, gint64 in, gboolean bias);
/* The same with weight [in, out]: transformers' Conv1D. */
Linear define_conv1d(Builder *b, const char *name, gint64 out, gint64 in);
/* Defines a norm with a gain and, if wanted, a bias; returns the gain's index (the bias is the
 * next). */
int define_norm(Builder *b, const char *name, const char *type, gint64 width, gboolean bias);

/* F.linear(x, weight, bias) with x, weight and bias as they are, bias NO_VAL: none. */
Val linear_by(Builder *b, Val x, Val weight, Val bias);
/* nn.Linear as a module call.  Under autocast operands are cast first: bias, weight, input. */
Val linear(Builder *b, Val x, Linear parameters);
/* The same, of a layer without bias and adapter, whose product selective checkpointing does not
 * count. */
Val linear_uncounted(Builder *b, Val x, Linear parameters);
/* x @ weight.T, and then the bias is added: transformers' FalconLinear, also of a linear layer.
 * Under autocast the transposed weight is cast at each use. */
Val linear_apart(Builder *b, Val x, Linear parameters);
/* transformers' Conv1D: addmm with an untransposed weight. */
Val conv1d(Builder *b, Val x, Linear parameters);
Val embedding(Builder *b, int weight, Val indices);
/* nn.Conv1d or Conv2d: weight [out, in, kernel...], bias -1: none. */
typedef struct {
  int weight, bias;
  gint64 kernel, stride, padding; /* the same in every direction */
  gboolean transposed;            /* what follows sees the output with channels inside */
} Convolution;
/* Defines it with `directions` of them. */
Convolution define_convolution(Builder *b, const char *name, gint64 out, gint64 in, int directions,
                               const Convolution *sizes);
/* x [batch, in, positions...]. */
Val convolution(Builder *b, Val x, const Convolution *c);
/* gain: its parameter; the bias is the next one. */
Val layer_norm(Builder *b, Val x, int gain);
/* The same without a bias. */
Val layer_norm_unbiased(Builder *b, Val x, int gain);
/* RMSNorm as a module call, in the implementation's way. */
typedef enum { NORM_FUSED, NORM_COMPOSITE } NormCode;
Val rms_norm(Builder *b, Val x, int weight, NormCode code);

/* x [batch, length, heads, head_dim] times a table of complex numbers (torchtitan's
 * apply_rotary_emb). */
Val rope_complex(Builder *b, Val x, Val table);
/* x * cos + cat(-b, a) * sin, with fp32 tables that are cast to x's dtype at each call. */
Val rope_half(Builder *b, Val x, Val cos, Val sin);
/* torch.cat((-b, a), -1) of the halves a, b of x. */
Val rotate_half(Builder *b, Val x);
/* (x * cos) + (rotate(x) * sin) */
Val rope_rotated(Builder *b, Val x, Val cos, Val sin, Val (*rotate)(Builder *, Val));
/* Queries and keys in one function, with cosines and sines in one table [length, 2 head_dim] (Qwen3
 * in torchtitan). */
void rope_joined(Builder *b, Val qk[2], Val table);
/* view_as_complex(x.float()) of pairs of neighbours, and, in fp32, view_as_real(x) as `shape`. */
Val complex_pairs(Builder *b, Val x);
Val real_pairs(Builder *b, Val x, ValueInfo shape);
/* Heads repeated so that every query head has its own keys: x is [batch, length, kv, head_dim], or
 * [batch, kv, length, head_dim] with heads_second. */
Val repeat_heads(Builder *b, Val x, gint64 heads, gboolean heads_second);
/* The same as Tensor.repeat_interleave does it, with [batch, kv, length, head_dim]: always a copy.
 */
Val interleave_heads(Builder *b, Val x, gint64 heads);

/* [batch, length, width] as [batch, length, heads, head_dim], and back. */
Val split_heads(Builder *b, Val x, gint64 heads, gint64 head_dim);
Val merge_heads(Builder *b, Val x);

/* F.scaled_dot_product_attention(q, k, v, is_causal=True): operands [batch, heads, length,
 * head_dim]. */
typedef struct {
  AttentionCode code; /* as asked for; what runs follows from dtypes and heads */
  gint64 heads, kv_heads;
  double dropout; /* of its probabilities */
  Val mask;       /* explicit mask, or NO_VAL */
  gint64 window;  /* so many positions are seen, if it is not 0: flash-attn's window_size */
} AttentionCall;
Val attention(Builder *b, Val q, Val k, Val v, const AttentionCall *call);
/* The same between any two sequences, [batch, heads, length, head_dim] each: queries see all keys,
 * or those before them.  bias is added to the scores (borrowed); NO_VAL: none. */
typedef struct {
  AttentionCode code;
  gint64 heads;
  gboolean causal;
  double dropout; /* of its probabilities */
  Val bias;
} AttentionBetween;
Val attention_between(Builder *b, Val q, Val k, Val v, const AttentionBetween *call);
/* Under autocast, an operand of an op that runs in a 16-bit dtype; the last operand is cast first.
 */
Val autocast_operand(Builder *b, Val x);
/* Under autocast, an operand of an op that runs in fp32 (softmax, norms, losses). */
Val autocast_wide(Builder *b, Val x);
/* at::matmul of [batch, heads, n, k] and [batch, heads, k, m] (borrowed), or one head of the second
 * for all of the first: operands whose memory has batch and heads apart are copied.  what: name of
 * the product, or NULL. */
Val batched_matmul(Builder *b, Val x, Val y, const char *what);
/* Which kernel that is, for queries like q on a device. */
AttentionCode attention_choice(const AttentionCall *call, const ValueInfo *q,
                               int compute_capability);

/* F.cross_entropy(logits, labels): logits [tokens, vocabulary]. */
Val cross_entropy(Builder *b, Val logits, Val labels);
/* The same summed up and divided by a number of items, a tensor (transformers,
 * fixed_cross_entropy). */
Val cross_entropy_of_items(Builder *b, Val logits, Val labels, Val items);
/* F.cross_entropy(logits.float(), labels) as compiled code computes it: no fp32 copies. */
Val compiled_cross_entropy(Builder *b, Val logits, Val labels);
/* flash_attn.losses.cross_entropy.CrossEntropyLoss: one kernel, and the mean of its losses. */
Val fused_cross_entropy(Builder *b, Val logits, Val labels);

#endif

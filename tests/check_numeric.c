/* check_numeric.c - the numeric kernels: derivatives against finite differences, losses and
 * optimizers against arithmetic, dtypes, random numbers, collectives.  What recipes pass to them is
 * checked where whole networks are (check_verification). */
#include <math.h>
#include <string.h>

#include "numeric/numeric_collective.h"
#include "numeric/numeric_kernel.h"
#include "numeric/numeric_random.h"
#include "program/meaning.h"
#include "tap_main.h"

/* ---- a kernel on small tensors ---- */

enum { INPUTS = 5, OUTPUTS = 3, MOST_OPERANDS = 12 };

/* Sizes, ended by 0; one 0: a scalar. */
typedef struct {
  gint64 size[5];
} Shape;

static NumericTensor
new_tensor(Shape shape, guint64 key, gboolean index)
{
  NumericTensor t = {.dtype = index ? DTYPE_INT64 : DTYPE_FP32, .elements = 1};
  for (; t.dims < 5 && shape.size[t.dims] > 0; t.dims++)
    t.elements *= t.shape[t.dims] = shape.size[t.dims];
  t.data = g_new(double, t.elements);
  for (gint64 i = 0; i < t.elements; i++)
    t.data[i] = index ? (double) numeric_choice(key, (guint64) i, 4)
                      : 0.3 + numeric_normal(key, (guint64) i);
  return t;
}

/* Forward and backward of an op.  Operands as in recipes: i inputs, o outputs, g gradients of
 * outputs, d of inputs; '>' is written. */
typedef struct {
  const char *name;
  const char *forward, *operands;
  const char *backward, *backward_operands;
  int inputs, outputs;
  Shape input[INPUTS], output[OUTPUTS];
  const char *wanted; /* inputs with a gradient: "02" */
} Case;

typedef struct {
  Program *program;
  NumericTensor in[INPUTS], out[OUTPUTS], g[OUTPUTS], d[INPUTS];
} Bench;

static NumericTensor *
tensor_of(Bench *b, char letter, int i)
{
  switch (letter) {
  case 'i':
    return &b->in[i];
  case 'o':
    return &b->out[i];
  case 'g':
    return &b->g[i];
  default:
    return &b->d[i];
  }
}

static void
run(Bench *b, const char *meaning, const char *operands)
{
  NumericTensor operand[MOST_OPERANDS];
  NumericTensor *of[MOST_OPERANDS];
  Kernel kernel = {.launches = 1};
  GError *error = NULL;
  g_ptr_array_add(b->program->names, g_strdup(meaning));
  kernel.name = (gint32) b->program->names->len - 1;
  kernel.meaning = kernel.name + 1;
  KernelCall call = {.program = b->program,
                     .kernel = &kernel,
                     .place = {.step = 1, .update = 1, .samples = 1, .module = -1},
                     .operand = operand};
  for (const char *p = operands; *p != '\0'; p++) {
    if (*p == ' ')
      continue;
    gboolean written = *p == '>' || *p == '+';
    Role role = *p == '+' ? ROLE_ACCUMULATE : written ? ROLE_WRITE : ROLE_READ;
    p += written;
    of[call.operands] = tensor_of(b, p[0], p[1] - '0');
    operand[call.operands] = *of[call.operands];
    operand[call.operands++].role = role;
    p++;
  }
  gboolean ok = numeric_kernel_run(&call, &error);
  ck_assert_msg(ok, "%s: %s", meaning, ok ? "" : error->message);
}

static void
bench_init(Bench *b, const Case *c)
{
  *b = (Bench){.program = program_new()};
  for (int i = 0; i < c->inputs; i++) {
    gboolean index = strstr(c->wanted, "x") != NULL && i == c->inputs - 1;
    b->in[i] = new_tensor(c->input[i], 100 + (guint64) i, index);
    b->d[i] = new_tensor(c->input[i], 300, FALSE);
  }
  for (int i = 0; i < c->outputs; i++) {
    b->out[i] = new_tensor(c->output[i], 400, FALSE);
    b->g[i] = new_tensor(c->output[i], 200 + (guint64) i, FALSE);
  }
}

static void
bench_clear(Bench *b)
{
  for (int i = 0; i < INPUTS; i++) {
    g_free(b->in[i].data);
    g_free(b->d[i].data);
  }
  for (int i = 0; i < OUTPUTS; i++) {
    g_free(b->out[i].data);
    g_free(b->g[i].data);
  }
  program_free(b->program);
}

/* The first output's product with its gradient. */
static double
value_of(Bench *b, const Case *c)
{
  double sum = 0;
  run(b, c->forward, c->operands);
  for (gint64 i = 0; i < b->out[0].elements; i++)
    sum += b->out[0].data[i] * b->g[0].data[i];
  return sum;
}

#define S(...)                                                                                     \
  {                                                                                                \
    {                                                                                              \
      __VA_ARGS__                                                                                  \
    }                                                                                              \
  }

#define UNARY(text, numbers, saved)                                                                \
  {                                                                                                \
    .name = text, .forward = text numbers, .operands = "i0 >o0",                                   \
    .backward = text "_backward" numbers, .backward_operands = "g0 " saved " >d0", .inputs = 1,    \
    .outputs = 1, .input = {S(3, 4)}, .output = {S(3, 4)}, .wanted = "0"                           \
  }

/* Those whose derivative is the same formula. */
#define LINEAR(text, numbers)                                                                      \
  {                                                                                                \
    .name = text, .forward = text numbers, .operands = "i0 >o0", .backward = text numbers,         \
    .backward_operands = "g0 >d0", .inputs = 1, .outputs = 1, .input = {S(3, 4)},                  \
    .output = {S(3, 4)}, .wanted = "0"                                                             \
  }

static const Case cases[] = {
    UNARY("silu", "", "i0"),
    UNARY("gelu", "", "i0"),
    UNARY("tanh", "", "o0"),
    UNARY("pow", "", "i0"),
    UNARY("pow", " power=3", "i0"),
    UNARY("softmax", "", "o0"),
    UNARY("log_softmax", "", "o0"),
    LINEAR("neg", ""),
    LINEAR("mul_scalar", " value=0.7"),
    LINEAR("div_scalar", " value=3"),
    LINEAR("to_copy", ""),
    {"rsqrt", "rsqrt", "i0 >o0", "rsqrt_backward", "g0 o0 >d0", 1, 1, {S(3)}, {S(3)}, "+0"},
    {"mul, first", "mul", "i0 i1 >o0", "mul", "g0 i1 >d0", 2, 1, {S(2, 3), S(3)}, {S(2, 3)}, "0"},
    {"mul_complex",
     "mul_complex",
     "i0 i1 >o0",
     "mul_conjugate",
     "g0 i1 >d0",
     2,
     1,
     {S(2, 3, 2, 2, 2), S(3, 2, 2)},
     {S(2, 3, 2, 2, 2)},
     "0"},
    {"causal softmax",
     "causal_softmax",
     "i0 >o0",
     "softmax_backward",
     "g0 o0 >d0",
     1,
     1,
     {S(2, 3, 3)},
     {S(2, 3, 3)},
     "0"},
    {"mean", "mean", "i0 >o0", "mean_backward", "g0 >d0", 1, 1, {S(3, 4)}, {S(3, 1)}, "0"},
    {"mm, first factor",
     "mm",
     "i0 i1 >o0",
     "mm_grad_first",
     "g0 i1 >d0",
     2,
     1,
     {S(3, 4), S(4, 2)},
     {S(3, 2)},
     "0"},
    {"mm, second factor",
     "mm",
     "i0 i1 >o0",
     "mm_grad_second",
     "g0 i0 >d1",
     2,
     1,
     {S(3, 4), S(4, 2)},
     {S(3, 2)},
     "1"},
    {"bmm, first factor",
     "bmm",
     "i0 i1 >o0",
     "mm_grad_first",
     "g0 i1 >d0",
     2,
     1,
     {S(2, 3, 4), S(2, 4, 2)},
     {S(2, 3, 2)},
     "0"},
    {"bmm, second factor",
     "bmm",
     "i0 i1 >o0",
     "mm_grad_second",
     "g0 i0 >d1",
     2,
     1,
     {S(2, 3, 4), S(2, 4, 2)},
     {S(2, 3, 2)},
     "1"},
    {"addmm, factors",
     "addmm",
     "i0 i1 i2 >o0",
     "mm_grad_second",
     "g0 i1 >d2",
     3,
     1,
     {S(2), S(3, 4), S(4, 2)},
     {S(3, 2)},
     "2"},
    {"addmm, bias",
     "addmm",
     "i0 i1 i2 >o0",
     "sum",
     "g0 >d0",
     3,
     1,
     {S(2), S(3, 4), S(4, 2)},
     {S(3, 2)},
     "0"},
    {"linear layer, weight",
     "mm_grad_first",
     "i0 i1 >o0",
     "mm_grad_weight",
     "g0 i0 >d1",
     2,
     1,
     {S(3, 4), S(2, 4)},
     {S(3, 2)},
     "1"},
    {"linear layer, input",
     "mm_grad_first",
     "i0 i1 >o0",
     "mm",
     "g0 i1 >d0",
     2,
     1,
     {S(3, 4), S(2, 4)},
     {S(3, 2)},
     "0"},
    {"rms norm",
     "fused_rms_norm",
     "i0 i1 >o0 >o1",
     "rms_norm_backward",
     "g0 i0 i1 o1 >d0 >d1",
     2,
     2,
     {S(3, 4), S(4)},
     {S(3, 4), S(3)},
     "01"},
    {"layer norm",
     "native_layer_norm",
     "i0 i1 i2 >o0 >o1 >o2",
     "layer_norm_backward",
     "g0 i0 i1 o1 o2 >d0 >d1 >d2",
     3,
     3,
     {S(3, 4), S(4), S(4)},
     {S(3, 4), S(3), S(3)},
     "012"},
    {"flash attention",
     "flash_attention",
     "i0 i1 i2 >o0 >o1",
     "flash_attention_backward",
     "g0 i0 i1 i2 o0 o1 >d0 >d1 >d2",
     3,
     2,
     {S(1, 4, 3, 2), S(1, 2, 3, 2), S(1, 2, 3, 2)},
     {S(1, 4, 3, 2), S(12)},
     "012"},
    {"efficient attention with a bias",
     "efficient_attention scale=0.9",
     "i0 i1 i2 i3 >o0 >o1",
     "efficient_attention_backward scale=0.9",
     "g0 i0 i1 i2 i3 o0 o1 >d0 >d1 >d2",
     4,
     2,
     {S(2, 2, 3, 2), S(2, 2, 3, 2), S(2, 2, 3, 2), S(2, 1, 3, 3)},
     {S(2, 2, 3, 2), S(12)},
     "012"},
    {"embedding",
     "embedding",
     "i0 i1 >o0",
     "embedding_dense_backward",
     "g0 i1 >d0",
     2,
     1,
     {S(4, 3), S(2, 2)},
     {S(2, 2, 3)},
     "0x"},
    {"fused cross-entropy",
     "fused_cross_entropy",
     "i0 i0 i1 >o0 >o1",
     "fused_cross_entropy_backward",
     "g0 i0 o1 i1 >d0",
     2,
     2,
     {S(3, 4), S(3)},
     {S(3), S(3)},
     "0x"},
    {"nll loss",
     "nll_loss",
     "i0 i1 >o0 >o1",
     "nll_loss_backward",
     "g0 i1 o1 >d0",
     2,
     2,
     {S(3, 4), S(3)},
     {S(0), S(0)},
     "0x"},
    {"dropout",
     "native_dropout p=0.4",
     "i0 >o0 >o1",
     "native_dropout_backward p=0.4",
     "g0 o1 >d0",
     1,
     2,
     {S(3, 4)},
     {S(3, 4), S(3, 4)},
     "0"},
    {"pad", "constant_pad_nd", "i0 >o0", "narrow", "g0 >d0", 1, 1, {S(2, 3)}, {S(2, 5)}, "0"},
};

/* Central differences err by h^2 times third derivatives, of the order of 1e-10 here. */
START_TEST(backward_is_the_derivative_of_forward)
{
  const Case *c = &cases[_i];
  Bench b;
  bench_init(&b, c);
  for (gint64 i = 0; c->wanted[0] == '+' && i < b.in[0].elements; i++)
    b.in[0].data[i] = 0.5 + fabs(b.in[0].data[i]);
  run(&b, c->forward, c->operands);
  if (c->backward_operands[0] != '\0')
    run(&b, strcmp(c->name, "softmax") == 0 ? "softmax_backward" : c->backward,
        c->backward_operands);
  for (const char *w = c->wanted; *w != '\0'; w++) {
    if (!g_ascii_isdigit(*w))
      continue;
    NumericTensor *x = &b.in[*w - '0'];
    const NumericTensor *d = &b.d[*w - '0'];
    for (gint64 i = 0; i < x->elements; i++) {
      const double h = 1e-5;
      double at = x->data[i];
      x->data[i] = at + h;
      double above = value_of(&b, c);
      x->data[i] = at - h;
      double below = value_of(&b, c);
      x->data[i] = at;
      double slope = (above - below) / (2 * h);
      ck_assert_msg(fabs(slope - d->data[i]) <= 2e-8 * (1 + fabs(slope)),
                    "%s: gradient %c[%d] is %.12g, by differences %.12g", c->name, *w, (int) i,
                    d->data[i], slope);
    }
  }
  bench_clear(&b);
}
END_TEST

/* ---- what differences do not show ---- */

static const Case two_vectors = {
    .inputs = 4, .outputs = 1, .input = {S(2), S(2), S(2), S(2)}, .output = {S(4)}, .wanted = ""};

/* [2, 1, 2] and [2, 2, 2] go behind the first index of [2, 4, 2]. */
START_TEST(parts_go_behind_what_is_there)
{
  static const Case c = {.inputs = 2,
                         .outputs = 1,
                         .input = {S(2, 1, 2), S(2, 2, 2)},
                         .output = {S(2, 4, 2)},
                         .wanted = ""};
  static const double expected[16] = {-1, -1, 0, 1, 4, 5, 6, 7, -1, -1, 2, 3, 8, 9, 10, 11};
  Bench b;
  bench_init(&b, &c);
  for (int i = 0, next = 0; i < c.inputs; i++)
    for (gint64 k = 0; k < b.in[i].elements; k++)
      b.in[i].data[k] = next++;
  for (gint64 k = 0; k < b.out[0].elements; k++)
    b.out[0].data[k] = -1;
  run(&b, "cat dim=1 first=1", "i0 i1 +o0");
  for (gint64 k = 0; k < b.out[0].elements; k++)
    ck_assert_double_eq(b.out[0].data[k], expected[k]);
  bench_clear(&b);
}
END_TEST

/* torch/optim/adam.py by hand: first step, p = 1, g = 2: p *= 1 - 0.1 * 0.5; m = 0.1 * 2 = 0.2, v =
 * 0.01 * 4 = 0.04; m / (1 - 0.9) = 2, sqrt(v) / sqrt(1 - 0.99) = 2; p -= 0.1 * 2 / 2. */
START_TEST(a_first_step_of_adamw_moves_by_the_learning_rate)
{
  Bench b;
  bench_init(&b, &two_vectors);
  for (int i = 0; i < 2; i++) {
    b.in[0].data[i] = i == 0 ? 2 : -3;
    b.in[1].data[i] = 1;
    b.in[2].data[i] = b.in[3].data[i] = 0;
  }
  run(&b, "adam lr=0.1 beta1=0.9 beta2=0.99 eps=0 weight_decay=0.5", "i0 +i1 +i2 +i3");
  ck_assert_double_eq_tol(b.in[1].data[0], 0.95 - 0.1, 1e-12);
  ck_assert_double_eq_tol(b.in[1].data[1], 0.95 + 0.1, 1e-12);
  ck_assert_double_eq_tol(b.in[2].data[0], 0.2, 1e-12);
  ck_assert_double_eq_tol(b.in[3].data[0], 0.04, 1e-12);
  bench_clear(&b);
}
END_TEST

START_TEST(sgd_adds_momentum)
{
  Bench b;
  bench_init(&b, &two_vectors);
  b.in[0].data[0] = 2, b.in[1].data[0] = 1, b.in[2].data[0] = 4;
  run(&b, "sgd lr=0.1 momentum=0.5", "i0 +i1 +i2");
  ck_assert_double_eq_tol(b.in[2].data[0], 4, 1e-12);
  ck_assert_double_eq_tol(b.in[1].data[0], 0.6, 1e-12);
  bench_clear(&b);
}
END_TEST

static const Case four_by_four = {
    .inputs = 1, .outputs = 1, .input = {S(4, 4)}, .output = {S(4, 4)}, .wanted = ""};

/* masking_utils.py: key <= query, and key > query - window. */
START_TEST(a_query_sees_a_window_of_keys)
{
  static const double window_of_two[] = {1, 0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 1, 1};
  Bench b;
  bench_init(&b, &four_by_four);
  run(&b, "seen window=2", ">o0");
  for (int i = 0; i < 16; i++)
    ck_assert_double_eq(b.out[0].data[i], window_of_two[i]);
  run(&b, "seen", ">o0");
  ck_assert_double_eq(b.out[0].data[12], 1);
  ck_assert_double_eq(b.out[0].data[3], 0);
  run(&b, "seen window=2", ">i0");
  run(&b, "lowest_unless", "i0 >o0");
  ck_assert_double_eq(b.out[0].data[0], 0);
  ck_assert_double_eq(b.out[0].data[8], -0x1.FFFFFEp127);
  run(&b, "infinite_unless", "i0 >o0");
  ck_assert_double_eq(b.out[0].data[1], -INFINITY);
  bench_clear(&b);
}
END_TEST

static const Case two_rows = {
    .inputs = 2, .outputs = 2, .input = {S(2, 2), S(2)}, .output = {S(0), S(0)}, .wanted = "x"};

/* torch.nn.functional.nll_loss: ignore_index is -100; the mean is over what counts. */
START_TEST(a_target_of_minus_100_does_not_count)
{
  Bench b;
  bench_init(&b, &two_rows);
  for (int i = 0; i < 4; i++)
    b.in[0].data[i] = -1 - i;
  b.in[1].data[0] = 1;
  b.in[1].data[1] = -100;
  run(&b, "nll_loss", "i0 i1 >o0 >o1");
  ck_assert_double_eq(b.out[0].data[0], 2);
  ck_assert_double_eq(b.out[1].data[0], 1);
  b.g[0].data[0] = 3;
  run(&b, "nll_loss_backward", "g0 i1 o1 >d0");
  ck_assert_double_eq(b.d[0].data[1], -3);
  ck_assert_double_eq(b.d[0].data[2], 0);
  ck_assert_double_eq(b.d[0].data[3], 0);
  bench_clear(&b);
}
END_TEST

static const Case two_by_three = {
    .inputs = 1, .outputs = 1, .input = {S(2, 3)}, .output = {S(2, 4)}, .wanted = ""};

START_TEST(labels_are_padded_with_what_is_said)
{
  Bench b;
  bench_init(&b, &two_by_three);
  run(&b, "constant_pad_nd value=-100", "i0 >o0");
  ck_assert_double_eq(b.out[0].data[3], -100);
  ck_assert_double_eq(b.out[0].data[4], b.in[0].data[3]);
  run(&b, "constant_pad_nd", "i0 >o0");
  ck_assert_double_eq(b.out[0].data[7], 0);
  bench_clear(&b);
}
END_TEST

START_TEST(memory_that_nobody_wrote_is_no_index)
{
  Bench b;
  bench_init(&b, &cases[G_N_ELEMENTS(cases) - 1]);
  NumericTensor operand[] = {new_tensor((Shape) S(4, 3), 1, FALSE),
                             new_tensor((Shape) S(2), 1, TRUE),
                             new_tensor((Shape) S(2, 3), 1, FALSE)};
  operand[1].data[1] = NAN;
  operand[2].role = ROLE_WRITE;
  g_ptr_array_add(b.program->names, g_strdup("embedding"));
  Kernel kernel = {.launches = 1, .name = (gint32) b.program->names->len - 1};
  KernelCall call = {.program = b.program, .kernel = &kernel, .operand = operand, .operands = 3};
  g_autoptr(GError) error = NULL;
  ck_assert(!numeric_kernel_run(&call, &error));
  ck_assert_str_eq(error->message, "kernel embedding: index 1 is nan, not one of 0..3");
  for (int i = 0; i < 3; i++)
    g_free(operand[i].data);
  bench_clear(&b);
}
END_TEST

START_TEST(an_unknown_kernel_is_named)
{
  g_autoptr(Program) program = program_new();
  g_ptr_array_add(program->names, g_strdup("triton_fused_17"));
  Kernel kernel = {.launches = 1};
  KernelCall call = {.program = program, .kernel = &kernel};
  g_autoptr(GError) error = NULL;
  ck_assert(!numeric_kernel_run(&call, &error));
  ck_assert_str_eq(error->message, "kernel triton_fused_17: nobody has said what it computes");
}
END_TEST

/* IEEE 754: bf16 has 8 bits of significand, fp16 has 11; ties go to even. */
START_TEST(numbers_are_rounded_to_the_nearest_of_their_dtype)
{
  ck_assert_double_eq(numeric_round(1 + 0x1p-8, DTYPE_BF16), 1);
  ck_assert_double_eq(numeric_round(1 + 0x1.8p-7, DTYPE_BF16), 1 + 0x1p-6);
  ck_assert_double_eq(numeric_round(1 + 0x1p-11, DTYPE_FP16), 1);
  ck_assert_double_eq(numeric_round(0x1p-25, DTYPE_FP16), 0);
  ck_assert_double_eq(numeric_round(0x1.8p-24, DTYPE_FP16), 0x1p-23);
  ck_assert_double_eq(numeric_round(1 + 0x1p-24, DTYPE_FP32), 1);
  ck_assert_double_eq(numeric_round(7, DTYPE_INT64), 7);
  ck_assert_double_eq(numeric_round(65519, DTYPE_FP16), 65504);
  ck_assert_double_eq(numeric_round(65520, DTYPE_FP16), INFINITY);
}
END_TEST

/* A transposed view with an offset is read and written where it lies. */
START_TEST(a_view_is_read_in_its_own_order)
{
  double slots[64];
  for (int i = 0; i < 64; i++)
    slots[i] = i;
  const Layout layout = {.dtype = DTYPE_BF16, .dims = 2, .shape = {2, 3}, .stride = {1, 4}};
  const Tensor view = {.offset = 5};
  NumericTensor t;
  numeric_tensor_load(&t, slots, &view, &layout);
  const double expected[] = {10, 18, 26, 12, 20, 28};
  for (int i = 0; i < 6; i++)
    ck_assert_double_eq(t.data[i], expected[i]);
  t.data[4] = -1;
  numeric_tensor_store(&t, slots, &view, &layout, FALSE);
  ck_assert_double_eq(slots[20], -1);
  ck_assert_double_eq(slots[19], 19);
  numeric_tensor_clear(&t);
}
END_TEST

START_TEST(random_numbers_depend_on_their_place_alone)
{
  guint64 a = numeric_key(1, "wq"), b = numeric_key(1, "wk");
  double sum = 0, squares = 0;
  for (guint64 i = 0; i < 20000; i++) {
    double x = numeric_normal(a, i);
    sum += x;
    squares += x * x;
  }
  ck_assert_double_eq(numeric_uniform(a, 7), numeric_uniform(numeric_key(1, "wq"), 7));
  ck_assert(numeric_uniform(a, 7) != numeric_uniform(b, 7));
  ck_assert_double_eq_tol(sum / 20000, 0, 0.03); /* 4 standard deviations */
  ck_assert_double_eq_tol(squares / 20000, 1, 0.05);
}
END_TEST

/* ---- collectives ---- */

static CollectiveMember
member(NumericTensor *operand, double first, gint64 elements, Role role)
{
  *operand = (NumericTensor){.role = role,
                             .dims = 1,
                             .shape = {elements},
                             .elements = elements,
                             .data = g_new(double, elements)};
  for (gint64 i = 0; i < elements; i++)
    operand->data[i] = first + (double) i;
  return (CollectiveMember){operand, 1};
}

START_TEST(an_average_divides_by_the_members)
{
  g_autoptr(Program) program = program_new();
  g_ptr_array_add(program->names, g_strdup("avg"));
  NumericTensor t[2];
  CollectiveMember members[] = {member(&t[0], 1, 2, ROLE_ACCUMULATE),
                                member(&t[1], 5, 2, ROLE_ACCUMULATE)};
  Collective all_reduce = {.kind = COLLECTIVE_ALL_REDUCE, .meaning = 1};
  ck_assert_ptr_null(
      numeric_collective(&(CollectiveCall){program, &all_reduce, FALSE}, members, 2));
  for (int i = 0; i < 2; i++) {
    ck_assert_double_eq(t[i].data[0], 3);
    ck_assert_double_eq(t[i].data[1], 4);
    g_free(t[i].data);
  }
}
END_TEST

START_TEST(a_gather_in_place_takes_each_members_own_part)
{
  g_autoptr(Program) program = program_new();
  NumericTensor t[2];
  CollectiveMember members[] = {member(&t[0], 1, 4, ROLE_ACCUMULATE),
                                member(&t[1], 5, 4, ROLE_ACCUMULATE)};
  Collective gather = {.kind = COLLECTIVE_ALL_GATHER};
  ck_assert_ptr_null(numeric_collective(&(CollectiveCall){program, &gather, FALSE}, members, 2));
  const double expected[] = {1, 2, 7, 8};
  for (int i = 0; i < 2; i++) {
    for (int k = 0; k < 4; k++)
      ck_assert_double_eq(t[i].data[k], expected[k]);
    g_free(t[i].data);
  }
}
END_TEST

/* bf16 has 8 bits of significand.  Part k of three is begun by member k + 1 and ended by member k:
 * 2^-8 + 2^-8 = 2^-7, and 1 more is 1 + 2^-7; but 1 + 2^-8 is 1 again. */
START_TEST(a_ring_rounds_each_addition)
{
  g_autoptr(Program) program = program_new();
  NumericTensor t[3];
  CollectiveMember members[3];
  for (int i = 0; i < 3; i++) {
    members[i] = member(&t[i], 0, 3, ROLE_ACCUMULATE);
    t[i].dtype = DTYPE_BF16;
    for (int k = 0; k < 3; k++)
      t[i].data[k] = i == 0 ? 1 : 0x1p-8;
  }
  Collective all_reduce = {.kind = COLLECTIVE_ALL_REDUCE};
  ck_assert_ptr_null(numeric_collective(&(CollectiveCall){program, &all_reduce, TRUE}, members, 3));
  const double expected[] = {1 + 0x1p-7, 1, 1};
  for (int i = 0; i < 3; i++) {
    for (int k = 0; k < 3; k++)
      ck_assert_double_eq(t[i].data[k], expected[k]);
    g_free(t[i].data);
  }
}
END_TEST

START_TEST(neighbours_of_a_communicator_stand_a_stride_apart)
{
  const Communicator replicate = {.ranks = 2, .stride = 4};
  ck_assert_int_eq(numeric_place_in(&replicate, 6), 1);
  ck_assert_int_eq(numeric_rank_at(&replicate, 6, 0), 2);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("numeric");
  TCase *derivatives = tcase_create("derivatives"), *rest = tcase_create("kernels");
  tcase_add_loop_test(derivatives, backward_is_the_derivative_of_forward, 0,
                      (int) G_N_ELEMENTS(cases));
  tcase_add_test(rest, parts_go_behind_what_is_there);
  tcase_add_test(rest, a_first_step_of_adamw_moves_by_the_learning_rate);
  tcase_add_test(rest, sgd_adds_momentum);
  tcase_add_test(rest, a_query_sees_a_window_of_keys);
  tcase_add_test(rest, a_target_of_minus_100_does_not_count);
  tcase_add_test(rest, labels_are_padded_with_what_is_said);
  tcase_add_test(rest, memory_that_nobody_wrote_is_no_index);
  tcase_add_test(rest, an_unknown_kernel_is_named);
  tcase_add_test(rest, numbers_are_rounded_to_the_nearest_of_their_dtype);
  tcase_add_test(rest, a_view_is_read_in_its_own_order);
  tcase_add_test(rest, random_numbers_depend_on_their_place_alone);
  tcase_add_test(rest, an_average_divides_by_the_members);
  tcase_add_test(rest, a_gather_in_place_takes_each_members_own_part);
  tcase_add_test(rest, a_ring_rounds_each_addition);
  tcase_add_test(rest, neighbours_of_a_communicator_stand_a_stride_apart);
  suite_add_tcase(suite, derivatives);
  suite_add_tcase(suite, rest);
  return suite;
}

/* check_op_numbers.c - walks the table of ops: each op that has a derivative, as the cases of
 * op_cases.h call it, is the loss of a network, which is lowered and executed on numbers; its
 * gradients are finite differences of that loss.  Ops of which nobody has said what they compute
 * are listed, and refused by name. */
#include <math.h>
#include <string.h>

#include "lower/lower.h"
#include "network/layers.h"
#include "network/strides.h"
#include "network/transformers_root.h"
#include "numeric/numeric_random.h"
#include "numeric/numeric_run.h"
#include "op_cases.h"
#include "simulation.h"
#include "tap_main.h"

/* A number that a meaning lacks in a case of op_cases.h, where only sizes count. */
#define SOME_NUMBER 0.7

/* Operands of more elements than this are not computed with. */
enum { MOST_ELEMENTS = 20000, CHECKED_ELEMENTS = 4, FEWEST_FACTORS = 256 };

/* ---- a network whose loss is an op's result ---- */

typedef int (*Forward)(Builder *b, gconstpointer model, const Val *inputs, Val *results);

typedef struct {
  const Case *test;
  Forward forward; /* NULL: the op and nothing else */
  OpAttributes at;
  int parameter[OP_INPUTS];
  ValueInfo inputs[2]; /* factors of the result's elements; the one operand without a gradient */
} Model;

/* What autograd sees are fp32 tensors, row-major. */
static ValueInfo
plain(ValueInfo info)
{
  if (info.dtype == DTYPE_BF16)
    info.dtype = DTYPE_FP32;
  info.requires_grad = FALSE;
  return info;
}

static ValueInfo
row_major(ValueInfo info)
{
  info = plain(info);
  value_set_contiguous(&info);
  return info;
}

/* An operand that wants a gradient: a parameter, of which two elements make a complex number. */
static Val
parameter_value(Builder *b, const Model *m, int i)
{
  ValueInfo info = row_major(m->test->in[i]);
  Val value = builder_weight(b, m->parameter[i]);
  ValueInfo whole = builder_info(b, value);
  if (whole.dims > 0) /* its gradient is row-major, as an optimizer wants it */
    value = slice_last(b, value, 0, whole.shape[whole.dims - 1]);
  return info.dtype == DTYPE_COMPLEX64 ? shaped(b, OP_VIEW_AS_COMPLEX, value, info) : value;
}

/* sum(result * factors), of one result after the other. */
static Val
weighted_sum(Builder *b, Val result, Val factors, gint64 *first)
{
  ValueInfo info = builder_info(b, result);
  if (info.dtype == DTYPE_COMPLEX64) {
    ValueInfo pairs = info;
    pairs.dtype = DTYPE_FP32;
    pairs.shape[pairs.dims++] = 2;
    value_set_contiguous(&pairs);
    result = shaped(b, OP_VIEW_AS_REAL, result, pairs);
  }
  gint64 n = value_elements(&info) * (info.dtype == DTYPE_COMPLEX64 ? 2 : 1);
  Val flat = view(b, result, 1, n);
  Val product = binary(b, OP_MUL, flat, slice_last(b, factors, *first, n));
  *first += n;
  return shaped(b, OP_SUM, product, value_shape(DTYPE_FP32, 0));
}

static int
forward(Builder *b, gconstpointer model, const Val *inputs, Val *results)
{
  const Model *m = model;
  Val in[OP_INPUTS], out[OP_OUTPUTS], loss = NO_VAL;
  gint64 first = 0;
  builder_call(b, 0, NULL);
  for (int i = 0; i < m->test->ins; i++)
    in[i] = m->test->in[i].requires_grad ? parameter_value(b, m, i) : inputs[1];
  OpAttributes at = m->at;
  int outs = 1;
  while (m->test->op == OP_SPLIT && at.size[outs] >= 0)
    outs++;
  builder_op_multi(b, m->test->op, &at, m->test->ins, in, outs, out);
  for (int i = 0; i < outs; i++) {
    Val part = weighted_sum(b, out[i], inputs[0], &first);
    loss = i == 0 ? part : binary(b, OP_ADD, loss, part);
  }
  results[0] = let(b, "loss", loss);
  builder_leave_with(b, 1, results);
  return 1;
}

/* 15 parts of dimension 1, some of them empty, joined again from the last to the first. */
static int
forward_parts(Builder *b, gconstpointer model, const Val *inputs, Val *results)
{
  enum { PARTS = 15 };
  static const gint64 sizes[PARTS] = {1, 2, 0, 3, 1, 1, 2, 4, 0, 1, 2, 1, 1, 1, 1};
  gint64 first = 0;
  Val part[PARTS], turned[PARTS];
  builder_call(b, 0, NULL);
  split_parts(b, parameter_value(b, model, 0), 1, PARTS, sizes, part);
  for (int i = 0; i < PARTS; i++)
    turned[PARTS - 1 - i] = unary(b, OP_SILU, part[i]);
  Val whole = join_parts(b, 1, PARTS, turned);
  results[0] = let(b, "loss", weighted_sum(b, whole, inputs[0], &first));
  builder_leave_with(b, 1, results);
  return 1;
}

static Network *
make_network(Model *m, const NetworkShape *shape, GError **error)
{
  Builder *b = builder_new("an op", shape);
  int inputs = 1;
  gint64 most = FEWEST_FACTORS;
  for (int i = 0; i < m->test->ins; i++)
    most = MAX(most, (m->test->in[i].dims > 2 ? 4 : 16) * value_elements(&m->test->in[i]));
  m->inputs[0] = value_shape(DTYPE_FP32, 1, most);
  for (int i = 0; i < m->test->ins; i++) {
    ValueInfo info = row_major(m->test->in[i]);
    g_autofree char *name = g_strdup_printf("p%d", i);
    if (!m->test->in[i].requires_grad)
      m->inputs[inputs++] = info;
    if (info.dtype == DTYPE_COMPLEX64)
      info.shape[info.dims++] = 2;
    const gint64 *s = info.shape;
    if (m->test->in[i].requires_grad)
      m->parameter[i] = builder_parameter(b, name, info.dims, s[0], s[1], s[2], s[3], s[4]);
  }
  TransformersRoot root = {
      .inputs = inputs, .forward = m->forward != NULL ? m->forward : forward, .model = m};
  memcpy(root.input, m->inputs, sizeof(ValueInfo) * (gsize) inputs);
  transformers_write_root(b, &root);
  return builder_finish(b, error);
}

/* ---- executed ---- */

typedef struct {
  const Model *model;
  gboolean positive; /* no operand is below 1/2 */
  int input;         /* of this parameter one element is moved; -1: of none */
  gint64 element;
  double move;
  double loss;
  double *gradient[OP_INPUTS];
} Execution;

static double
operand_element(const Execution *x, int input, gint64 i)
{
  double value = 0.3 + numeric_normal(numeric_key(7, "operands") + (guint64) input, (guint64) i);
  if (x->positive)
    value = 0.5 + fabs(value);
  return input == x->input && i == x->element ? value + x->move : value;
}

static void
initialize(gpointer user, const NumericFilling *f)
{
  for (gint64 i = 0; i < f->elements; i++)
    f->slots[i * f->stride] = operand_element(user, f->parameter[1] - '0', f->first + i);
}

static void
batch(gpointer user, int rank, int step, const char *name, int n, gint64 bytes, double *slots)
{
  const Execution *x = user;
  gboolean factors = strcmp(name, "tokens") == 0;
  const ValueInfo *info = &x->model->inputs[factors ? 0 : 1];
  int size = info->dtype == DTYPE_COMPLEX64 ? 4 : dtype_size((DType) info->dtype);
  (void) rank, (void) step, (void) n;
  for (gint64 i = 0; i < bytes / size; i++)
    slots[i * size] = info->dtype == DTYPE_INT64  ? (double) (i * 2 % 3)
                      : info->dtype == DTYPE_BOOL ? (double) (i % 3 == 0)
                                                  : operand_element(x, factors ? 20 : 21, i);
}

static void
loss(gpointer user, int rank, int step, double value)
{
  (void) rank, (void) step;
  ((Execution *) user)->loss = value;
}

static void
norm(gpointer user, int rank, int step, double value)
{
  (void) user, (void) rank, (void) step, (void) value;
}

static void
updated(gpointer user, const NumericUpdate *u)
{
  Execution *x = user;
  double **gradient = &x->gradient[u->parameter[1] - '0'];
  if (*gradient == NULL)
    *gradient = g_memdup2(u->gradient, sizeof(double) * (gsize) MAX(u->elements, 1));
}

static gboolean
execute(const Program *program, Execution *x, GError **error)
{
  const Program *programs[] = {program};
  NumericConfig config = {.ranks = 1,
                          .programs = programs,
                          .allocator = allocator_config_default(),
                          .hooks = {.user = x,
                                    .initialize = initialize,
                                    .batch = batch,
                                    .loss = loss,
                                    .norm = norm,
                                    .updated = updated},
                          .seed = 1,
                          .micro_batch = 1,
                          .micro_batches = 1};
  NumericOutcome outcome = {0};
  gboolean ok = numeric_run(&config, &outcome, error);
  numeric_outcome_clear(&outcome);
  return ok;
}

static void
clear(Execution *x)
{
  for (int i = 0; i < OP_INPUTS; i++)
    g_free(x->gradient[i]);
}

/* ---- a case ---- */

static Simulated *
any_scenario(void)
{
  const Simulation s = {"{'model_type': 'llama', 'hidden_size': 8, 'num_hidden_layers': 1,"
                        " 'intermediate_size': 8, 'num_attention_heads': 1, 'vocab_size': 8}",
                        "{'strategy': 'none', 'batch': {'micro_batch': 1, 'sequence_length': 8},"
                        " 'optimizer': {'name': 'sgd'}}",
                        NULL, 0};
  return simulation_lower(&s, 1);
}

static Lowered *
lower_case(const Simulated *any, Model *m, Network **network, GError **error)
{
  LowerInput input = scenario_lower_input(any->scenario);
  NetworkShape shape = lower_shape(any->scenario->plan, input.device);
  *network = make_network(m, &shape, error);
  if (*network == NULL)
    return NULL;
  input.network = *network;
  return lower(&input, error);
}

/* Differences of the loss err by h^2 times third derivatives and by the loss's own precision. */
static void
check_differences(const Program *program, const Model *m, gboolean positive, const Execution *at)
{
  const double h = 1e-5;
  for (int i = 0; i < m->test->ins; i++) {
    if (!m->test->in[i].requires_grad)
      continue;
    ck_assert_msg(at->gradient[i] != NULL, "%s: input %d has no gradient", m->test->name, i);
    gint64 n = value_elements(&m->test->in[i]) * (m->test->in[i].dtype == DTYPE_COMPLEX64 ? 2 : 1);
    gint64 stride = MAX(n / CHECKED_ELEMENTS, 1);
    for (gint64 k = 0; k < n; k += stride) {
      Execution x = {.model = m, .positive = positive, .input = i, .element = k};
      double side[2];
      for (int s = 0; s < 2; s++) {
        x.move = s == 0 ? h : -h;
        ck_assert(execute(program, &x, NULL));
        side[s] = x.loss;
      }
      clear(&x);
      double slope = (side[0] - side[1]) / (2 * h), made = at->gradient[i][k];
      ck_assert_msg(fabs(slope - made) <= 1e-6 * (1 + fabs(slope)),
                    "%s: element %d of input %d has gradient %.10g, by differences %.10g",
                    m->test->name, (int) k, i, made, slope);
    }
  }
}

/* FALSE: nobody has said what a kernel of it computes, and the message says which. */
static gboolean
check_case(const Simulated *any, Model *m, char **refused)
{
  g_autoptr(GError) error = NULL;
  Network *network = NULL;
  g_autoptr(Lowered) lowered = lower_case(any, m, &network, &error);
  ck_assert_msg(lowered != NULL, "%s: %s", m->test->name, lowered == NULL ? error->message : "");
  gboolean positive = FALSE;
  Execution x = {.model = m, .input = -1};
  gboolean known = execute(lowered->program, &x, &error);
  if (known && isnan(x.loss)) {
    clear(&x);
    positive = TRUE;
    x = (Execution){.model = m, .positive = TRUE, .input = -1};
    known = execute(lowered->program, &x, &error);
  }
  if (known) {
    ck_assert_msg(isfinite(x.loss) && x.loss != 0, "%s: the loss is %g", m->test->name, x.loss);
    check_differences(lowered->program, m, positive, &x);
  } else {
    *refused = g_strdup(error->message);
  }
  clear(&x);
  network_free(network);
  return known;
}

/* The number that a meaning lacks is given to it. */
static gboolean
give_number(Model *m, const char *message)
{
  static const char lacks[] = "its meaning lacks a number: ";
  const char *key = strstr(message, lacks);
  if (key == NULL || m->at.key != NULL)
    return FALSE;
  m->at.key = g_intern_string(key + strlen(lacks));
  m->at.number = SOME_NUMBER;
  return TRUE;
}

/* Of these nobody has said what they compute: experts' look-ups, BLOOM's and Falcon's own ops,
 * convolutions, and what is opaque or was recorded. */
static const OpId unsaid[] = {
    OP_COPY_SLICE, OP_CLAMP_BETWEEN, OP_DIV_IN_PLACE, OP_WHERE_NUMBER, OP_MASKED_FILL,
    OP_WHERE,      OP_INDEX_ONE,     OP_BLOOM_GELU,   OP_CONVOLUTION,  OP_BADDBMM,
    OP_GROUPED_MM, OP_INDEX,         OP_GATHER,       OP_INDEX_PUT,    OP_INDEX_ADD,
    OP_TOPK,       OP_OPAQUE,        OP_RECORDED,     OP_BUFFER,
};

/* What attention kernels mean that do not see all before a query, and no more. */
static const char another_kind[] = "= attention_of_another_kind: nobody has said what it computes";

static gboolean
is_unsaid(OpId op)
{
  for (guint i = 0; i < G_N_ELEMENTS(unsaid); i++)
    if (unsaid[i] == op)
      return TRUE;
  return FALSE;
}

/* A call that does some of many parts alone: split_parts() and join_parts() do all. */
static gboolean
is_of_many(const Case *test)
{
  return test->op == OP_CAT_MORE || (test->op == OP_SPLIT && (test->at.flag || test->at.first > 0));
}

/* A case that a network of one op can be made of: of operands without a gradient one at most, no
 * operand too large; where operands and results are views in orders of their own, the case is about
 * memory. */
static gboolean
is_computable(const Case *test)
{
  int others = 0, wanted = 0;
  gint64 elements = 0;
  for (int i = 0; i < test->ins; i++) {
    others += !test->in[i].requires_grad;
    wanted += test->in[i].requires_grad;
    elements = MAX(elements, value_elements(&test->in[i]));
    if (test->in[i].dims > 1 && test->in[i].stride[0] != 0 && test->at.result.stride[0] != 0)
      return FALSE;
  }
  return op_info(test->op)->backward != NULL && wanted > 0 && others <= 1 &&
         elements <= MOST_ELEMENTS;
}

static void
check_row(const Simulated *any, const Case *test)
{
  Model m = {.test = test, .at = test->at};
  char *refused = NULL;
  m.at.result = plain(m.at.result);
  if (m.at.result.stride[0] == 0)
    value_set_contiguous(&m.at.result);
  gboolean known = check_case(any, &m, &refused);
  if (!known && give_number(&m, refused)) {
    g_clear_pointer(&refused, g_free);
    known = check_case(any, &m, &refused);
  }
  if (is_unsaid(test->op))
    ck_assert_msg(!known, "%s: is not refused", test->name);
  else
    ck_assert_msg(known || strstr(refused, another_kind) != NULL, "%s: %s", test->name, refused);
  g_free(refused);
}

START_TEST(gradients_of_an_op_are_differences_of_its_result)
{
  g_autoptr(Simulated) any = any_scenario();
  for (guint i = 0; i < G_N_ELEMENTS(op_cases); i++)
    if ((int) op_cases[i].op == _i && !is_of_many(&op_cases[i]) && is_computable(&op_cases[i]))
      check_row(any, &op_cases[i]);
}
END_TEST

START_TEST(gradients_of_many_parts_are_differences_of_what_they_make)
{
  static const Case many = {
      .op = OP_SPLIT, .name = "many parts", .ins = 1, .in = {WANTS(FP32, 3, 2, 21, 3)}};
  g_autoptr(Simulated) any = any_scenario();
  Model m = {.test = &many, .forward = forward_parts};
  g_autofree char *refused = NULL;
  ck_assert_msg(check_case(any, &m, &refused), "%s", refused);
}
END_TEST

/* No op with a derivative is forgotten: it is computed with in some case, or said to be unsaid. */
START_TEST(every_op_with_a_derivative_is_checked)
{
  for (int op = 0; op < OP_COUNT; op++) {
    gboolean any = op_info((OpId) op)->backward == NULL || is_unsaid((OpId) op);
    for (guint i = 0; i < G_N_ELEMENTS(op_cases) && !any; i++)
      any = (int) op_cases[i].op == op && is_computable(&op_cases[i]);
    ck_assert_msg(any, "%s has no case with small operands", op_info((OpId) op)->name);
  }
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("op_numbers");
  TCase *tcase = tcase_create("derivatives");
  tcase_set_timeout(tcase, 60);
  tcase_add_loop_test(tcase, gradients_of_an_op_are_differences_of_its_result, 0, OP_COUNT);
  tcase_add_test(tcase, gradients_of_many_parts_are_differences_of_what_they_make);
  tcase_add_test(tcase, every_op_with_a_derivative_is_checked);
  suite_add_tcase(suite, tcase);
  return suite;
}

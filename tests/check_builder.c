/* check_builder.c - the builder of forward() functions: which reference goes when, as CPython drops
 * them.
 *
 * A function is written with the builder, and its statements are compared with what was worked out
 * by hand from CPython's rules: "2=mul(1,0)" calls an op, "-1" is the moment the last reference to
 * value 1 goes.  Values are numbered in the order in which they are made, arguments first; p0, p1,
 * ... are parameters.  Recipes of ops are check_op's matter. */
#include <string.h>

#include "base/units.h"
#include "network/layers.h"
#include "tap_main.h"

static const NetworkShape small_shape = {
    .micro_batch = 2,
    .sequence_length = 3,
    .micro_batches = 1,
    .precision = {DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, FALSE, FALSE, DTYPE_BF16, FALSE},
    .device = {132, 2048, 90},
};

/* ---- writing a function ---- */

typedef struct {
  Builder *b;
  Val x, y; /* its arguments, which it does not own */
} Writing;

static Writing
begin(void)
{
  Writing w = {.b = builder_new("test", &small_shape)};
  ValueInfo infos[2];
  Val args[2];
  infos[0] = infos[1] = value_shape(DTYPE_BF16, 2, (gint64) 6, (gint64) 4);
  infos[0].requires_grad = infos[1].requires_grad = TRUE;
  builder_function_begin(w.b, "f", -1, 2, infos, args);
  w.x = args[0];
  w.y = args[1];
  return w;
}

static void
add_slots(GString *text, int n, const gint16 *slots)
{
  for (int i = 0; i < n; i++)
    g_string_append_printf(text, "%s%s%d", i > 0 ? "," : "", slots[i] < 0 ? "p" : "",
                           slots[i] < 0 ? PARAMETER_OF_SLOT(slots[i]) : slots[i]);
}

static void
add_statement_text(GString *text, const Function *f, const Statement *s)
{
  switch ((StatementKind) s->kind) {
  case STATEMENT_OP: {
    const Op *op = &g_array_index(f->ops, Op, s->a);
    add_slots(text, op->outs, op->out);
    g_string_append_printf(text, "=%s(", op->info->name);
    add_slots(text, op->ins, op->in);
    g_string_append_c(text, ')');
    break;
  }
  case STATEMENT_DROP:
    g_string_append_printf(text, "-%d", s->a);
    break;
  case STATEMENT_ENTER:
    add_slots(text, s->outs, s->out);
    g_string_append_printf(text, "=enter%d(", s->a);
    add_slots(text, s->ins, s->in);
    g_string_append_c(text, ')');
    break;
  case STATEMENT_EXIT:
    g_string_append_printf(text, "exit%d(%d)", s->a, s->in[0]);
    break;
  case STATEMENT_CALL:
    g_string_append_printf(text, "%d=call%d:%d(", s->out[0], s->a, s->b);
    add_slots(text, s->ins, s->in);
    g_string_append_c(text, ')');
    break;
  default:
    g_string_append(text, "end");
  }
}

/* Statements of a function, a blank between them.  Caller frees. */
static char *
statements_text(const Function *f)
{
  GString *text = g_string_new(NULL);
  for (guint i = 0; i < f->statements->len; i++) {
    if (i > 0)
      g_string_append_c(text, ' ');
    add_statement_text(text, f, &g_array_index(f->statements, Statement, i));
  }
  return g_string_free(text, FALSE);
}

/* Ends the function and compares its statements. */
static void
ends_as(Writing w, Val result, const char *expected)
{
  int function = builder_function_end(w.b, result);
  g_autoptr(GError) error = NULL;
  g_autofree char *text = statements_text(network_function(builder_network(w.b), function));
  g_autoptr(Network) network = builder_finish(w.b, &error);
  if (network == NULL)
    ck_abort_msg("%s", error->message);
  ck_assert_str_eq(text, expected);
}

/* ---- temporaries and names ---- */

START_TEST(a_temporary_goes_right_after_the_expression_that_uses_it)
{
  /* return silu(neg(x)) */
  Writing w = begin();
  builder_call(w.b, 0, NULL);
  Val result = builder_leave(w.b, unary(w.b, OP_SILU, unary(w.b, OP_NEG, w.x)));
  ends_as(w, result, "2=neg(0) 3=silu(2) -2");
}
END_TEST

START_TEST(both_temporaries_of_an_expression_go_in_the_order_of_its_operands)
{
  /* return neg(x) * silu(y) */
  Writing w = begin();
  builder_call(w.b, 0, NULL);
  Val left = unary(w.b, OP_NEG, w.x), right = unary(w.b, OP_SILU, w.y);
  Val result = builder_leave(w.b, binary(w.b, OP_MUL, left, right));
  ends_as(w, result, "2=neg(0) 3=silu(1) 4=mul(2,3) -2 -3");
}
END_TEST

START_TEST(a_name_lives_until_its_function_returns)
{
  /* a = neg(x); b = silu(a); return tanh(b) */
  Writing w = begin();
  builder_call(w.b, 0, NULL);
  Val a = let(w.b, "a", unary(w.b, OP_NEG, w.x));
  Val b = let(w.b, "b", unary(w.b, OP_SILU, a));
  Val result = builder_leave(w.b, unary(w.b, OP_TANH, b));
  ends_as(w, result, "2=neg(0) 3=silu(2) 4=tanh(3) -2 -3");
}
END_TEST

START_TEST(a_rebound_name_lets_the_old_value_go_once_the_new_one_exists)
{
  /* h = neg(x); g = silu(h); h = tanh(g); return neg(h) */
  Writing w = begin();
  builder_call(w.b, 0, NULL);
  Val h = let(w.b, "h", unary(w.b, OP_NEG, w.x));
  Val g = let(w.b, "g", unary(w.b, OP_SILU, h));
  h = let(w.b, "h", unary(w.b, OP_TANH, g));
  Val result = builder_leave(w.b, unary(w.b, OP_NEG, h));
  ends_as(w, result, "2=neg(0) 3=silu(2) 4=tanh(3) -2 5=neg(4) -4 -3");
}
END_TEST

START_TEST(locals_go_in_the_order_in_which_their_names_first_appeared)
{
  /* a, b, c in turn, then a again: its place stays the first */
  Writing w = begin();
  builder_call(w.b, 0, NULL);
  let(w.b, "a", unary(w.b, OP_NEG, w.x));
  let(w.b, "b", unary(w.b, OP_SILU, w.x));
  let(w.b, "c", unary(w.b, OP_TANH, w.x));
  let(w.b, "a", unary(w.b, OP_NEG, w.y));
  Val result = builder_leave(w.b, unary(w.b, OP_GELU, w.x));
  ends_as(w, result, "2=neg(0) 3=silu(0) 4=tanh(0) 5=neg(1) -2 6=gelu(0) -5 -3 -4");
}
END_TEST

START_TEST(a_second_name_keeps_the_value_of_the_first)
{
  /* a = neg(x); b = a; a = silu(x); return tanh(a) */
  Writing w = begin();
  builder_call(w.b, 0, NULL);
  Val a = let(w.b, "a", unary(w.b, OP_NEG, w.x));
  let(w.b, "b", a);
  a = let(w.b, "a", unary(w.b, OP_SILU, w.x));
  Val result = builder_leave(w.b, unary(w.b, OP_TANH, a));
  ends_as(w, result, "2=neg(0) 3=silu(0) 4=tanh(3) -3 -2");
}
END_TEST

START_TEST(del_lets_go_at_once_and_the_name_keeps_its_place)
{
  /* a = neg(x); b = silu(a); del a; a = tanh(b); return neg(a) */
  Writing w = begin();
  builder_call(w.b, 0, NULL);
  Val a = let(w.b, "a", unary(w.b, OP_NEG, w.x));
  Val b = let(w.b, "b", unary(w.b, OP_SILU, a));
  unlet(w.b, "a");
  a = let(w.b, "a", unary(w.b, OP_TANH, b));
  Val result = builder_leave(w.b, unary(w.b, OP_NEG, a));
  ends_as(w, result, "2=neg(0) 3=silu(2) -2 4=tanh(3) 5=neg(4) -4 -3");
}
END_TEST

START_TEST(what_is_returned_outlives_its_name)
{
  /* def f(): a = neg(x); b = silu(a); return a        y = f(); return tanh(y) */
  Writing w = begin();
  builder_call(w.b, 0, NULL);
  builder_call(w.b, 0, NULL);
  Val a = let(w.b, "a", unary(w.b, OP_NEG, w.x));
  let(w.b, "b", unary(w.b, OP_SILU, a));
  Val y = let(w.b, "y", builder_leave(w.b, a));
  Val result = builder_leave(w.b, unary(w.b, OP_TANH, y));
  ends_as(w, result, "2=neg(0) 3=silu(2) -3 4=tanh(2) -2");
}
END_TEST

START_TEST(several_results_outlive_their_function)
{
  /* def f(): a, b, c; return c, a         u, v = f(): v's name first in the caller's hands */
  Writing w = begin();
  builder_call(w.b, 0, NULL);
  builder_call(w.b, 0, NULL);
  Val a = let(w.b, "a", unary(w.b, OP_NEG, w.x));
  let(w.b, "b", unary(w.b, OP_SILU, w.x));
  Val c = let(w.b, "c", unary(w.b, OP_TANH, w.x));
  Val results[2] = {c, a};
  builder_leave_with(w.b, 2, results);
  Val result = builder_leave(w.b, binary(w.b, OP_ADD, results[0], results[1]));
  ends_as(w, result, "2=neg(0) 3=silu(0) 4=tanh(0) -3 5=add(4,2) -4 -2");
}
END_TEST

/* ---- stores of several names ---- */

START_TEST(a_pair_is_stored_last_first)
{
  /* a = neg(x); b = silu(x); a, b = tanh(a), gelu(b): the old b goes first; the frame still drops a
   * first */
  Writing w = begin();
  static const char *const names[] = {"a", "b"};
  builder_call(w.b, 0, NULL);
  Val a = let(w.b, "a", unary(w.b, OP_NEG, w.x));
  Val b = let(w.b, "b", unary(w.b, OP_SILU, w.x));
  Val pair[2];
  pair[0] = unary(w.b, OP_TANH, a);
  pair[1] = unary(w.b, OP_GELU, b);
  let_pair(w.b, names, pair);
  Val result = builder_leave(w.b, binary(w.b, OP_ADD, pair[0], pair[1]));
  ends_as(w, result, "2=neg(0) 3=silu(0) 4=tanh(2) 5=gelu(3) -3 -2 6=add(4,5) -4 -5");
}
END_TEST

START_TEST(names_of_a_new_pair_appear_in_the_order_of_the_text)
{
  /* a, b = neg(x), silu(x); return tanh(b): stored last first, but a's place is the first */
  Writing w = begin();
  static const char *const names[] = {"a", "b"};
  builder_call(w.b, 0, NULL);
  Val pair[2];
  pair[0] = unary(w.b, OP_NEG, w.x);
  pair[1] = unary(w.b, OP_SILU, w.x);
  let_pair(w.b, names, pair);
  Val result = builder_leave(w.b, unary(w.b, OP_TANH, pair[1]));
  ends_as(w, result, "2=neg(0) 3=silu(0) 4=tanh(3) -2 -3");
}
END_TEST

START_TEST(a_triple_is_stored_last_first)
{
  /* a, b, c = neg(x), silu(x), tanh(x), twice: old values go c, b, a; at the end a, b, c */
  Writing w = begin();
  static const char *const names[] = {"a", "b", "c"};
  builder_call(w.b, 0, NULL);
  for (int i = 0; i < 2; i++) {
    Val triple[3];
    triple[0] = unary(w.b, OP_NEG, w.x);
    triple[1] = unary(w.b, OP_SILU, w.x);
    triple[2] = unary(w.b, OP_TANH, w.x);
    let_triple(w.b, names, triple);
  }
  Val result = builder_leave(w.b, unary(w.b, OP_GELU, w.x));
  ends_as(w, result,
          "2=neg(0) 3=silu(0) 4=tanh(0) 5=neg(0) 6=silu(0) 7=tanh(0) -4 -3 -2 8=gelu(0) -5 -6 -7");
}
END_TEST

/* ---- calls ---- */

START_TEST(a_module_calls_arguments_go_after_the_callees_locals)
{
  /* h = x + module(neg(x)), where forward(self, z): q = silu(z); return tanh(q) */
  Writing w = begin();
  builder_call(w.b, 0, NULL);
  Val z = unary(w.b, OP_NEG, w.x);
  builder_call(w.b, 1, &z);
  z.temporary = FALSE;
  Val q = let(w.b, "q", unary(w.b, OP_SILU, z));
  Val mixed = builder_leave(w.b, unary(w.b, OP_TANH, q));
  Val result = builder_leave(w.b, binary(w.b, OP_ADD, w.x, mixed));
  ends_as(w, result, "2=neg(0) 3=silu(2) 4=tanh(3) -3 -2 5=add(0,4) -4");
}
END_TEST

START_TEST(a_module_call_keeps_an_argument_that_its_callee_rebinds)
{
  /* module(neg(x)), where forward(self, z): z = silu(z); return tanh(z) */
  Writing w = begin();
  builder_call(w.b, 0, NULL);
  Val z = unary(w.b, OP_NEG, w.x);
  builder_call(w.b, 1, &z);
  z = let(w.b, "z", (Val){z.slot, FALSE});
  z = let(w.b, "z", unary(w.b, OP_SILU, z));
  Val y = builder_leave(w.b, unary(w.b, OP_TANH, z));
  ends_as(w, builder_leave(w.b, y), "2=neg(0) 3=silu(2) 4=tanh(3) -3 -2");
}
END_TEST

START_TEST(a_plain_function_owns_its_arguments)
{
  /* f(neg(x)), where f(z): z = silu(z); return tanh(z): neg(x) goes when z is rebound */
  Writing w = begin();
  builder_call(w.b, 0, NULL);
  Val z = unary(w.b, OP_NEG, w.x);
  builder_enter(w.b, 1, (const char *const[]){"z"}, &z);
  z.temporary = FALSE;
  z = let(w.b, "z", unary(w.b, OP_SILU, z));
  Val y = builder_leave(w.b, unary(w.b, OP_TANH, z));
  ends_as(w, builder_leave(w.b, y), "2=neg(0) 3=silu(2) -2 4=tanh(3) -3");
}
END_TEST

START_TEST(arguments_of_a_plain_function_are_its_first_locals)
{
  /* f(neg(x), silu(x)), where f(a, b): c = tanh(a); return gelu(c) */
  Writing w = begin();
  builder_call(w.b, 0, NULL);
  Val args[2];
  args[0] = unary(w.b, OP_NEG, w.x);
  args[1] = unary(w.b, OP_SILU, w.x);
  builder_enter(w.b, 2, (const char *const[]){"a", "b"}, args);
  Val c = let(w.b, "c", unary(w.b, OP_TANH, (Val){args[0].slot, FALSE}));
  Val y = builder_leave(w.b, unary(w.b, OP_GELU, c));
  ends_as(w, builder_leave(w.b, y), "2=neg(0) 3=silu(0) 4=tanh(2) 5=gelu(4) -2 -3 -4");
}
END_TEST

START_TEST(a_callers_name_outlives_the_call_it_is_passed_to)
{
  /* a = neg(x); b = f(a), where f(z): z = silu(z); return tanh(z); return gelu(a) */
  Writing w = begin();
  builder_call(w.b, 0, NULL);
  Val a = let(w.b, "a", unary(w.b, OP_NEG, w.x));
  builder_enter(w.b, 1, (const char *const[]){"z"}, &a);
  Val z = let(w.b, "z", unary(w.b, OP_SILU, a));
  let(w.b, "b", builder_leave(w.b, unary(w.b, OP_TANH, z)));
  Val result = builder_leave(w.b, unary(w.b, OP_GELU, a));
  ends_as(w, result, "2=neg(0) 3=silu(2) 4=tanh(3) -3 5=gelu(2) -2 -4");
}
END_TEST

START_TEST(the_callers_arguments_of_the_whole_function_never_go)
{
  /* f(x, y): x = neg(x): the caller still has its own */
  Writing w = begin();
  builder_enter(w.b, 2, (const char *const[]){"x", "y"}, (Val[]){w.x, w.y});
  Val x = let(w.b, "x", unary(w.b, OP_NEG, w.x));
  Val result = builder_leave(w.b, x);
  ends_as(w, result, "2=neg(0)");
}
END_TEST

/* ---- outputs that only nodes keep, parameters ---- */

START_TEST(outputs_that_nobody_takes_go_at_once)
{
  /* F.rms_norm returns its first output alone */
  Writing w = begin();
  int gain = define_norm(w.b, "norm", "RMSNorm", 4, FALSE);
  builder_call(w.b, 0, NULL);
  Val result = builder_leave(w.b, rms_norm(w.b, w.x, gain, NORM_FUSED));
  ends_as(w, result, "2=enter1(0) 3,4=fused_rms_norm(2,p0) -4 exit1(3) -2");
}
END_TEST

START_TEST(parameters_never_go_and_their_views_do)
{
  /* x @ weight.t(), without a bias: of a matrix t, mm; at::matmul has views for more dimensions */
  Writing w = begin();
  Linear p = define_linear(w.b, "fc", 5, 4, FALSE);
  builder_call(w.b, 0, NULL);
  Val result = builder_leave(w.b, linear(w.b, w.x, p));
  ends_as(w, result, "2=enter1(0) 3=transpose(p0) 4=mm(2,3) -3 exit1(4) -2");
}
END_TEST

START_TEST(an_op_records_a_node_only_when_an_input_wants_a_gradient)
{
  Writing w = begin();
  ValueInfo plain = value_shape(DTYPE_FP32, 1, (gint64) 4);
  builder_call(w.b, 0, NULL);
  Val table = create(w.b, "table", plain);
  Val negated = unary(w.b, OP_NEG, table);
  Val wanted = unary(w.b, OP_NEG, w.x);
  ck_assert(!builder_info(w.b, negated).requires_grad);
  ck_assert(builder_info(w.b, wanted).requires_grad);
  builder_discard(w.b, negated);
  Val result = builder_leave(w.b, wanted);
  int f = builder_function_end(w.b, result);
  const GArray *ops = network_function(builder_network(w.b), f)->ops;
  ck_assert(!g_array_index(ops, Op, 1).node);
  ck_assert_int_eq(g_array_index(ops, Op, 1).backward, g_array_index(ops, Op, 1).end);
  ck_assert(g_array_index(ops, Op, 2).node);
  network_free(builder_finish(w.b, NULL));
}
END_TEST

/* ---- modules, hooks and blocks ---- */

START_TEST(modules_come_with_parents_before_children_and_dotted_paths)
{
  Builder *b = builder_new("test", &small_shape);
  builder_module(b, "layers", "ModuleList");
  for (int i = 0; i < 2; i++) {
    builder_block_begin(b, "Block");
    define_linear(b, "fc", 8, 4, TRUE);
    builder_block_end(b);
  }
  builder_module_end(b);
  define_norm(b, "norm", "RMSNorm", 4, FALSE);
  g_autoptr(Network) n = builder_finish(b, NULL);
  static const char *const paths[] = {"",         "layers",      "layers.0", "layers.0.fc",
                                      "layers.1", "layers.1.fc", "norm"};
  static const int parents[] = {-1, 0, 1, 2, 1, 4, 0}, blocks[] = {-1, -1, 0, 0, 1, 1, -1};
  static const char *const parameters[] = {"layers.0.fc.weight", "layers.0.fc.bias",
                                           "layers.1.fc.weight", "layers.1.fc.bias", "norm.weight"};
  ck_assert_uint_eq(n->modules->len, G_N_ELEMENTS(paths));
  for (guint i = 0; i < G_N_ELEMENTS(paths); i++) {
    ck_assert_str_eq(network_module(n, (int) i)->path, paths[i]);
    ck_assert_int_eq(network_module(n, (int) i)->parent, parents[i]);
    ck_assert_int_eq(network_module(n, (int) i)->block, blocks[i]);
  }
  ck_assert_uint_eq(n->parameters->len, G_N_ELEMENTS(parameters));
  for (guint i = 0; i < G_N_ELEMENTS(parameters); i++)
    ck_assert_str_eq(network_parameter(n, (int) i)->name, parameters[i]);
  ck_assert_int_eq(network_block(n, 1)->module, 4);
  ck_assert_int_eq(network_block(n, 1)->modules, 2);
  ck_assert_int_eq(network_block(n, 1)->first_parameter, 2);
  ck_assert_int_eq(network_block(n, 1)->parameter_count, 2);
  ck_assert_int_eq(network_parameter_count(n), 2 * (8 * 4 + 8) + 4);
}
END_TEST

/* A block that is a norm. */
static void
define_norm_block(Builder *b)
{
  builder_block_begin(b, "Block");
  define_norm(b, "norm", "RMSNorm", 4, FALSE);
  builder_block_end(b);
}

static Val
norm_block(Builder *b, gconstpointer model, int block, const Val *args)
{
  (void) model;
  int gain = network_block(builder_network(b), block)->first_parameter;
  return rms_norm(b, args[0], gain, NORM_FUSED);
}

static const BlockCode norm_code = {.forward = norm_block};

START_TEST(a_blocks_function_speaks_of_its_own_first_parameter_and_module)
{
  Builder *b = builder_new("test", &small_shape);
  define_norm(b, "embedding", "Norm", 4, FALSE);
  define_norm_block(b);
  ValueInfo info = value_shape(DTYPE_BF16, 2, (gint64) 6, (gint64) 4);
  Val x;
  builder_function_begin(b, "main", -1, 1, &info, &x);
  int main_function = builder_function_end(b, builder_block_call(b, 0, &norm_code, 1, &x));
  g_autoptr(Network) n = builder_finish(b, NULL);
  int block = network_block(n, 0)->function;
  const Function *f = network_function(n, block);
  g_autofree char *text = statements_text(f);
  g_autofree char *main_text = statements_text(network_function(n, main_function));
  ck_assert_str_eq(text, "1=enter1(0) 2,3=fused_rms_norm(1,p0) -3 exit1(2) -1");
  ck_assert_str_eq(main_text, "1=call0:0(0)");
  ck_assert_int_eq(g_array_index(f->ops, Op, 0).module, 1); /* the block's root is 0 */
}
END_TEST

START_TEST(blocks_share_a_function_while_the_same_parameters_and_inputs_require_gradients)
{
  /* four blocks, of which the gain of the second is frozen; the input requires no gradient, what
   * the first block gives does */
  char frozen[] = "!1.norm.*";
  g_autoptr(GPtrArray) list = g_ptr_array_new();
  g_ptr_array_add(list, frozen);
  const NamePatterns trainable = {list};
  NetworkShape shape = small_shape;
  shape.trainable = &trainable;
  Builder *b = builder_new("test", &shape);
  for (int i = 0; i < 4; i++)
    define_norm_block(b);
  ValueInfo info = value_shape(DTYPE_BF16, 2, (gint64) 6, (gint64) 4);
  Val x;
  builder_function_begin(b, "main", -1, 1, &info, &x);
  for (int i = 0; i < 4; i++)
    x = builder_block_call(b, i, &norm_code, 1, &x);
  builder_function_end(b, x);
  g_autoptr(Network) n = builder_finish(b, NULL);
  int function[4];
  for (int i = 0; i < 4; i++)
    function[i] = network_block(n, i)->function;
  ck_assert_int_ne(function[0], function[1]);
  ck_assert_int_ne(function[1], function[2]);
  ck_assert_int_ne(function[0], function[2]);
  ck_assert_int_eq(function[2], function[3]);
  ck_assert(!network_parameter(n, 1)->trainable);
  ck_assert_int_eq(network_trainable_count(n), 3 * 4);
}
END_TEST

START_TEST(hooks_replace_the_arguments_of_a_module)
{
  /* module(neg(x)) with hooks: forward gets its own value, which lives beside the argument tuple */
  Writing w = begin();
  int module = builder_module(w.b, "m", "M");
  builder_module_end(w.b);
  builder_call(w.b, 0, NULL);
  Val z = unary(w.b, OP_NEG, w.x);
  builder_call(w.b, 1, &z);
  Val received = {z.slot, FALSE};
  builder_module_enter(w.b, module, 1, &received);
  Val y = unary(w.b, OP_SILU, received);
  builder_module_exit(w.b, module, y);
  y = builder_leave(w.b, y);
  ends_as(w, builder_leave(w.b, y), "2=neg(0) 3=enter1(2) 4=silu(3) -3 exit1(4) -2");
}
END_TEST

/* ---- errors ---- */

START_TEST(a_parameter_that_cannot_exist_is_an_error_and_the_first_one_stays)
{
  g_autoptr(GError) error = NULL;
  Builder *b = builder_new("test", &small_shape);
  gint64 huge = (gint64) 1 << 40;
  Linear p = define_linear(b, "fc", huge, huge, FALSE);
  builder_fail(b, "another error");
  ValueInfo info = value_shape(DTYPE_BF16, 3, (gint64) 2, (gint64) 3, huge);
  Val x;
  builder_function_begin(b, "f", -1, 1, &info, &x);
  Val y = linear(b, x, p); /* goes on harmlessly */
  builder_function_end(b, repeat_heads(b, view(b, y, 4, huge, huge, huge, huge), huge, TRUE));
  ck_assert_ptr_null(builder_finish(b, &error));
  ck_assert(
      test_error_says(error, "fc.weight: 1099511627776 x 1099511627776 elements are too many"));
}
END_TEST

START_TEST(an_activation_that_cannot_exist_blames_the_batch)
{
  g_autoptr(GError) error = NULL;
  NetworkShape shape = small_shape;
  shape.micro_batch = 1 << 20;
  shape.sequence_length = G_MAXINT32;
  Builder *b = builder_new("test", &shape);
  ValueInfo info =
      value_shape(DTYPE_BF16, 3, shape.micro_batch, shape.sequence_length, (gint64) 4096);
  Val x;
  builder_function_begin(b, "block", -1, 1, &info, &x);
  builder_function_end(b, unary(b, OP_SILU, x));
  ck_assert_ptr_null(builder_finish(b, &error));
  ck_assert(test_error_says(error, "block: 1048576 x 2147483647 x 4096 elements are too many"));
  ck_assert(
      test_error_says(error, "batch.micro_batch 1048576 and batch.sequence_length 2147483647"));
}
END_TEST

START_TEST(more_parameters_than_can_be_counted_are_an_error)
{
  g_autoptr(GError) error = NULL;
  Builder *b = builder_new("test", &small_shape);
  for (int i = 0; i < 17; i++) { /* 2^46 each: 17 x 2^46 > 2^50 */
    g_autofree char *name = g_strdup_printf("fc%d", i);
    define_linear(b, name, (gint64) 1 << 23, (gint64) 1 << 23, FALSE);
  }
  ck_assert_ptr_null(builder_finish(b, &error));
  ck_assert(test_error_says(error, "more than 2^50 parameters"));
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("builder");
  TCase *names = tcase_create("names"), *calls = tcase_create("calls"),
        *modules = tcase_create("modules");
  tcase_add_test(names, a_temporary_goes_right_after_the_expression_that_uses_it);
  tcase_add_test(names, both_temporaries_of_an_expression_go_in_the_order_of_its_operands);
  tcase_add_test(names, a_name_lives_until_its_function_returns);
  tcase_add_test(names, a_rebound_name_lets_the_old_value_go_once_the_new_one_exists);
  tcase_add_test(names, locals_go_in_the_order_in_which_their_names_first_appeared);
  tcase_add_test(names, a_second_name_keeps_the_value_of_the_first);
  tcase_add_test(names, del_lets_go_at_once_and_the_name_keeps_its_place);
  tcase_add_test(names, what_is_returned_outlives_its_name);
  tcase_add_test(names, several_results_outlive_their_function);
  tcase_add_test(names, a_pair_is_stored_last_first);
  tcase_add_test(names, names_of_a_new_pair_appear_in_the_order_of_the_text);
  tcase_add_test(names, a_triple_is_stored_last_first);
  tcase_add_test(calls, a_module_calls_arguments_go_after_the_callees_locals);
  tcase_add_test(calls, a_module_call_keeps_an_argument_that_its_callee_rebinds);
  tcase_add_test(calls, a_plain_function_owns_its_arguments);
  tcase_add_test(calls, arguments_of_a_plain_function_are_its_first_locals);
  tcase_add_test(calls, a_callers_name_outlives_the_call_it_is_passed_to);
  tcase_add_test(calls, the_callers_arguments_of_the_whole_function_never_go);
  tcase_add_test(calls, outputs_that_nobody_takes_go_at_once);
  tcase_add_test(calls, parameters_never_go_and_their_views_do);
  tcase_add_test(calls, an_op_records_a_node_only_when_an_input_wants_a_gradient);
  tcase_add_test(modules, modules_come_with_parents_before_children_and_dotted_paths);
  tcase_add_test(modules, a_blocks_function_speaks_of_its_own_first_parameter_and_module);
  tcase_add_test(modules,
                 blocks_share_a_function_while_the_same_parameters_and_inputs_require_gradients);
  tcase_add_test(modules, hooks_replace_the_arguments_of_a_module);
  tcase_add_test(modules, a_parameter_that_cannot_exist_is_an_error_and_the_first_one_stays);
  tcase_add_test(modules, an_activation_that_cannot_exist_blames_the_batch);
  tcase_add_test(modules, more_parameters_than_can_be_counted_are_an_error);
  suite_add_tcase(suite, names);
  suite_add_tcase(suite, calls);
  suite_add_tcase(suite, modules);
  return suite;
}

/* op_recipe.c - what recipes are made of: steps, kernels, gradient validation, and the recipes that
 * many rows share. */
#include "network/op_recipe.h"

#include <string.h>

#include "base/units.h"
#include "program/meaning.h"

gint64
value_elements(const ValueInfo *value)
{
  gint64 elements = 1;
  for (int i = 0; i < value->dims; i++)
    elements *= value->shape[i];
  return elements;
}

gint64
value_bytes(const ValueInfo *value)
{
  return value_elements(value) * dtype_size((DType) value->dtype);
}

ValueInfo
value_like(const ValueInfo *value, DType dtype)
{
  ValueInfo like = *value;
  like.dtype = (guint8) dtype;
  return like;
}

ValueInfo
value_vector(gint64 elements, DType dtype)
{
  return (ValueInfo){.dtype = (guint8) dtype, .dims = 1, .shape = {elements}, .stride = {1}};
}

/* ---- shapes ---- */

void
shape_like_first(OpCase *c)
{
  c->outs = 1;
  c->out[0] = c->in[0];
  value_order_like(&c->out[0], 1, c->in);
}

void
shape_broadcast(OpCase *c)
{
  const ValueInfo *a = &c->in[0], *b = &c->in[1];
  gint64 more = value_elements(a) - value_elements(b);
  gboolean first = more > 0 || (more == 0 && a->dims >= b->dims); /* a vector and one row of it */
  c->outs = 1;
  c->out[0] = first ? *a : *b;
  /* type promotion: fp32 with a 16-bit type is fp32 */
  if (dtype_size((DType) a->dtype) > dtype_size((DType) b->dtype))
    c->out[0].dtype = a->dtype;
  else
    c->out[0].dtype = b->dtype;
  value_order_like(&c->out[0], 2, c->in);
}

void
shape_result(OpCase *c)
{
  c->outs = 1;
  c->out[0] = c->at.result;
}

/* ---- steps ---- */

static OpStep *
add_step(OpCase *c, OpAction action, int buffer)
{
  OpStep step = {.action = (guint8) action, .buffer = (guint8) buffer};
  g_array_append_val(c->steps, step);
  return &g_array_index(c->steps, OpStep, c->steps->len - 1);
}

static int
new_temp(OpCase *c, OpAction action, ValueInfo info, const char *what)
{
  int i = 0;
  while (c->temp_used[i])
    i++;
  g_assert(i < OP_TEMPS);
  int buffer = BUFFER_TEMP + i;
  c->temp_used[i] = TRUE;
  c->temp[i] = info;
  OpStep *step = add_step(c, action, buffer);
  step->bytes = value_bytes(&info);
  step->dtype = info.dtype;
  step->what = what;
  return buffer;
}

int
recipe_temp(OpCase *c, gint64 bytes, const char *what)
{
  return new_temp(c, STEP_ALLOC, value_vector(bytes, DTYPE_UINT8), what);
}

int
recipe_contiguous_input(OpCase *c)
{
  if (value_is_contiguous(&c->in[0]))
    return 0;
  return recipe_temp(c, value_bytes(&c->in[0]), "contiguous input");
}

static int
contiguous_temp(OpCase *c, GradOrder order, const char *what)
{
  int buffer = new_temp(c, STEP_CONTIGUOUS_TEMP, c->out[0], what);
  OpStep *step = &g_array_index(c->steps, OpStep, c->steps->len - 1);
  step->source = BUFFER_INCOMING;
  step->order = (guint8) order;
  return buffer;
}

int
recipe_temp_like(OpCase *c, int i, DType dtype, GradOrder order)
{
  int buffer = new_temp(c, STEP_ALLOC, value_like(&c->in[i], dtype), "gradient");
  OpStep *step = &g_array_index(c->steps, OpStep, c->steps->len - 1);
  step->source = (guint8) IN(i);
  step->order = (guint8) order;
  step->shaped = TRUE;
  return buffer;
}

int
recipe_contiguous_inside(OpCase *c, const char *what)
{
  return contiguous_temp(c, ORDER_HEADS_INSIDE, what);
}

int
recipe_contiguous_incoming(OpCase *c, const char *what)
{
  return contiguous_temp(c, ORDER_DENSE, what);
}

void
recipe_release(OpCase *c, int buffer)
{
  add_step(c, STEP_RELEASE, buffer);
  c->temp_used[buffer - BUFFER_TEMP] = FALSE;
}

void
recipe_out(OpCase *c, int i, const char *what)
{
  OpStep *step = add_step(c, STEP_ALLOC, OUT(i));
  step->bytes = value_bytes(&c->out[i]);
  step->dtype = c->out[i].dtype;
  step->what = what;
}

void
recipe_alias(OpCase *c, int i, gint64 offset)
{
  recipe_alias_of(c, i, 0, offset);
}

void
recipe_alias_of(OpCase *c, int i, int input, gint64 offset)
{
  OpStep *step = add_step(c, STEP_ALIAS, OUT(i));
  step->source = (guint8) IN(input);
  step->bytes = offset;
}

gboolean
recipe_wants(const OpCase *c, int i)
{
  return i < c->ins && c->in[i].requires_grad;
}

/* Notes what gradient i is now, for validation and kernels. */
static void
note_grad(OpCase *c, int i, const ValueInfo *shape)
{
  c->grad[i] = *shape;
  c->has_grad[i] = TRUE;
}

/* like: the tensor (BUFFER_IN or BUFFER_OUT) whose shape the gradient has. */
static void
new_grad(OpCase *c, int i, int like, GradOrder order)
{
  if (!recipe_wants(c, i))
    return;
  const ValueInfo *shape =
      like < BUFFER_OUT ? &c->in[like - BUFFER_IN] : &c->out[like - BUFFER_OUT];
  OpStep *step = add_step(c, STEP_ALLOC, BUFFER_GRAD + i);
  step->source = (guint8) like;
  step->bytes = value_bytes(shape);
  step->dtype = shape->dtype;
  step->order = (guint8) order;
  step->what = "gradient";
  note_grad(c, i, shape);
}

void
recipe_grad(OpCase *c, int i, GradOrder order)
{
  new_grad(c, i, IN(i), order);
}

void
recipe_grad_full(OpCase *c, int i)
{
  new_grad(c, i, OUT(0), ORDER_LIKE_INCOMING);
}

void
recipe_grads_together(OpCase *c, int n, GradOrder order, int *unwanted)
{
  for (int i = 0; i < n; i++) {
    recipe_grad(c, i, order);
    unwanted[i] = recipe_wants(c, i) ? 0 : recipe_temp(c, value_bytes(&c->in[i]), "gradient");
  }
}

void
recipe_release_unwanted(OpCase *c, int n, const int *unwanted)
{
  for (int i = n - 1; i >= 0; i--)
    if (unwanted[i] != 0)
      recipe_release(c, unwanted[i]);
}

void
recipe_pass(OpCase *c, int i)
{
  if (!recipe_wants(c, i))
    return;
  add_step(c, STEP_PASS, BUFFER_GRAD + i)->source = BUFFER_INCOMING;
  note_grad(c, i, &c->out[0]);
}

void
recipe_view(OpCase *c, int i, gint64 first, GradOrder order, int index)
{
  if (!recipe_wants(c, i))
    return;
  OpStep *step = add_step(c, STEP_VIEW, BUFFER_GRAD + i);
  step->source = BUFFER_INCOMING;
  step->bytes = first;
  step->order = (guint8) order;
  step->index = index;
  note_grad(c, i, &c->in[i]);
}

static void
view_or_copy(OpCase *c, int i, OpAction action)
{
  if (!recipe_wants(c, i))
    return;
  OpStep *step = add_step(c, action, BUFFER_GRAD + i);
  step->source = BUFFER_INCOMING;
  step->bytes = value_bytes(&c->in[i]);
  step->dtype = c->in[i].dtype;
  step->what = "gradient";
  note_grad(c, i, &c->in[i]);
}

void
recipe_reshape(OpCase *c, int i)
{
  view_or_copy(c, i, STEP_RESHAPE);
}

void
recipe_contiguous(OpCase *c, int i)
{
  view_or_copy(c, i, STEP_CONTIGUOUS);
}

void
recipe_workspace(OpCase *c, Workspace workspace)
{
  add_step(c, STEP_WORKSPACE, 0)->index = (gint32) workspace;
}

/* ---- kernels ---- */

/* Is the forward op's tensor there: always in forward, in backward when the node has saved it. */
static gboolean
is_at_hand(const OpCase *c, int buffer)
{
  gboolean saved = !c->backward;
  for (int i = 0; i < c->saves; i++)
    saved |= c->saved[i] == buffer;
  return saved;
}

/* What an operand refers to: NULL when there is no such tensor. */
static const ValueInfo *
operand_info(const OpCase *c, char letter, int i, int *buffer)
{
  switch (letter) {
  case 'i':
    *buffer = IN(i);
    return i < c->ins && is_at_hand(c, IN(i)) ? &c->in[i] : NULL;
  case 'o':
    *buffer = OUT(i);
    return i < c->outs && is_at_hand(c, OUT(i)) ? &c->out[i] : NULL;
  case 't':
    *buffer = BUFFER_TEMP + i;
    return &c->temp[i];
  case 'g':
    *buffer = BUFFER_INCOMING + i;
    return i < c->outs ? &c->out[i] : NULL;
  case 'd':
    *buffer = BUFFER_GRAD + i;
    return c->has_grad[i] ? &c->grad[i] : NULL;
  default:
    g_assert_not_reached();
  }
}

/* Fills the kernel's operands; FALSE when nothing of what it writes exists (no gradient wanted). */
static gboolean
read_operands(const OpCase *c, OpKernel *kernel, const char *operands)
{
  gboolean writes = FALSE, may_write = FALSE;
  for (const char *p = operands; *p != '\0'; p++) {
    if (*p == ' ')
      continue;
    gboolean counts = *p != '~';
    if (!counts)
      p++;
    Role role = *p == '>' ? ROLE_WRITE : *p == '+' ? ROLE_ACCUMULATE : ROLE_READ;
    if (role != ROLE_READ)
      p++;
    int buffer = 0;
    const ValueInfo *info = operand_info(c, p[0], g_ascii_xdigit_value(p[1]), &buffer);
    p++;
    may_write |= role != ROLE_READ;
    if (info == NULL)
      continue;
    writes |= role != ROLE_READ;
    g_assert(kernel->operands < KERNEL_OPERANDS);
    kernel->operand[kernel->operands].buffer = (guint8) buffer;
    kernel->operand[kernel->operands].role = (guint8) role;
    kernel->operands++;
    kernel->kernel.bytes += counts ? (double) value_bytes(info) : 0;
  }
  return writes || !may_write;
}

void
recipe_means_text(OpCase *c, char *text)
{
  gsize length = g_strlcpy(c->meaning, text, sizeof(c->meaning));
  g_assert(length < sizeof(c->meaning));
  g_free(text);
}

void
recipe_means(OpCase *c, const char *formula, const char *key, double number)
{
  recipe_means_text(c, meaning_text(formula, key != NULL ? 1 : 0, key, number));
}

static void
add_kernel(OpCase *c, OpKernel kernel, const char *operands)
{
  memcpy(kernel.meaning, c->meaning, sizeof(kernel.meaning));
  memset(c->meaning, 0, sizeof(c->meaning));
  if (!read_operands(c, &kernel, operands))
    return;
  add_step(c, STEP_LAUNCH, 0)->index = (gint32) c->kernels->len;
  g_array_append_val(c->kernels, kernel);
}

void
recipe_launch(OpCase *c, const char *name, KernelKind kind, double flops, const char *operands)
{
  OpKernel kernel = {
      .name = name,
      .kernel = {.kind = (guint8) kind, .dtype = c->in[0].dtype, .launches = 1, .flops = flops},
  };
  if (kernel_is_attention(kind)) {
    kernel.kernel.variant = c->at.variant;
    kernel.kernel.m = c->at.batch * c->at.heads;
    kernel.kernel.n = c->at.length;
    kernel.kernel.k = c->at.head_dim;
  }
  add_kernel(c, kernel, operands);
}

void
recipe_padded_gemm(OpCase *c, const char *name, GemmSize size, double flops, const char *operands)
{
  OpKernel kernel = {
      .name = name,
      .kernel = {.kind = KERNEL_GEMM,
                 .dtype = c->out[0].dtype,
                 .launches = 1,
                 .m = size.batch * size.m,
                 .n = size.n,
                 .k = size.k,
                 .flops = flops},
  };
  add_kernel(c, kernel, operands);
}

void
recipe_gemm(OpCase *c, const char *name, GemmSize size, const char *operands)
{
  double flops = 2.0 * (double) size.batch * (double) size.m * (double) size.n * (double) size.k;
  recipe_padded_gemm(c, name, size, flops, operands);
}

/* ---- reductions and validation ---- */

static gint64
power_of_two_floor(gint64 n)
{
  gint64 power = 1;
  while (power * 2 <= n)
    power *= 2;
  return power;
}

/* The geometry for a reduction over the fast dimension: a block of all its threads, and as many of
 * them as find enough to do. */
ReduceScratch
reduce_scratch_of_all(gint64 n, gint64 bytes, DeviceLimits device)
{
  enum { THREADS = 512, LEAST = 16, MOST = 256 };
  gint64 values_per_thread = ceil_div(n, THREADS);
  gint64 target = device.sms * (device.max_threads_per_sm / THREADS);
  ReduceScratch none = {0, 0};
  if (values_per_thread < MOST)
    return none;
  gint64 ctas =
      MAX(MIN(target, ceil_div(values_per_thread, LEAST)), ceil_div(values_per_thread, MOST));
  return ctas <= 1 ? none : (ReduceScratch){.scratch = bytes * ctas, .semaphores = 4};
}

/* The geometry for a reduction over the slow dimension. */
static ReduceScratch
column_reduce_scratch(gint64 rows, gint64 n, DeviceLimits device)
{
  /* vectorised over outputs; max_threads is 512 / vector (512 = MAX_NUM_THREADS) */
  gint64 vector = n < 64 ? 1 : n % 4 == 0 ? 4 : n % 2 == 0 ? 2 : 1;
  gint64 columns = n / vector, threads = 512 / vector;
  gint64 width_limit = columns < threads ? power_of_two_floor(columns) : threads;
  gint64 height_limit = rows < threads ? power_of_two_floor(rows) : threads;
  gint64 width = MIN(width_limit, 32);
  gint64 height = MIN(height_limit, threads / width);
  width = MIN(width_limit, threads / height);
  ReduceScratch none = {0, 0};
  if (rows < MIN(height * 16, 256))
    return none;
  gint64 values_per_thread = ceil_div(rows, height);
  gint64 grid = ceil_div(columns, width);
  gint64 target = device.sms * (device.max_threads_per_sm / (width * height));
  if (values_per_thread < 256 || grid > target)
    return none;
  gint64 ctas = MAX(MIN(ceil_div(target, grid), ceil_div(values_per_thread, 16)),
                    ceil_div(values_per_thread, 256));
  if (ctas <= 1)
    return none;
  return (ReduceScratch){.scratch = 4 * n * ctas * width * vector, .semaphores = 4 * grid};
}

static void
column_scratch(OpCase *c, gint64 rows, gint64 n)
{
  ReduceScratch need = column_reduce_scratch(rows, n, c->device);
  if (need.scratch == 0)
    return;
  int scratch = recipe_temp(c, need.scratch, "reduction scratch");
  int semaphores = recipe_temp(c, need.semaphores, "reduction semaphores");
  recipe_release(c, semaphores);
  recipe_release(c, scratch);
}

int
recipe_column_sum(OpCase *c, gint64 rows, int input, int source)
{
  DType dtype = (DType) (source >= BUFFER_GRAD       ? c->grad[source - BUFFER_GRAD].dtype
                         : source >= BUFFER_INCOMING ? c->out[source - BUFFER_INCOMING].dtype
                                                     : c->in[input].dtype);
  int sum = recipe_temp_like(c, input, dtype, ORDER_DENSE);
  column_scratch(c, rows, value_elements(&c->in[input]));
  int base = source >= BUFFER_GRAD       ? BUFFER_GRAD
             : source >= BUFFER_INCOMING ? BUFFER_INCOMING
                                         : BUFFER_TEMP;
  char letter = base == BUFFER_GRAD ? 'd' : base == BUFFER_INCOMING ? 'g' : 't';
  g_autofree char *operands =
      g_strdup_printf("%c%x >t%x", letter, (guint) (source - base), (guint) (sum - BUFFER_TEMP));
  recipe_launch(c, "sum", KERNEL_MEMORY, 0, operands);
  return sum;
}

void
recipe_replace(OpCase *c, int i, int buffer, GradOrder order)
{
  OpStep *step = add_step(c, STEP_REPLACE, BUFFER_GRAD + i);
  step->source = (guint8) buffer;
  step->order = (guint8) order;
  note_grad(c, i, &c->temp[buffer - BUFFER_TEMP]);
  c->temp_used[buffer - BUFFER_TEMP] = FALSE;
}

static gboolean
same_shape(const ValueInfo *a, const ValueInfo *b)
{
  return a->dims == b->dims && memcmp(a->shape, b->shape, sizeof(gint64) * a->dims) == 0;
}

/* The gradient has another shape than the input, which was broadcast: it is summed over the
 * dimensions that it has more (even when all of them have size one: at::sum_to). */
static void
validate_shape(OpCase *c, int i)
{
  ValueInfo result = value_like(&c->in[i], (DType) c->grad[i].dtype);
  gint64 ratio = value_elements(&c->grad[i]) / value_elements(&result);
  gboolean trailing = result.dims == c->grad[i].dims && result.shape[result.dims - 1] == 1;
  if (!trailing) {
    int rows = recipe_column_sum(c, ratio, i, BUFFER_GRAD + i);
    recipe_replace(c, i, rows, ORDER_DENSE);
    return;
  }
  int sum = recipe_temp_like(c, i, (DType) result.dtype, ORDER_DENSE); /* one output a row: no
                                                                            scratch */
  g_autofree char *operands = g_strdup_printf("d%d >t%x", i, (guint) (sum - BUFFER_TEMP));
  recipe_launch(c, "sum", KERNEL_MEMORY, 0, operands);
  recipe_replace(c, i, sum, ORDER_DENSE);
}

static void
validate_dtype(OpCase *c, int i)
{
  int cast = recipe_temp_like(c, i, (DType) c->in[i].dtype, ORDER_SAME);
  g_autofree char *operands = g_strdup_printf("d%d >t%x", i, (guint) (cast - BUFFER_TEMP));
  recipe_launch(c, "to_copy", KERNEL_MEMORY, 0, operands);
  recipe_replace(c, i, cast, ORDER_SAME);
}

void
recipe_validate(OpCase *c)
{
  for (int i = 0; i < c->ins; i++) {
    if (!c->has_grad[i])
      continue;
    if (!same_shape(&c->grad[i], &c->in[i]))
      validate_shape(c, i);
    if (c->grad[i].dtype != c->in[i].dtype)
      validate_dtype(c, i);
  }
}

/* ---- recipes shared by rows ---- */

void
forward_outputs(OpCase *c)
{
  for (int i = 0; i < c->outs; i++)
    recipe_out(c, i, c->at.what != NULL ? c->at.what : c->info->name);
  GString *operands = g_string_new(NULL);
  for (int i = 0; i < c->ins; i++)
    g_string_append_printf(operands, "i%d ", i);
  for (int i = 0; i < c->outs; i++)
    g_string_append_printf(operands, ">o%d ", i);
  if (c->at.formula != NULL || c->at.key != NULL)
    recipe_means(c, c->at.formula != NULL ? c->at.formula : c->info->name, c->at.key, c->at.number);
  recipe_launch(c, c->info->name, KERNEL_MEMORY, 0, operands->str);
  g_string_free(operands, TRUE);
}

void
forward_create(OpCase *c)
{
  g_autoptr(GString) operands = g_string_new(NULL);
  recipe_out(c, 0, c->at.what != NULL ? c->at.what : c->info->name);
  for (int i = 0; i < c->ins; i++)
    g_string_append_printf(operands, "~i%d ", i);
  g_string_append(operands, ">o0");
  if (c->at.formula != NULL)
    recipe_means(c, c->at.formula, c->at.key, c->at.number);
  recipe_launch(c, c->info->name, KERNEL_MEMORY, 0, operands->str);
}

void
forward_alias(OpCase *c)
{
  recipe_alias(c, 0, 0);
}

void
forward_sum_rows(OpCase *c)
{
  gint64 n = value_elements(&c->out[0]);
  recipe_out(c, 0, "sum");
  column_scratch(c, value_elements(&c->in[0]) / n, n);
  recipe_launch(c, "sum", KERNEL_MEMORY, 0, "i0 >o0");
}

void
forward_slice(OpCase *c)
{
  recipe_alias(c, 0, c->at.size[0]);
}

void
backward_new(OpCase *c)
{
  static const char *const linear[] = {"to_copy", "mul_scalar", "div_scalar", "neg", NULL};
  gboolean same = g_strv_contains(linear, c->info->name);
  g_autofree char *derivative = g_strconcat(c->info->name, "_backward", NULL);
  recipe_grad(c, 0, ORDER_LIKE_INCOMING);
  if (!same || c->at.key != NULL)
    recipe_means(c, same ? c->info->name : derivative, c->at.key, c->at.number);
  recipe_launch(c, c->info->name, KERNEL_MEMORY, 0, "g0 i0 o0 i1 >d0");
}

void
backward_pass(OpCase *c)
{
  for (int i = 0; i < c->ins; i++)
    recipe_pass(c, i);
}

/* grad.reshape(input's sizes) */
void
backward_reshape(OpCase *c)
{
  recipe_reshape(c, 0);
}

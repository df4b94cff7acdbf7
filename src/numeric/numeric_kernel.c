/* numeric_kernel.c - finds what a kernel computes and runs it; what the functions share. */
#include "numeric/numeric_kernel.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "base/units.h"
#include "program/meaning.h"

const NumericKernel *
numeric_kernel_find(const char *formula)
{
  static const NumericKernel *const tables[] = {
      numeric_elementwise, numeric_binary,     numeric_masks,     numeric_reductions,
      numeric_matmuls,     numeric_norms,      numeric_attention, numeric_losses,
      numeric_copies,      numeric_optimizers, numeric_creations, numeric_flags,
      numeric_numbers};
  for (guint i = 0; i < G_N_ELEMENTS(tables); i++)
    for (const NumericKernel *k = tables[i]; k->formula != NULL; k++)
      if (strcmp(k->formula, formula) == 0)
        return k;
  return NULL;
}

static void
run_row(KernelCall *call, const NumericKernel *kernel)
{
  call->row = kernel;
  kernel->run(call);
}

/* Tensors without elements are in no memory, and so no operands. */
static gboolean
writes_anything(const KernelCall *call)
{
  for (int i = 0; i < call->operands; i++)
    if (call->operand[i].role != ROLE_READ)
      return TRUE;
  return FALSE;
}

gboolean
numeric_kernel_run(KernelCall *call, GError **error)
{
  g_autofree char *formula =
      meaning_formula(call->program, call->kernel->meaning, call->kernel->name);
  const NumericKernel *kernel = numeric_kernel_find(formula);
  if (kernel == NULL)
    numeric_fail(call, "nobody has said what it computes");
  else if (call->is_hosts || writes_anything(call))
    run_row(call, kernel);
  if (call->fault == NULL)
    return TRUE;
  g_set_error(
      error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT, "kernel %s%s%s: %s",
      program_text(call->program, call->kernel->name), call->kernel->meaning > 0 ? " = " : "",
      call->kernel->meaning > 0 ? program_text(call->program, call->kernel->meaning - 1) : "",
      call->fault);
  g_clear_pointer(&call->fault, g_free);
  return FALSE;
}

void
numeric_fail(KernelCall *call, const char *format, ...)
{
  va_list arguments;
  if (call->fault != NULL)
    return;
  va_start(arguments, format);
  call->fault = g_strdup_vprintf(format, arguments);
  va_end(arguments);
}

/* ---- operands ---- */

static NumericTensor *
operand(KernelCall *call, int i, gboolean written)
{
  for (int k = 0; k < call->operands; k++)
    if ((call->operand[k].role != ROLE_READ) == written && i-- == 0)
      return &call->operand[k];
  numeric_fail(call, "it %s fewer operands than it needs", written ? "writes" : "reads");
  return NULL;
}

const NumericTensor *
numeric_read(KernelCall *call, int i)
{
  return operand(call, i, FALSE);
}

NumericTensor *
numeric_written(KernelCall *call, int i)
{
  return operand(call, i, TRUE);
}

int
numeric_reads(const KernelCall *call)
{
  int n = 0;
  for (int k = 0; k < call->operands; k++)
    n += call->operand[k].role == ROLE_READ;
  return n;
}

double
numeric_number_or(const KernelCall *call, const char *key, double otherwise)
{
  double value = otherwise;
  meaning_number(call->program, call->kernel->meaning, key, &value);
  return value;
}

double
numeric_number(KernelCall *call, const char *key)
{
  double value = 0;
  if (!meaning_number(call->program, call->kernel->meaning, key, &value))
    numeric_fail(call, "its meaning lacks a number: %s", key);
  return value;
}

gboolean
numeric_same_size(KernelCall *call, const NumericTensor *a, const NumericTensor *b)
{
  if (a == NULL || b == NULL)
    return FALSE;
  if (a->elements == b->elements)
    return TRUE;
  numeric_fail(
      call, "operands of %" G_GINT64_FORMAT " and %" G_GINT64_FORMAT " elements do not go together",
      a->elements, b->elements);
  return FALSE;
}

double *
numeric_broadcast(KernelCall *call, const NumericTensor *t, const NumericTensor *like)
{
  gint64 stride[TENSOR_MAX_DIMS + 1] = {0}, step = 1;
  if (t == NULL || like == NULL)
    return NULL;
  double *out = g_new(double, MAX(like->elements, 1));
  if (t->elements == like->elements) {
    memcpy(out, t->data, sizeof(double) * (gsize) t->elements);
    return out;
  }
  gboolean fits = t->dims <= like->dims;
  for (int i = t->dims - 1, k = like->dims - 1; i >= 0 && fits; i--, k--) {
    fits = t->shape[i] == like->shape[k] || t->shape[i] == 1;
    stride[k] = t->shape[i] == 1 ? 0 : step;
    step *= t->shape[i];
  }
  if (!fits) {
    numeric_fail(call, "an operand does not broadcast to the other's shape");
    g_free(out);
    return NULL;
  }
  gint64 index[TENSOR_MAX_DIMS + 1] = {0}, at = 0;
  for (gint64 i = 0; i < like->elements; i++) {
    out[i] = t->data[at];
    for (int k = like->dims - 1; k >= 0; k--) {
      at += stride[k];
      if (++index[k] < like->shape[k])
        break;
      at -= stride[k] * like->shape[k];
      index[k] = 0;
    }
  }
  return out;
}

/* ---- functions of one number ---- */

static double
own_number(KernelCall *call)
{
  const NumericKernel *row = call->row;
  if (row->key == NULL)
    return 0;
  return isnan(row->otherwise) ? numeric_number(call, row->key)
                               : numeric_number_or(call, row->key, row->otherwise);
}

void
numeric_apply(KernelCall *call)
{
  NumericTensor *y = numeric_written(call, 0);
  const NumericTensor *x = numeric_reads(call) > 0 ? numeric_read(call, 0) : y; /* in place */
  double number = own_number(call);
  if (!numeric_same_size(call, x, y))
    return;
  for (gint64 i = 0; i < y->elements; i++)
    y->data[i] = call->row->f(x->data[i], number);
}

void
numeric_apply_backward(KernelCall *call)
{
  const NumericTensor *g = numeric_read(call, 0), *saved = numeric_read(call, 1);
  NumericTensor *d = numeric_written(call, 0);
  double number = own_number(call);
  if (!numeric_same_size(call, g, d) || !numeric_same_size(call, saved, d))
    return;
  for (gint64 i = 0; i < d->elements; i++)
    d->data[i] = g->data[i] * call->row->f(saved->data[i], number);
}

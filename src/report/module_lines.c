/* module_lines.c - the table of a network's modules, with blocks that are alike folded into one
 * line. */
#include <string.h>

#include "report/network_summary.h"

/* A path behind its block's ("layers.3.attention" is ".attention" in layers.3). */
static const char *
inside(const Network *network, const Block *block, const char *path)
{
  return path + strlen(network_module(network, block->module)->path);
}

static gboolean
parameters_are_alike(const Network *n, const Block *x, const Block *y)
{
  if (x->parameter_count != y->parameter_count)
    return FALSE;
  for (int i = 0; i < x->parameter_count; i++) {
    const Parameter *p = network_parameter(n, x->first_parameter + i);
    const Parameter *q = network_parameter(n, y->first_parameter + i);
    if (p->dims != q->dims || p->trainable != q->trainable ||
        memcmp(p->shape, q->shape, sizeof p->shape) != 0 ||
        strcmp(inside(n, x, p->name), inside(n, y, q->name)) != 0)
      return FALSE;
  }
  return TRUE;
}

gboolean
blocks_are_alike(const Network *n, int a, int b)
{
  const Block *x = network_block(n, a), *y = network_block(n, b);
  if (x->modules != y->modules)
    return FALSE;
  for (int i = 0; i < x->modules; i++) {
    const Module *m = network_module(n, x->module + i), *k = network_module(n, y->module + i);
    if (strcmp(m->type, k->type) != 0 || m->parameter_count != k->parameter_count ||
        strcmp(inside(n, x, m->path), inside(n, y, k->path)) != 0)
      return FALSE;
  }
  return parameters_are_alike(n, x, y);
}

char *
block_run_path(const Network *network, int first, int count)
{
  const char *path = network_module(network, network_block(network, first)->module)->path;
  return count == 1 ? g_strdup(path) : g_strdup_printf("%s-%d", path, first + count - 1);
}

/* How many blocks from this one on are alike and follow each other under the same parent. */
static int
run_length(const Network *n, int first)
{
  const Block *block = network_block(n, first);
  int count = 1;
  while ((guint) (first + count) < n->blocks->len) {
    const Block *next = network_block(n, first + count);
    gboolean follows =
        next->module == block->module + count * block->modules &&
        network_module(n, next->module)->parent == network_module(n, block->module)->parent;
    if (!follows || !blocks_are_alike(n, first, first + count))
      break;
    count++;
  }
  return count;
}

/* Elements of a module's own parameters. */
static gint64
own_elements(const Network *network, int module)
{
  const Module *m = network_module(network, module);
  gint64 elements = 0;
  for (int i = 0; i < m->parameter_count; i++)
    elements += network_parameter(network, m->first_parameter + i)->elements;
  return elements;
}

/* Elements of every module with what lies below it: parents come before their children. */
static gint64 *
elements_below(const Network *network)
{
  guint n = network->modules->len;
  gint64 *elements = g_new0(gint64, n);
  for (guint i = n; i > 0; i--) {
    int module = (int) i - 1, parent = network_module(network, module)->parent;
    elements[module] += own_elements(network, module);
    if (parent >= 0)
      elements[parent] += elements[module];
  }
  return elements;
}

/* Appends a line for each module of a run of blocks; returns the first module behind them. */
static int
add_run(const Network *n, int first, const gint64 *elements, GArray *lines)
{
  const Block *block = network_block(n, first);
  int count = run_length(n, first);
  g_autofree char *run = block_run_path(n, first, count);
  for (int i = 0; i < block->modules; i++) {
    int module = block->module + i;
    ModuleLine line = {
        .path = g_strconcat(run, inside(n, block, network_module(n, module)->path), NULL),
        .module = module,
        .count = count,
        .parameters = count * elements[module],
        .own_parameters = count * own_elements(n, module),
    };
    g_array_append_val(lines, line);
  }
  return block->module + count * block->modules;
}

static void
module_line_clear(gpointer data)
{
  g_free(((ModuleLine *) data)->path);
}

GArray *
module_lines(const Network *n)
{
  GArray *lines = g_array_new(FALSE, FALSE, sizeof(ModuleLine));
  g_array_set_clear_func(lines, module_line_clear);
  g_autofree gint64 *elements = elements_below(n);
  int i = 0;
  while ((guint) i < n->modules->len) {
    const Module *m = network_module(n, i);
    if (m->block >= 0) {
      i = add_run(n, m->block, elements, lines);
      continue;
    }
    ModuleLine line = {g_strdup(m->path), i, 1, elements[i], own_elements(n, i)};
    g_array_append_val(lines, line);
    i++;
  }
  return lines;
}

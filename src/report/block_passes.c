/* block_passes.c - when the host was at which block of the network. */
#include "report/block_passes.h"
#include <string.h>

gsize
block_path_length(const char *path)
{
  const char *component = path;
  while (*component) {
    gsize length = strcspn(component, ".");
    if (length > 0 && strspn(component, "0123456789") == length)
      return (gsize) (component - path) + length;
    component += length + (component[length] == '.');
  }
  return strlen(path);
}

static int
by_issue(gconstpointer a, gconstpointer b)
{
  const Span *x = *(const Span *const *) a, *y = *(const Span *const *) b;
  return (x->issued > y->issued) - (x->issued < y->issued);
}

/* Kernels that belong to a module and to a phase that goes through the network. */
static GPtrArray *
kernels_of_modules(const Recording *recording, SimTime from, SimTime to)
{
  gint32 forward = recording_find_string(recording, "forward");
  gint32 backward = recording_find_string(recording, "backward");
  GPtrArray *kernels = g_ptr_array_new();
  for (guint i = 0; i < recording->spans->len; i++) {
    Span *span = &g_array_index(recording->spans, Span, i);
    if (span->kind != SPAN_KERNEL || span->module < 0 || span->phase == 0 || span->issued < from ||
        span->issued > to)
      continue;
    gint32 phase = g_array_index(recording->ranges, Range, span->phase - 1).name;
    if (phase == forward || phase == backward)
      g_ptr_array_add(kernels, span);
  }
  g_ptr_array_sort(kernels, by_issue);
  return kernels;
}

static gboolean
is_same_block(const Recording *recording, const BlockPass *pass, const Span *span)
{
  if (pass->phase != span->phase - 1)
    return FALSE;
  if (pass->block == span->module)
    return TRUE;
  const char *path = recording_text(recording, span->module);
  return (int) block_path_length(path) == pass->length &&
         strncmp(path, recording_text(recording, pass->block), (gsize) pass->length) == 0;
}

GArray *
block_passes(const Recording *recording, SimTime from, SimTime to)
{
  GArray *passes = g_array_new(FALSE, FALSE, sizeof(BlockPass));
  g_autoptr(GPtrArray) kernels = kernels_of_modules(recording, from, to);
  for (guint i = 0; i < kernels->len; i++) {
    const Span *span = kernels->pdata[i];
    BlockPass *last = passes->len ? &g_array_index(passes, BlockPass, passes->len - 1) : NULL;
    if (last && is_same_block(recording, last, span)) {
      last->end = span->issued;
      continue;
    }
    const BlockPass pass = {
        .start = span->issued,
        .end = span->issued,
        .block = span->module,
        .length = (int) block_path_length(recording_text(recording, span->module)),
        .phase = span->phase - 1,
    };
    g_array_append_val(passes, pass);
  }
  return passes;
}

/* experiment.c - experiments as text, and what they need. */
#include "calibrate/experiment.h"

#include "base/units.h"
#include "spec/dtype.h"

static const char *const kind_names[EXPERIMENT_KIND_COUNT] = {
#define X(name, text) [EXPERIMENT_##name] = text,
    EXPERIMENT_KINDS(X)
#undef X
};

const char *
experiment_kind_name(ExperimentKind kind)
{
  return kind_names[kind];
}

static void
append_call(GString *text, const CollectiveCall *call)
{
  g_autofree char *bytes = format_bytes(call->bytes);
  g_string_append_printf(text, "%s of %s%s, %d ranks", program_collective_name(call->collective),
                         bytes, call->in_place ? " in place" : "", call->group.ranks);
  if (call->group.stride != 1)
    g_string_append_printf(text, " %d apart", call->group.stride);
}

static void
append_subject(GString *text, const Experiment *e)
{
  if (e->kind == EXPERIMENT_COLLECTIVE) {
    append_call(text, &e->call);
    return;
  }
  g_string_append(text, experiment_kind_name(e->kind));
  if (e->kind == EXPERIMENT_GEMM)
    g_string_append_printf(text,
                           " %s %" G_GINT64_FORMAT " x %" G_GINT64_FORMAT " x %" G_GINT64_FORMAT,
                           dtype_name(e->dtype), e->m, e->n, e->k);
  if (e->kind == EXPERIMENT_GEMM && e->batch > 1)
    g_string_append_printf(text, ", %" G_GINT64_FORMAT " at once", e->batch);
  if (e->bytes > 0) {
    g_autofree char *bytes = format_bytes(e->bytes);
    g_string_append_printf(text, " of %s", bytes);
  }
}

char *
experiment_text(const Experiment *e)
{
  GString *text = g_string_new(NULL);
  append_subject(text, e);
  if (e->beside == BESIDE_TRAFFIC)
    g_string_append_printf(text, " beside %d blocks of traffic", e->blocks);
  if (e->beside == BESIDE_COLLECTIVE) {
    g_string_append(text, " beside ");
    append_call(text, &e->second);
  }
  return g_string_free(text, FALSE);
}

/* Send and receive buffers: the full one and a shard, or both full. */
static gint64
call_bytes(const CollectiveCall *call)
{
  gint64 shard = ceil_div(call->bytes, MAX(call->group.ranks, 1));
  gboolean sharded =
      call->collective == COLLECTIVE_ALL_GATHER || call->collective == COLLECTIVE_REDUCE_SCATTER;
  if (call->in_place)
    return call->bytes;
  return call->bytes + (sharded ? shard : call->bytes);
}

gint64
experiment_device_bytes(const Experiment *e)
{
  gint64 bytes = e->bytes;
  if (e->kind == EXPERIMENT_GEMM)
    bytes = dtype_size(e->dtype) * (e->m * e->k + e->n * e->k + e->m * e->n) * MAX(e->batch, 1);
  if (e->kind == EXPERIMENT_COLLECTIVE)
    bytes = call_bytes(&e->call);
  if (e->beside == BESIDE_COLLECTIVE)
    bytes += call_bytes(&e->second);
  return bytes;
}

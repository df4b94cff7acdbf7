/* measured_collectives.c - sorts measured collectives into curves of time against size. */
#include "calibrate/measured_collectives.h"

#include <string.h>

#include "base/units.h"

static gboolean
is_alone(const Measurement *m)
{
  return m->experiment.kind == EXPERIMENT_COLLECTIVE && m->experiment.beside == BESIDE_NOTHING &&
         m->median_ns > 0;
}

static gboolean
same_curve(const CollectiveCall *a, const CollectiveCall *b)
{
  return a->collective == b->collective && a->in_place == b->in_place &&
         memcmp(&a->group, &b->group, sizeof(a->group)) == 0;
}

/* Nodes that a group's ranks are on, when the job's ranks fill one node after the other. */
static int
nodes_of(RankGroup group, int per_node)
{
  int on_one = MAX(per_node / group.stride, 1);
  return (int) ceil_div(group.ranks, on_one);
}

static GArray *
samples_of(const Measurements *measured, const CollectiveCall *call)
{
  GArray *samples = g_array_new(FALSE, FALSE, sizeof(FitSample));
  for (guint i = 0; i < measured->measurements->len; i++) {
    const Measurement *m = g_ptr_array_index(measured->measurements, i);
    if (!is_alone(m) || !same_curve(&m->experiment.call, call))
      continue;
    FitSample sample = {m->experiment.call.bytes, m->median_ns / 1e3};
    g_array_append_val(samples, sample);
  }
  return samples;
}

static gboolean
is_first_of_curve(const Measurements *measured, guint i)
{
  const Measurement *m = g_ptr_array_index(measured->measurements, i);
  for (guint j = 0; j < i; j++) {
    const Measurement *earlier = g_ptr_array_index(measured->measurements, j);
    if (is_alone(earlier) && same_curve(&earlier->experiment.call, &m->experiment.call))
      return FALSE;
  }
  return TRUE;
}

static char *
remark_of(const Measurements *measured, const CollectiveCall *call)
{
  const ProbeFacts *facts = &measured->facts;
  g_autofree char *apart =
      call->group.stride > 1 ? g_strdup_printf(", %d apart", call->group.stride) : g_strdup("");
  if (measured->in_step)
    return g_strdup_printf("the shortest of each size in a step%s; %s%s%s", apart, facts->device,
                           facts->nccl[0] != '\0' ? "; NCCL " : "", facts->nccl);
  return g_strdup_printf("%s%s; %s; NCCL %s", call->in_place ? "in place" : "out of place", apart,
                         facts->device, facts->nccl);
}

static CalibratedCollective *
calibrate_curve(const Measurements *measured, const CollectiveCall *call, int per_node,
                const char *source)
{
  g_autoptr(GArray) samples = samples_of(measured, call);
  if (samples->len < 2)
    return NULL;
  g_autofree char *remark = remark_of(measured, call);
  const MeasuredCollective about = {
      .source = source,
      .collective = program_collective_name(call->collective),
      .ranks = call->group.ranks,
      .nodes = nodes_of(call->group, per_node),
      .remark = remark,
  };
  return calibrated_collective_new(&about, (const FitSample *) (const void *) samples->data,
                                   samples->len);
}

GPtrArray *
measured_collectives(const Measurements *measured, const ClusterSpec *cluster, const char *source)
{
  GPtrArray *collectives = calibrated_collectives_new();
  int of_node = measured->facts.ranks_of_node;
  int per_node = of_node > 0 ? of_node : cluster->gpus_per_node;
  for (guint i = 0; i < measured->measurements->len; i++) {
    const Measurement *m = g_ptr_array_index(measured->measurements, i);
    if (!is_alone(m) || !is_first_of_curve(measured, i))
      continue;
    CalibratedCollective *one = calibrate_curve(measured, &m->experiment.call, per_node, source);
    if (one == NULL)
      continue;
    calibrated_collective_compare(one, cluster);
    g_ptr_array_add(collectives, one);
  }
  return collectives;
}

/* shard.c - sharding along dimension 0, as torch.chunk cuts it
 * (torch/distributed/fsdp/_fully_shard/_fsdp_param.py). */
#include "strategy/shard.h"

#include "base/units.h"

static gint64
rows_of(const Parameter *parameter)
{
  return parameter->dims > 0 ? parameter->shape[0] : 1;
}

static gint64
width_of(const Parameter *parameter)
{
  gint64 rows = rows_of(parameter);
  return rows > 0 ? parameter->elements / rows : 0;
}

gint64
shard_padded_elements(const Parameter *parameter, int ranks)
{
  return ceil_div(rows_of(parameter), ranks) * width_of(parameter);
}

Shard
shard_of(const Parameter *parameter, int ranks, int rank)
{
  gint64 rows = rows_of(parameter), chunk = ceil_div(rows, ranks);
  gint64 first = MIN((gint64) rank * chunk, rows), last = MIN(first + chunk, rows);
  gint64 padded = shard_padded_elements(parameter, ranks);
  return (Shard){
      .padded_elements = padded,
      .full_elements = ranks * padded,
      .local_elements = (last - first) * width_of(parameter),
  };
}

gboolean
shards_differ(const Network *network, int ranks, int a, int b)
{
  for (guint i = 0; i < network->parameters->len; i++) {
    const Parameter *p = network_parameter(network, (int) i);
    if (shard_of(p, ranks, a).local_elements != shard_of(p, ranks, b).local_elements)
      return TRUE;
  }
  return FALSE;
}

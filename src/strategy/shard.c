/* shard.c - sharding along dimension 0, as torch.chunk cuts it
 * (torch/distributed/fsdp/_fully_shard/_fsdp_param.py). */
#include "strategy/shard.h"

#include "base/units.h"

Shard
shard_of(const Parameter *parameter, int ranks, int rank)
{
  gint64 rows = parameter->dims > 0 ? parameter->shape[0] : 1;
  gint64 width = rows > 0 ? parameter->elements / rows : 0;
  gint64 chunk = ceil_div(rows, ranks);
  gint64 first = MIN((gint64) rank * chunk, rows), last = MIN(first + chunk, rows);
  return (Shard){
      .padded_elements = chunk * width,
      .full_elements = ranks * chunk * width,
      .local_elements = (last - first) * width,
  };
}

/* plan_axes.c - the table of what is varied when a plan is looked for. */
#include "search/plan_space_internal.h"

const PlanAxisInfo plan_axes[AXIS_COUNT] = {
    [AXIS_SHARDING] = {"sharding", "strategy", NULL, NULL, NULL, FALSE},
    [AXIS_CHECKPOINTING] =
        {"checkpointing", "activation_checkpointing.policy",
         "none|activation_checkpointing.policy=none "
         "selective_op|activation_checkpointing.policy=selective_op "
         "every-2|activation_checkpointing.policy=every_n&activation_checkpointing.every=2 "
         "full|activation_checkpointing.policy=full",
         "\"none\"", NULL, FALSE},
    [AXIS_MICRO_BATCH] = {"micro-batch", "batch.micro_batch", NULL, NULL, NULL, FALSE},
    [AXIS_RESHARD] = {"reshard after forward", "fsdp.reshard_after_forward", "true false", "null",
                      "fsdp2", FALSE},
    [AXIS_GROUPS] = {"blocks a group", "fsdp.blocks_per_group", "1 2 4 8", "1", "fsdp2 fsdp1",
                     FALSE},
    [AXIS_FORWARD_PREFETCH] = {"forward prefetch", "fsdp.forward_prefetch", "0 1 2", "0", "fsdp2",
                               FALSE},
    [AXIS_BACKWARD_PREFETCH] = {"backward prefetch", "fsdp.backward_prefetch", "0 1 2", "0",
                                "fsdp2", FALSE},
    [AXIS_EMBEDDING] = {"embedding's group", "fsdp.embedding", "own root", "\"root\"", "fsdp2",
                        FALSE},
    [AXIS_HEAD] = {"head's group", "fsdp.head", "own root", "\"root\"", "fsdp2", FALSE},
    [AXIS_SYNC] = {"reduces every micro-batch", "accumulation.sync_every_step", "true false",
                   "true", "fsdp2 ddp", TRUE},
    [AXIS_BUCKET] = {"bucket MiB", "ddp.bucket_cap_mb", "25 100", "25", "ddp", FALSE},
};

const char *
plan_axis_name(PlanAxis axis)
{
  return plan_axes[axis].name;
}

const char *
plan_axis_key(PlanAxis axis)
{
  return plan_axes[axis].key;
}

/* run_info_fields.c - which fields of a RunInfo its file has, under which names. */
#include "report/run_info_fields.h"

#define PLAIN(type_, struct_, member, name_)                                                       \
  .name = (name_), .offset = G_STRUCT_OFFSET(struct_, member),                                     \
  .size = sizeof(((struct_ *) NULL)->member), .type = (type_)
#define FIELD(type_, struct_, member, name_)                                                       \
  {                                                                                                \
    PLAIN(type_, struct_, member, name_)                                                           \
  }
#define NAMED(type_, struct_, member, name_, names_)                                               \
  {                                                                                                \
    PLAIN(type_, struct_, member, name_), .of.names = (names_)                                     \
  }
#define INSIDE(type_, struct_, member, name_, fields_)                                             \
  {                                                                                                \
    .name = (name_), .offset = G_STRUCT_OFFSET(struct_, member), .type = (type_),                  \
    .of.fields = (fields_)                                                                         \
  }
#define ROWS(struct_, member, name_, fields_, row)                                                 \
  {                                                                                                \
    PLAIN(INFO_ROWS, struct_, member, name_), .of.fields = (fields_), .row_size = sizeof(row)      \
  }
#define END                                                                                        \
  {                                                                                                \
    .name = NULL                                                                                   \
  }

static const char *const origin_names[] = {
    [ORIGIN_DEFAULT] = "default",
    [ORIGIN_IMPORTED] = "imported",
    [ORIGIN_MEASURED] = "measured",
    NULL,
};
static const char *const compile_names[] = {"none", "per_block", NULL};
static const char *const phase_names[] = {
    [FAILURE_ZERO_GRAD] = "zero_grad", [FAILURE_FORWARD] = "forward",
    [FAILURE_BACKWARD] = "backward",   [FAILURE_CLIP] = "clip",
    [FAILURE_OPTIMIZER] = "optimizer", [FAILURE_PHASES] = NULL,
};

static const InfoField group_fields[] = {
    FIELD(INFO_NAME, GroupInfo, name, "name"),
    FIELD(INFO_TEXTS, GroupInfo, modules, "modules"),
    FIELD(INFO_COUNT, GroupInfo, parameters, "parameters"),
    FIELD(INFO_COUNT, GroupInfo, unsharded_bytes, "unsharded_bytes"),
    FIELD(INFO_COUNT, GroupInfo, shard_bytes, "shard_bytes"),
    FIELD(INFO_COUNT, GroupInfo, forward_prefetches, "forward_prefetches"),
    FIELD(INFO_COUNT, GroupInfo, backward_prefetches, "backward_prefetches"),
    FIELD(INFO_COUNT, GroupInfo, forward_prefetched_bytes, "forward_prefetched_bytes"),
    FIELD(INFO_COUNT, GroupInfo, backward_prefetched_bytes, "backward_prefetched_bytes"),
    END,
};

static const InfoField retained_fields[] = {
    FIELD(INFO_NAME, RetainedInfo, group, "group"),
    FIELD(INFO_NAME, RetainedInfo, held_by, "held_by"),
    FIELD(INFO_COUNT, RetainedInfo, bytes, "bytes"),
    END,
};

static const InfoField phase_fields[] = {
    FIELD(INFO_NAME, PhaseInfo, name, "name"),
    FIELD(INFO_COUNT, PhaseInfo, communication_bytes, "communication_bytes"),
    FIELD(INFO_COUNT, PhaseInfo, host_copy_bytes, "host_copy_bytes"),
    FIELD(INFO_FLAG, PhaseInfo, has_state, "has_state"),
    {
        PLAIN(INFO_COUNTS, PhaseInfo, source_bytes, "source_bytes"),
        .of.length_offset = G_STRUCT_OFFSET(PhaseInfo, sources),
    },
    FIELD(INFO_COUNT, PhaseInfo, state_bytes, "state_bytes"),
    FIELD(INFO_SIGNED, PhaseInfo, rank_0_bytes, "rank_0_bytes"),
    FIELD(INFO_SIGNED, PhaseInfo, others_bytes, "others_bytes"),
    END,
};

static const InfoField communicator_fields[] = {
    FIELD(INFO_NAME, CommunicatorInfo, name, "name"),
    FIELD(INFO_COUNT, CommunicatorInfo, ranks, "ranks"),
    FIELD(INFO_TEXT, CommunicatorInfo, link, "link"),
    FIELD(INFO_COUNT, CommunicatorInfo, stride, "stride"),
    END,
};

static const InfoField constant_fields[] = {
    FIELD(INFO_NAME, ConstantSource, name, "name"),
    NAMED(INFO_CHOICE, ConstantSource, origin, "origin", origin_names),
    END,
};

static const InfoField ranks_fields[] = {
    FIELD(INFO_COUNT, RanksInfo, ranks, "ranks"),
    FIELD(INFO_COUNT, RanksInfo, simulated, "simulated"),
    FIELD(INFO_COUNT, RanksInfo, described_class, "described_stands_for"),
    FIELD(INFO_COUNT, RanksInfo, slowest, "slowest"),
    FIELD(INFO_NUMBER, RanksInfo, slowest_compute, "slowest_compute"),
    FIELD(INFO_COUNT, RanksInfo, waited, "waited_ns"),
    FIELD(INFO_COUNT, RanksInfo, step_of_equals, "step_of_equals_ns"),
    FIELD(INFO_COUNT, RanksInfo, peak_reserved, "peak_reserved_bytes"),
    END,
};

static const InfoField prefetch_fields[] = {
    FIELD(INFO_COUNT, PrefetchInfo, budget, "budget_bytes"),
    FIELD(INFO_COUNT, PrefetchInfo, most, "most_bytes"),
    FIELD(INFO_COUNT, PrefetchInfo, own_peak, "own_peak_bytes"),
    FIELD(INFO_COUNT, PrefetchInfo, own_reserved, "own_reserved_bytes"),
    FIELD(INFO_COUNT, PrefetchInfo, own_step, "own_step_ns"),
    FIELD(INFO_COUNT, PrefetchInfo, groups_without, "groups_without"),
    END,
};

static const InfoField startup_fields[] = {
    FIELD(INFO_COUNT, StartupInfo, collectives, "collectives"),
    FIELD(INFO_COUNT, StartupInfo, time, "time_ns"),
    END,
};

/* ---- a failure ---- */

static const InfoField at_fields[] = {
    FIELD(INFO_FLAG, FailureSpec, given, "given"),
    FIELD(INFO_COUNT, FailureSpec, rank, "rank"),
    FIELD(INFO_COUNT, FailureSpec, step, "step"),
    NAMED(INFO_CHOICE, FailureSpec, phase, "phase", phase_names),
    FIELD(INFO_COUNT, FailureSpec, micro_batch, "micro_batch"),
    FIELD(INFO_NUMBER, FailureSpec, fraction, "fraction"),
    FIELD(INFO_FLAG, FailureSpec, last_save_given, "last_save_given"),
    FIELD(INFO_COUNT, FailureSpec, last_save, "last_save"),
    END,
};

static const InfoField reduction_fields[] = {
    FIELD(INFO_NAME, ReductionState, group, "group"),
    FIELD(INFO_COUNT, ReductionState, all, "all"),
    FIELD(INFO_COUNT, ReductionState, done, "done"),
    FIELD(INFO_COUNT, ReductionState, in_flight, "in_flight"),
    FIELD(INFO_COUNT, ReductionState, queued, "queued"),
    END,
};

static const InfoField held_fields[] = {
    FIELD(INFO_COUNT, HeldLoss, lost_bytes, "lost_bytes"),
    FIELD(INFO_COUNT, HeldLoss, spread, "spread_over"),
    FIELD(INFO_RANKS, HeldLoss, copies, "copies_on"),
    FIELD(INFO_RANKS, HeldLoss, others, "other_parts_on"),
    FIELD(INFO_COUNT, HeldLoss, tensors, "tensors"),
    FIELD(INFO_COUNT, HeldLoss, updated, "written"),
    FIELD(INFO_COUNT, HeldLoss, updated_bytes, "written_bytes"),
    END,
};

static const InfoField stuck_fields[] = {
    FIELD(INFO_NAME, StuckInfo, communicator, "communicator"),
    FIELD(INFO_NAME, StuckInfo, collective, "collective"),
    FIELD(INFO_TEXT, StuckInfo, group, "group"),
    FIELD(INFO_COUNT, StuckInfo, number, "number"),
    FIELD(INFO_COUNT, StuckInfo, bytes, "bytes"),
    FIELD(INFO_COUNT, StuckInfo, step, "step"),
    FIELD(INFO_RANKS, StuckInfo, waiting, "waiting"),
    FIELD(INFO_RANKS, StuckInfo, missing, "missing"),
    FIELD(INFO_FLAG, StuckInfo, failed_inside, "failed_inside"),
    END,
};

static const InfoField failure_fields[] = {
    INSIDE(INFO_OBJECT, Failure, spec, "at", at_fields),
    FIELD(INFO_COUNT, Failure, time, "time_ns"),
    FIELD(INFO_COUNT, Failure, micro_batches, "micro_batches"),
    FIELD(INFO_COUNT, Failure, micro_batches_done, "micro_batches_done"),
    FIELD(INFO_CATEGORIES, Failure, alive, "alive_bytes"),
    ROWS(Failure, reductions, "reductions", reduction_fields, ReductionState),
    INSIDE(INFO_OBJECT, Failure, held[HELD_PARAMETERS], "parameters", held_fields),
    INSIDE(INFO_OBJECT, Failure, held[HELD_OPTIMIZER_STATE], "optimizer_state", held_fields),
    FIELD(INFO_FLAG, Failure, others_agree, "others_agree"),
    FIELD(INFO_SIGNED, Failure, others_step, "others_step"),
    FIELD(INFO_FLAG, Failure, from_others, "from_others"),
    FIELD(INFO_COUNT, Failure, last_step, "last_step"),
    FIELD(INFO_COUNT, Failure, lost, "lost_ns"),
    ROWS(Failure, stuck, "stuck", stuck_fields, StuckInfo),
    END,
};

/* ---- all ---- */

const InfoField run_info_fields[] = {
    FIELD(INFO_TEXT, RunInfo, model, "model"),
    FIELD(INFO_COUNT, RunInfo, parameters, "parameters"),
    FIELD(INFO_COUNT, RunInfo, trainable_parameters, "trainable_parameters"),
    FIELD(INFO_TEXT, RunInfo, strategy, "strategy"),
    FIELD(INFO_TEXT, RunInfo, checkpointing, "checkpointing"),
    NAMED(INFO_STATIC, RunInfo, compile, "compile", compile_names),
    FIELD(INFO_COUNT, RunInfo, shard, "shard"),
    FIELD(INFO_COUNT, RunInfo, replicate, "replicate"),
    FIELD(INFO_COUNT, RunInfo, micro_batch, "micro_batch"),
    FIELD(INFO_COUNT, RunInfo, sequence_length, "sequence_length"),
    FIELD(INFO_COUNT, RunInfo, accumulation_steps, "accumulation_steps"),
    FIELD(INFO_SIGNED, RunInfo, equivalent_zero_stage, "equivalent_zero_stage"),
    FIELD(INFO_FLAG, RunInfo, split_tied, "split_tied"),
    FIELD(INFO_NUMBER, RunInfo, elements_sent, "elements_sent"),
    FIELD(INFO_COUNT, RunInfo, pinned_bytes, "pinned_bytes"),
    FIELD(INFO_COUNT, RunInfo, pageable_bytes, "pageable_bytes"),
    FIELD(INFO_TEXT, RunInfo, device, "device"),
    FIELD(INFO_TEXT, RunInfo, cluster, "cluster"),
    FIELD(INFO_COUNT, RunInfo, nodes, "nodes"),
    FIELD(INFO_NUMBER, RunInfo, peak_flops, "peak_flops"),
    FIELD(INFO_COUNT, RunInfo, tokens_per_step, "tokens_per_step"),
    FIELD(INFO_NUMBER, RunInfo, model_flops, "model_flops"),
    FIELD(INFO_NUMBER, RunInfo, hardware_flops, "hardware_flops"),
    ROWS(RunInfo, groups, "groups", group_fields, GroupInfo),
    ROWS(RunInfo, retained, "retained", retained_fields, RetainedInfo),
    FIELD(INFO_FLAG, RunInfo, initializes, "initializes"),
    ROWS(RunInfo, phases, "phases", phase_fields, PhaseInfo),
    ROWS(RunInfo, communicators, "communicators", communicator_fields, CommunicatorInfo),
    ROWS(RunInfo, constants, "constants", constant_fields, ConstantSource),
    FIELD(INFO_TEXTS, RunInfo, warnings, "warnings"),
    FIELD(INFO_COUNT, RunInfo, repeated_steps, "repeated_steps"),
    INSIDE(INFO_FAILURE, RunInfo, failure, "failure", failure_fields),
    INSIDE(INFO_OBJECT, RunInfo, ranks, "ranks", ranks_fields),
    INSIDE(INFO_OBJECT, RunInfo, startup, "startup", startup_fields),
    INSIDE(INFO_OBJECT, RunInfo, prefetch, "prefetch", prefetch_fields),
    FIELD(INFO_COUNT, RunInfo, rank, "rank"),
    FIELD(INFO_SIGNED, RunInfo, rank_without_room, "rank_without_room"),
    END,
};

gpointer
info_field_at(const InfoField *field, gpointer base)
{
  return (char *) base + field->offset;
}

gconstpointer
info_field_in(const InfoField *field, gconstpointer base)
{
  return (const char *) base + field->offset;
}

gint64
info_field_get(const InfoField *field, gconstpointer base)
{
  gconstpointer at = info_field_in(field, base);
  g_assert(field->size == sizeof(gint32) || field->size == sizeof(gint64));
  return field->size == sizeof(gint32) ? *(const gint32 *) at : *(const gint64 *) at;
}

void
info_field_set(const InfoField *field, gpointer base, gint64 value)
{
  gpointer at = info_field_at(field, base);
  g_assert(field->size == sizeof(gint32) || field->size == sizeof(gint64));
  if (field->size == sizeof(gint32))
    *(gint32 *) at = (gint32) value;
  else
    *(gint64 *) at = value;
}

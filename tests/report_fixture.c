/* report_fixture.c - two steps of a network of two groups, in microseconds:
 *
 *   step 1   1000 .. 2000
 *   step 2   host from 1800; done at 3000, so it lasts 1000 from the end of step 1
 *
 *   compute          A 2000-2100   B 2150-2300   C 2300-2500   D 2600-2700   E 2700-2750
 *                    layers.0      layers.1      layers.1      layers.0      optimizer
 *                    forward       forward       backward      backward
 *   all_gather       0: 1950-2000  1: 2050-2150  0: 2400-2550
 *   reduce_scatter   1: 2500-2620  0: 2750-2850
 *   all_reduce       1: 2800-2900  (communicator "replicate")
 *
 * The device is busy computing 100 + 150 + 200 + 100 + 50 = 600.  Collectives run at 2050-2150,
 * 2400-2620 and 2750-2900, 470 in all (the first gather ends where the step begins); while compute
 * is idle at 2100-2150, 2500-2600 and 2750-2900, 300 in all.  What remains, 2900-3000, is the
 * host's: 100. */
#include "report_fixture.h"

#define US(microseconds) ((SimTime) (microseconds) *1000)

static const char *const stream_names[] = {"compute",        "copy_in",    "all_gather",
                                           "reduce_scatter", "all_reduce", "host"};
enum { COMPUTE, COPY_IN, ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE };

typedef struct {
  int start, end; /* us */
  guint8 kind, stream;
  const char *name, *module;
  const char *communicator; /* collectives */
  gint64 bytes;
  int phase; /* of the step, from 1 as in Span */
} SpanRow;

/* In order of their ends.  Phases are positions in phase_rows, from 1. */
static const SpanRow span_rows[] = {
    {1200, 1900, SPAN_KERNEL, COMPUTE, "mm", "layers.0.w", NULL, 0, 2},
    {1950, 2000, SPAN_COLLECTIVE, ALL_GATHER, "all_gather", "layers.0", "shard", 1 << 20, 5},
    {2000, 2100, SPAN_KERNEL, COMPUTE, "mm", "layers.0.w", NULL, 0, 5},
    {2050, 2150, SPAN_COLLECTIVE, ALL_GATHER, "all_gather", "layers.1", "shard", 1 << 20, 5},
    {2150, 2300, SPAN_KERNEL, COMPUTE, "mm", "layers.1.w", NULL, 0, 5},
    {2300, 2500, SPAN_COPY, COMPUTE, "copy", "layers.1.w", NULL, 4 << 20, 6},
    {2400, 2550, SPAN_COLLECTIVE, ALL_GATHER, "all_gather", "layers.0", "shard", 1 << 20, 6},
    {2500, 2620, SPAN_COLLECTIVE, REDUCE_SCATTER, "reduce_scatter", "layers.1", "shard", 2 << 20,
     6},
    {2600, 2700, SPAN_KERNEL, COMPUTE, "mm", "layers.0.w", NULL, 0, 6},
    {2700, 2750, SPAN_KERNEL, COMPUTE, "adamw", NULL, NULL, 0, 7},
    {2750, 2850, SPAN_COLLECTIVE, REDUCE_SCATTER, "reduce_scatter", "layers.0", "shard", 2 << 20,
     6},
    {2800, 2900, SPAN_COLLECTIVE, ALL_REDUCE, "all_reduce", "layers.1", "replicate", 3 << 20, 6},
};

typedef struct {
  int start, end, step, micro_batch;
  const char *name;
  gint64 peak_allocated, peak_reserved, end_allocated; /* MiB */
} PhaseRow;

static const PhaseRow phase_rows[] = {
    {1000, 1010, 1, 0, "zero_grad", 400, 500, 400},
    {1010, 1500, 1, 0, "forward", 900, 1000, 800},
    {1500, 1800, 1, 0, "backward", 1200, 1300, 600},
    {1800, 1810, 2, 0, "zero_grad", 700, 1300, 500},
    {1810, 2050, 2, 0, "forward", 1100, 1400, 1000},
    {2050, 2200, 2, 0, "backward", 1536, 1900, 700},
    {2200, 2300, 2, 0, "optimizer", 800, 1900, 700},
};

typedef struct {
  int time;
  gint64 mib, allocated, reserved; /* MiB; negative: freed */
  guint8 category;
  int allocation;
} MemoryRow;

static const MemoryRow memory_rows[] = {
    {100, 400, 400, 500, CATEGORY_PARAMETER, 0},
    {1100, 300, 700, 1000, CATEGORY_ACTIVATION, 1},
    {1600, 500, 1200, 1300, CATEGORY_TEMPORARY, 2},
    {1700, -500, 700, 1300, CATEGORY_TEMPORARY, 2},
    {1750, -300, 400, 1300, CATEGORY_ACTIVATION, 1},
    {1805, 136, 536, 1300, CATEGORY_SHARDED_GRADIENT, 3},
    {2100, 1000, 1536, 1900, CATEGORY_ACTIVATION, 4},
    {2190, -1000, 536, 1900, CATEGORY_ACTIVATION, 4},
};

typedef struct {
  gint64 mib;
  guint8 category;
  const char *module, *what;
} LiveRow;

/* 1536 MiB, largest first, more than a report names. */
static const LiveRow live_rows[] = {
    {700, CATEGORY_ACTIVATION, "output", "log_softmax"},
    {300, CATEGORY_ACTIVATION, "layers.1.feed_forward", "silu"},
    {150, CATEGORY_PARAMETER, "layers.0.w", "layers.0.w.weight"},
    {150, CATEGORY_PARAMETER, "layers.1.w", "layers.1.w.weight"},
    {100, CATEGORY_PARAMETER, "output", "output.weight"},
    {60, CATEGORY_SHARDED_GRADIENT, "layers.1", "gradients"},
    {50, CATEGORY_SHARDED_GRADIENT, "layers.0", "gradients"},
    {10, CATEGORY_SHARDED_GRADIENT, "layers.0", "small 1"},
    {6, CATEGORY_SHARDED_GRADIENT, "layers.0", "small 2"},
    {5, CATEGORY_SHARDED_GRADIENT, "layers.0", "small 3"},
    {4, CATEGORY_SHARDED_GRADIENT, "layers.1", "small 4"},
    {1, CATEGORY_SHARDED_GRADIENT, NULL, NULL},
};

static gint32
id_of(Recording *recording, const char *text)
{
  return text ? recording_string(recording, text) : -1;
}

static void
add_spans(Recording *recording)
{
  for (guint i = 0; i < G_N_ELEMENTS(span_rows); i++) {
    const SpanRow *row = &span_rows[i];
    Span span = {
        .start = US(row->start),
        .end = US(row->end),
        .kind = row->kind,
        .stream = row->stream,
        .step = row->end <= 1900 ? 1 : 2,
        .name = id_of(recording, row->name),
        .module = id_of(recording, row->module),
        .communicator = id_of(recording, row->communicator),
        .phase = row->phase,
        .bytes = row->bytes,
    };
    g_array_append_val(recording->spans, span);
  }
}

static void
add_phases(Recording *recording)
{
  for (guint i = 0; i < G_N_ELEMENTS(phase_rows); i++) {
    const PhaseRow *row = &phase_rows[i];
    Range range = {
        .start = US(row->start),
        .end = US(row->end),
        .kind = RECORDED_PHASE,
        .step = (gint16) row->step,
        .micro_batch = (gint16) row->micro_batch,
        .name = id_of(recording, row->name),
        .module = -1,
        .end_allocated = row->end_allocated * MIB,
        .peak_allocated = row->peak_allocated * MIB,
        .peak_reserved = row->peak_reserved * MIB,
    };
    g_array_append_val(recording->ranges, range);
  }
}

static void
add_memory(Recording *recording)
{
  for (guint i = 0; i < G_N_ELEMENTS(memory_rows); i++) {
    const MemoryRow *row = &memory_rows[i];
    MemoryEvent event = {
        .time = US(row->time),
        .requested_bytes = row->mib * MIB - (row->mib > 0 ? 12 : -12),
        .block_bytes = row->mib * MIB,
        .allocated_after = row->allocated * MIB,
        .reserved_after = row->reserved * MIB,
        .allocation = row->allocation,
        .category = row->category,
        .step = row->time < 1000   ? 0
                : row->time < 1800 ? 1
                                   : 2,
        .module = -1,
        .what = -1,
    };
    g_array_append_val(recording->memory, event);
  }
}

static void
add_peak(Recording *recording)
{
  PeakRecord *peak = &recording->peak;
  peak->step = 2;
  peak->phase = id_of(recording, "backward");
  peak->module = id_of(recording, "output");
  peak->time = US(2100);
  peak->allocated = 1536 * MIB;
  peak->reserved = 1900 * MIB;
  for (guint i = 0; i < G_N_ELEMENTS(live_rows); i++) {
    const LiveRow *row = &live_rows[i];
    LiveTensor tensor = {
        .bytes = row->mib * MIB,
        .category = row->category,
        .module = id_of(recording, row->module),
        .what = id_of(recording, row->what),
    };
    peak->categories[row->category] += tensor.bytes;
    g_array_append_val(peak->live, tensor);
  }
}

Recording *
fixture_recording(void)
{
  Recording *recording = recording_new();
  g_free(recording->title);
  recording->title = g_strdup("two-groups, fsdp2");
  for (guint i = 0; i < G_N_ELEMENTS(stream_names); i++) {
    gint64 cached = i == COMPUTE ? 1000 * MIB : i == REDUCE_SCATTER ? 200 * MIB : 0;
    g_ptr_array_add(recording->streams, g_strdup(stream_names[i]));
    g_array_append_val(recording->cached, cached);
  }
  add_spans(recording);
  add_phases(recording);
  add_memory(recording);
  add_peak(recording);
  const StepRecord steps[] = {
      {1, US(1000), US(2000), 1200 * MIB, 1300 * MIB, 400 * MIB, 0},
      {2, US(1800), US(3000), 1536 * MIB, 1900 * MIB, 536 * MIB, 0},
  };
  g_array_append_vals(recording->steps, steps, G_N_ELEMENTS(steps));
  recording->capacity_bytes = 2000 * MIB;
  recording->outside_allocator_bytes = 48 * MIB;
  recording->construction_allocated = 400 * MIB;
  recording->construction_reserved = 500 * MIB;
  recording->at_rest_bytes = 400 * MIB;
  return recording;
}

RunInfo *
fixture_info(void)
{
  RunInfo *info = run_info_new();
  info->model = g_strdup("two-groups");
  info->parameters = ((gint64) 1 << 53) - 1; /* every digit must survive */
  info->trainable_parameters = 1000;
  info->strategy = g_strdup("fsdp2");
  info->checkpointing = g_strdup("full");
  info->shard = 4;
  info->replicate = 2;
  info->micro_batch = 1;
  info->sequence_length = 8192;
  info->accumulation_steps = 1;
  info->equivalent_zero_stage = 3;
  info->device = g_strdup("h100-sxm-80gb");
  info->cluster = g_strdup("h100-8");
  info->nodes = 1;
  info->peak_flops = 1e13;
  info->pinned_bytes = 3 << 20;
  info->pageable_bytes = 1 << 20;
  info->tokens_per_step = 8192;
  info->model_flops = 3e9; /* in 1 ms: 3e12 a second, 30 % */
  info->hardware_flops = 4e9;
  const char *const names[] = {"layers.0", "layers.1", "root"};
  for (guint i = 0; i < G_N_ELEMENTS(names); i++) {
    const char *modules[] = {i < 2 ? names[i] : "", NULL};
    GroupInfo *group = run_info_add_group(info, names[i], modules);
    group->parameters = i < 2 ? 1000 : 70;
    group->unsharded_bytes = i < 2 ? 2000 : 140;
    group->shard_bytes = i < 2 ? 1000 : 72;
  }
  run_info_add_communicator(info, "shard", 4, "NVSwitch");
  run_info_add_constant(info, "device h100-sxm-80gb", ORIGIN_DEFAULT);
  run_info_add_constant(info, "links nvswitch", ORIGIN_MEASURED);
  return info;
}

void
fixture_run_out_of_memory(Recording *recording)
{
  recording->out_of_memory = (OutOfMemoryRecord){
      .happened = TRUE,
      .step = 2,
      .phase = recording_string(recording, "backward"),
      .module = recording_string(recording, "output"),
      .what = recording_string(recording, "log_softmax"),
      .requested_bytes = 599 * MIB + 5,
      .segment_bytes = 600 * MIB,
      .limit_bytes = 2000 * MIB,
      .allocated_bytes = 1536 * MIB,
      .reserved_bytes = 1900 * MIB,
  };
}

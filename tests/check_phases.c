/* check_phases.c - what a plan does beyond its steps, and what it keeps for good.  An evaluation
 * keeps nothing for a backward that does not come, gathers each group once, leaves memory and the
 * steps as they are without it; recorded runs of PyTorch say the bytes. */
#include "base/units.h"
#include "recorded_config.h"
#include "simulation.h"
#include "tap_main.h"
#include <cjson/cJSON.h>
#include <string.h>

#define WITHOUT_LIMIT ((gint64) 1 << 60)

static const char network_format[] =
    "{'model_type': 'llama', 'hidden_size': 64, 'intermediate_size': 160, 'num_hidden_layers': %d,"
    " 'num_attention_heads': 4, 'num_key_value_heads': 2, 'vocab_size': 256,"
    " 'implementation': 'torchtitan'}";
static const char fsdp2[] = "{'strategy': 'fsdp2', 'mesh': {'shard': 8}, 'batch': {'micro_batch': "
                            "2, 'sequence_length': 64},"
                            " 'precision': {'compute': 'bf16', 'reduce': 'fp32'},"
                            " 'fsdp': {'reshard_after_forward': true}}";

static Simulated *
execute(int layers, const char *plan, const char *const *set, int steps)
{
  g_autofree char *network = g_strdup_printf(network_format, layers);
  return simulation_execute(&(Simulation){network, plan, set, 0}, steps, WITHOUT_LIMIT);
}

/* The range of a phase beyond step `step`; fails when there is none. */
static const Range *
beyond_range(const Recording *recording, const char *name, int step)
{
  for (guint i = 0; i < recording->beyond->len; i++) {
    gint32 at = g_array_index(recording->beyond, BeyondRecord, i).range;
    const Range *range = &g_array_index(recording->ranges, Range, at);
    if (range->step == step && strcmp(recording_text(recording, range->name), name) == 0)
      return range;
  }
  ck_abort_msg("no %s after step %d", name, step);
  return NULL;
}

static const char *const evaluates[] = {"phases.evaluate.every=1", NULL};

/* ---- evaluation */

START_TEST(an_evaluation_leaves_memory_as_it_found_it)
{
  g_autoptr(Simulated) s = execute(3, fsdp2, evaluates, 3);
  for (int step = 1; step <= 3; step++) {
    const Range *range = beyond_range(s->recording, "evaluate", step);
    ck_assert_int_eq(range->start_allocated, range->end_allocated);
    ck_assert_int_gt(range->peak_allocated, range->start_allocated);
  }
}
END_TEST

START_TEST(steps_are_what_they_are_without_an_evaluation)
{
  g_autoptr(Simulated) with = execute(3, fsdp2, evaluates, 3);
  g_autoptr(Simulated) without = execute(3, fsdp2, NULL, 3);
  ck_assert_uint_eq(with->recording->steps->len, without->recording->steps->len);
  for (guint i = 0; i < with->recording->steps->len; i++) {
    const StepRecord *a = &g_array_index(with->recording->steps, StepRecord, i);
    const StepRecord *b = &g_array_index(without->recording->steps, StepRecord, i);
    ck_assert_int_eq(a->peak_allocated, b->peak_allocated);
    ck_assert_int_eq(a->end_allocated, b->end_allocated);
  }
  ck_assert_uint_eq(without->recording->beyond->len, 0);
  /* a step's time does not begin before the evaluation is over */
  const BeyondRecord *last = &g_array_index(with->recording->beyond, BeyondRecord, 1);
  const StepRecord *third = &g_array_index(with->recording->steps, StepRecord, 2);
  ck_assert_int_eq(recording_step_duration(with->recording, 2), third->end - last->end);
}
END_TEST

START_TEST(an_evaluation_keeps_nothing_of_a_layer)
{
  g_autoptr(Simulated) few = execute(2, fsdp2, evaluates, 2);
  g_autoptr(Simulated) many = execute(7, fsdp2, evaluates, 2);
  const Range *a = beyond_range(few->recording, "evaluate", 2);
  const Range *b = beyond_range(many->recording, "evaluate", 2);
  ck_assert_int_eq(a->peak_allocated - a->start_allocated, b->peak_allocated - b->start_allocated);
}
END_TEST

/* reshard_after_forward's default keeps the root: it is there until the next backward, and the next
 * forward need not gather it. */
START_TEST(a_root_that_is_not_resharded_outlives_the_evaluation)
{
  const char *const set[] = {"phases.evaluate.every=1", "fsdp.reshard_after_forward=null", NULL};
  g_autoptr(Simulated) s = execute(3, fsdp2, set, 3);
  const Range *range = beyond_range(s->recording, "evaluate", 3);
  /* the root in bf16: embedding and head of 256 x 64, a norm of 64 rounded up to 512 bytes */
  ck_assert_int_eq(range->end_allocated - range->start_allocated, 2 * 256 * 64 * 2 + 512);
}
END_TEST

/* Each group once: 4 groups hold all parameters, padded to 8 ranks, in bf16. */
START_TEST(an_evaluation_gathers_each_group_once)
{
  g_autoptr(Simulated) s = execute(3, fsdp2, evaluates, 3);
  gint32 first = g_array_index(s->recording->beyond, BeyondRecord, 2).range;
  gint64 bytes = 0;
  int gathers = 0, others = 0;
  for (guint i = 0; i < s->recording->spans->len; i++) {
    const Span *span = &g_array_index(s->recording->spans, Span, i);
    if (span->phase - 1 != first || span->kind != SPAN_COLLECTIVE)
      continue;
    gboolean gather = strcmp(recording_text(s->recording, span->name), "all_gather") == 0;
    gathers += gather;
    others += !gather;
    bytes += span->bytes;
  }
  gint64 layer = 2 * 64 * 64 + 2 * 32 * 64 + 3 * 160 * 64 + 2 * 64;
  ck_assert_int_eq(gathers, 4);
  ck_assert_int_eq(others, 0);
  ck_assert_int_eq(bytes, 2 * (3 * layer + 2 * 256 * 64 + 64));
}
END_TEST

START_TEST(an_evaluation_has_batches_of_its_own)
{
  const char *const small[] = {"phases.evaluate.every=1", "phases.evaluate.micro_batch=1", NULL};
  const char *const large[] = {"phases.evaluate.every=1", "phases.evaluate.micro_batch=8", NULL};
  const char *const twice[] = {"phases.evaluate.every=1", "phases.evaluate.micro_batch=8",
                               "phases.evaluate.batches=2", NULL};
  gint64 peaks[3], ends[3];
  const char *const *sets[] = {small, large, twice};
  for (int i = 0; i < 3; i++) {
    g_autoptr(Simulated) s = execute(2, fsdp2, sets[i], 2);
    const Range *range = beyond_range(s->recording, "evaluate", 2);
    peaks[i] = range->peak_allocated - range->start_allocated;
    ends[i] = range->end_allocated - range->start_allocated;
  }
  ck_assert_int_gt(peaks[1], peaks[0]);
  ck_assert_int_eq(peaks[1], peaks[2]);
  for (int i = 0; i < 3; i++)
    ck_assert_int_eq(ends[i], 0);
}
END_TEST

START_TEST(an_evaluation_comes_after_each_so_many_steps)
{
  const char *const set[] = {"phases.evaluate.every=2", NULL};
  g_autoptr(Simulated) s = execute(1, fsdp2, set, 5);
  ck_assert_uint_eq(s->recording->beyond->len, 2);
  beyond_range(s->recording, "evaluate", 2);
  beyond_range(s->recording, "evaluate", 4);
}
END_TEST

static const char *const strategies_tried[] = {
    "{'strategy': 'none'}",
    "{'strategy': 'ddp', 'mesh': {'replicate': 8}}",
    "{'strategy': 'fsdp1', 'mesh': {'shard': 8}, 'precision': {'compute': 'bf16'}}",
    "{'strategy': 'fsdp2', 'mesh': {'shard': 3}, 'activation_checkpointing': {'policy': 'full'}}",
    "{'strategy': 'zero1', 'mesh': {'shard': 8}, 'precision': {'parameters': 'bf16'}}",
    "{'strategy': 'zero2', 'mesh': {'shard': 8}, 'precision': {'parameters': 'bf16'}}",
    "{'strategy': 'zero3', 'mesh': {'shard': 8}, 'precision': {'parameters': 'bf16'}}",
};

START_TEST(every_strategy_evaluates_and_keeps_the_rules_of_programs)
{
  g_autofree char *network = g_strdup_printf(network_format, 2);
  const char *const set[] = {"phases.evaluate.every=1", "batch.sequence_length=64", NULL};
  Simulation simulation = {network, strategies_tried[_i], set, 0};
  g_autoptr(Simulated) s = simulation_lower(&simulation, 6);
  simulated_check(s);
}
END_TEST

START_TEST(memory_that_runs_out_in_an_evaluation_does_not_fit)
{
  const char *const set[] = {"phases.evaluate.every=1", "phases.evaluate.micro_batch=64", NULL};
  g_autofree char *network = g_strdup_printf(network_format, 2);
  Simulation simulation = {network, fsdp2, set, 0};
  g_autoptr(Simulated) free_run = simulation_execute(&simulation, 3, WITHOUT_LIMIT);
  gint64 first = g_array_index(free_run->recording->steps, StepRecord, 0).peak_reserved;
  ck_assert_int_gt(beyond_range(free_run->recording, "evaluate", 1)->peak_reserved, first);
  g_autoptr(Simulated) s = simulation_execute(&simulation, 3, first);
  const OutOfMemoryRecord *oom = &s->recording->out_of_memory;
  ck_assert(oom->happened);
  ck_assert_int_eq(oom->step, 1);
  ck_assert_str_eq(recording_text(s->recording, oom->phase), "evaluate");
}
END_TEST

/* ---- saving */

#define LAYERS 2
/* A layer: q, o; k, v; three of the MLP; two norms. */
#define LAYER_ELEMENTS (2 * 64 * 64 + 2 * 32 * 64 + 3 * 160 * 64 + 2 * 64)
#define MODEL_ELEMENTS (LAYERS * LAYER_ELEMENTS + 2 * 256 * 64 + 64)

static const char *const saves_full[] = {"phases.save.state=full", "phases.save.optimizer=false",
                                         NULL};
static const char *const saves_to_host[] = {"phases.save.state=full", "phases.save.optimizer=false",
                                            "phases.save.cpu_offload=true", NULL};
static const char *const saves_shards[] = {"phases.save.optimizer=true", NULL};

static Simulated *
save_on(const char *const *set, int rank)
{
  g_autofree char *network = g_strdup_printf(network_format, LAYERS);
  return simulation_execute(&(Simulation){network, fsdp2, set, rank}, 3, WITHOUT_LIMIT);
}

static const LoweredPhase *
moved_by(const Simulated *s, const char *name)
{
  for (guint i = 0; i < s->lowered->phases->len; i++) {
    const LoweredPhase *phase = &g_array_index(s->lowered->phases, LoweredPhase, i);
    if (strcmp(phase->name, name) == 0)
      return phase;
  }
  ck_abort_msg("nothing is moved by %s", name);
  return NULL;
}

/* All parameters in fp32, on every rank: all sizes are multiples of 512 bytes but the norms' 256.
 */
START_TEST(a_full_state_dict_on_the_device_is_a_whole_model_more)
{
  for (int rank = 0; rank < 8; rank += 7) {
    g_autoptr(Simulated) s = save_on(saves_full, rank);
    const Range *range = beyond_range(s->recording, "save", 3);
    gint64 rounding = (2 * LAYERS + 1) * 256;
    ck_assert_int_eq(range->end_allocated - range->start_allocated, 4 * MODEL_ELEMENTS + rounding);
    ck_assert_int_eq(range->peak_allocated, range->end_allocated);
    ck_assert_int_eq(moved_by(s, "save")->state_bytes, rank == 0 ? 4 * MODEL_ELEMENTS : 0);
    ck_assert_int_eq(moved_by(s, "save")->others_bytes, 4 * MODEL_ELEMENTS);
  }
}
END_TEST

/* One parameter at a time: the embedding and the head are the largest. */
START_TEST(a_full_state_dict_on_the_host_takes_one_parameter_of_the_device)
{
  for (int rank = 0; rank < 8; rank += 7) {
    g_autoptr(Simulated) s = save_on(saves_to_host, rank);
    const Range *range = beyond_range(s->recording, "save", 3);
    ck_assert_int_eq(range->peak_allocated - range->start_allocated, 4 * 256 * 64);
    ck_assert_int_eq(range->end_allocated, range->start_allocated);
    const LoweredPhase *moved = moved_by(s, "save");
    ck_assert_int_eq(moved->state_bytes, rank == 0 ? 4 * MODEL_ELEMENTS : 0);
    ck_assert_int_eq(moved->rank_0_bytes, 4 * MODEL_ELEMENTS);
    ck_assert_int_eq(moved->others_bytes, 0);
  }
}
END_TEST

/* Parameters and two moments in fp32; foreach Adam counts steps on the host, 4 bytes a parameter.
 */
START_TEST(a_sharded_state_dict_takes_nothing_and_writes_each_part_once)
{
  gint64 sum = 0;
  for (int rank = 0; rank < 8; rank++) {
    g_autoptr(Simulated) s = save_on(saves_shards, rank);
    const Range *range = beyond_range(s->recording, "save", 3);
    ck_assert_int_eq(range->peak_allocated, range->start_allocated);
    sum += moved_by(s, "save")->state_bytes;
  }
  int parameters = 9 * LAYERS + 3;
  ck_assert_int_eq(sum, (gint64) 3 * 4 * MODEL_ELEMENTS + 8 * 4 * parameters);
}
END_TEST

START_TEST(steps_do_not_notice_a_checkpoint)
{
  const char *const set[] = {"phases.save.state=full", "phases.save.every=2", NULL};
  g_autofree char *network = g_strdup_printf(network_format, LAYERS);
  g_autoptr(Simulated) with =
      simulation_execute(&(Simulation){network, fsdp2, set, 0}, 5, WITHOUT_LIMIT);
  g_autoptr(Simulated) without =
      simulation_execute(&(Simulation){network, fsdp2, NULL, 0}, 5, WITHOUT_LIMIT);
  ck_assert_uint_eq(with->recording->beyond->len, 2);
  beyond_range(with->recording, "save", 2);
  beyond_range(with->recording, "save", 4);
  for (guint i = 0; i < 5; i++) {
    const StepRecord *a = &g_array_index(with->recording->steps, StepRecord, i);
    const StepRecord *b = &g_array_index(without->recording->steps, StepRecord, i);
    ck_assert_int_eq(a->peak_allocated, b->peak_allocated);
    ck_assert_int_eq(a->end_allocated, b->end_allocated);
  }
  simulated_check(with);
}
END_TEST

/* Steps before a checkpoint repeat one that is written once. */
START_TEST(steps_before_a_checkpoint_repeat_each_other)
{
  const char *const set[] = {"phases.save.state=full", "phases.save.every=20", NULL};
  g_autofree char *network = g_strdup_printf(network_format, LAYERS);
  g_autoptr(Simulated) s =
      simulation_execute(&(Simulation){network, fsdp2, set, 0}, 50, WITHOUT_LIMIT);
  const Program *program = s->lowered->program;
  ck_assert_int_eq(program->steps, 50);
  ck_assert_uint_eq(program->step_list->len, 50);
  /* the construction; 1, 2, 3 and 20; 21, 22 and 40; 41, of which 42 is the same */
  ck_assert_uint_le(program->lists->len, 10);
  simulated_check(s);
  ck_assert_uint_eq(s->recording->steps->len, 50);
  ck_assert_uint_eq(s->recording->beyond->len, 2);
  beyond_range(s->recording, "save", 20);
  beyond_range(s->recording, "save", 40);
  gint64 peak = g_array_index(s->recording->steps, StepRecord, 2).peak_allocated;
  for (guint i = 2; i < 50; i++)
    ck_assert_int_eq(g_array_index(s->recording->steps, StepRecord, i).peak_allocated, peak);
}
END_TEST

/* _StateDictInfo's default state: parameters that are not sharded are what they are. */
START_TEST(whole_parameters_are_not_copied_on_the_device)
{
  const char *const set[] = {"phases.save.state=full", "batch.sequence_length=64", NULL};
  g_autofree char *network = g_strdup_printf(network_format, LAYERS);
  Simulation simulation = {network, "{'strategy': 'ddp', 'mesh': {'replicate': 4}}", set, 0};
  g_autoptr(Simulated) s = simulation_execute(&simulation, 2, WITHOUT_LIMIT);
  const Range *range = beyond_range(s->recording, "save", 2);
  ck_assert_int_eq(range->peak_allocated, range->start_allocated);
}
END_TEST

/* On 7 ranks 256 rows are 37 each, padded to 259, and 34 for the last: its own rows of 64 numbers
 * come from the host, then there are a padded copy and what is gathered, in multiples of 512. */
START_TEST(rows_from_the_host_are_there_until_what_is_padded_is_gathered)
{
  const char *const set[] = {"phases.save.state=full",       "phases.save.optimizer=false",
                             "phases.save.cpu_offload=true", "mesh.shard=7",
                             "fsdp.cpu_offload=true",        NULL};
  gint64 moved = 34 * 64 * 4, padded = 37 * 64 * 4 + 256, gathered = 259 * 64 * 4 + 256;
  const gint64 expected[] = {37 * 64 * 4 + 256 + gathered, moved + padded + gathered};
  for (int i = 0; i < 2; i++) {
    g_autoptr(Simulated) s = save_on(set, i == 0 ? 0 : 6);
    const Range *range = beyond_range(s->recording, "save", 3);
    ck_assert_int_eq(range->peak_allocated - range->start_allocated, expected[i]);
    ck_assert_int_eq(range->end_allocated, range->start_allocated);
  }
}
END_TEST

/* "When using NO_SHARD for ShardingStrategy, full_state_dict will be returned"
 * (_post_state_dict_hook), on every rank; rank 0 writes it. */
START_TEST(a_sharded_state_dict_of_whole_flat_parameters_is_full)
{
  g_autofree char *network = g_strdup_printf(network_format, LAYERS);
  for (int rank = 0; rank < 8; rank += 7) {
    gint64 grown[2];
    for (int full = 0; full < 2; full++) {
      const char *const set[] = {"phases.save.optimizer=false", "fsdp.sharding_strategy=NO_SHARD",
                                 full ? "phases.save.state=full" : "phases.save.state=sharded",
                                 NULL};
      g_autoptr(Simulated) s = simulation_execute(
          &(Simulation){network, strategies_tried[2], set, rank}, 2, WITHOUT_LIMIT);
      const Range *range = beyond_range(s->recording, "save", 2);
      grown[full] = range->end_allocated - range->start_allocated;
      ck_assert_int_eq(moved_by(s, "save")->state_bytes, rank == 0 ? 4 * MODEL_ELEMENTS : 0);
      ck_assert_int_eq(moved_by(s, "save")->others_bytes, 4 * MODEL_ELEMENTS);
    }
    ck_assert_int_eq(grown[0], grown[1]);
  }
}
END_TEST

static const char *const saves_all[] = {"phases.save.state=full", "phases.save.optimizer=true",
                                        NULL};
static const char *const saves_rows[] = {"phases.save.state=sharded", "phases.save.optimizer=true",
                                         NULL};

/* Weights and both moments are cloned whole, norms rounded up to 512 bytes; while the last unit's
 * second moment is cut, which by name is the root's, it is there gathered and as a shard. */
START_TEST(fsdp1_gathers_the_optimizer_unit_by_unit)
{
  g_autofree char *network = g_strdup_printf(network_format, LAYERS);
  g_autoptr(Simulated) s = simulation_execute(
      &(Simulation){network, strategies_tried[2], saves_all, 0}, 2, WITHOUT_LIMIT);
  const Range *range = beyond_range(s->recording, "save", 2);
  gint64 whole = 4 * MODEL_ELEMENTS + 256 * (2 * LAYERS + 1), root = 4 * (2 * 256 * 64 + 64);
  gint64 shard = (root / 8 + 511) / 512 * 512;
  simulated_check(s);
  ck_assert_int_eq(range->end_allocated - range->start_allocated, 3 * whole);
  ck_assert_int_eq(range->peak_allocated - range->end_allocated, root + 256 + shard);
  ck_assert_int_eq(moved_by(s, "save")->state_bytes, 12 * MODEL_ELEMENTS + 4 * (9 * LAYERS + 3));
}
END_TEST

START_TEST(fsdp1_writes_each_row_of_the_optimizer_once)
{
  g_autofree char *network = g_strdup_printf(network_format, LAYERS);
  gint64 sum = 0;
  for (int rank = 0; rank < 8; rank++) {
    g_autoptr(Simulated) s = simulation_execute(
        &(Simulation){network, strategies_tried[2], saves_rows, rank}, 2, WITHOUT_LIMIT);
    sum += moved_by(s, "save")->state_bytes;
  }
  ck_assert_int_eq(sum, 12 * MODEL_ELEMENTS + 8 * 4 * (9 * LAYERS + 3));
}
END_TEST

/* Clones for the state dict that the last step's save makes, and what they are in bytes. */
static int
clones_made(const Simulated *s, gint64 *bytes)
{
  const Program *program = s->lowered->program;
  const GArray *ops = program_step(program, program->steps - 1)->ops;
  int count = 0;
  *bytes = 0;
  for (guint i = 0; i < ops->len; i++) {
    const ProgramOp *op = &g_array_index(ops, ProgramOp, i);
    if (op->kind != PROGRAM_ALLOC)
      continue;
    const Storage *storage = &g_array_index(program->storages, Storage, op->a);
    if (strcmp(program_text(program, storage->what), "clone for the state dict") != 0)
      continue;
    count++;
    *bytes += storage->bytes;
  }
  return count;
}

/* Hybrid sharding is told a device mesh, and its shards are DTensors: a clone of the whole
 * parameter, and from it one of this rank's rows (_ext_chunk_dtensor). */
START_TEST(hybrid_shards_are_cloned_from_clones_of_the_whole)
{
  static const char *const hybrid[] = {"phases.save.optimizer=false", "mesh.replicate=2",
                                       "fsdp.sharding_strategy=HYBRID_SHARD", NULL};
  static const char *const usual[] = {"phases.save.optimizer=false", NULL};
  const char *const *const sets[] = {usual, hybrid};
  const int parameters = 9 * LAYERS + 3;
  g_autofree char *network = g_strdup_printf(network_format, LAYERS);
  for (int i = 0; i < 2; i++) {
    g_autoptr(Simulated) s = simulation_execute(
        &(Simulation){network, strategies_tried[2], sets[i], 0}, 2, WITHOUT_LIMIT);
    const Range *range = beyond_range(s->recording, "save", 2);
    gint64 bytes, rounded = 0;
    ck_assert_int_eq(clones_made(s, &bytes), (1 + i) * parameters);
    ck_assert_int_eq(bytes, 4 * MODEL_ELEMENTS / 8 + i * 4 * MODEL_ELEMENTS);
    rounded = (2 * LAYERS + 1) * (512 - 4 * 8); /* norms: 8 numbers each */
    ck_assert_int_eq(range->end_allocated - range->start_allocated,
                     4 * MODEL_ELEMENTS / 8 + rounded);
  }
}
END_TEST

/* Tables are made for the evaluation's longer sequences; what FSDP2 casts for a block in training
 * is a slice of them: 64 positions of 16 numbers, cosines and sines. */
START_TEST(a_block_casts_its_part_of_a_longer_table)
{
  g_autofree char *network =
      g_strdup_printf("{'model_type': 'llama', 'hidden_size': 64, 'intermediate_size': 160,"
                      " 'num_hidden_layers': %d, 'num_attention_heads': 4, 'vocab_size': 256,"
                      " 'implementation': {'code': 'torchtitan', 'rope': 'rotate_half'}}",
                      2);
  const char *const set[] = {"phases.evaluate.sequence_length=640", NULL};
  g_autoptr(Simulated) s = simulation_lower(&(Simulation){network, fsdp2, set, 0}, 1);
  const Program *program = s->lowered->program;
  const GArray *ops = program_step(program, 0)->ops;
  int training = 0, evaluating = 0;
  for (guint i = 0; i < ops->len; i++) {
    const ProgramOp *op = &g_array_index(ops, ProgramOp, i);
    if (op->kind != PROGRAM_ALLOC)
      continue;
    const Storage *storage = &g_array_index(program->storages, Storage, op->a);
    if (strcmp(program_text(program, storage->what), "cast input") != 0)
      continue;
    training += storage->bytes == 64 * 16 * 2;
    evaluating += storage->bytes == 640 * 16 * 2;
  }
  ck_assert_int_eq(training, 2 * 2);
  ck_assert_int_eq(evaluating, 2 * 2);
}
END_TEST

/* cross_entropy_loss holds the logarithms in bf16 until it returns, beside the fp32 copy for which
 * autocast asks: when the loss is made both are there. */
START_TEST(an_evaluation_in_autocast_holds_the_logarithms_for_the_loss)
{
  static const char network[] =
      "{'model_type': 'llama', 'hidden_size': 64, 'intermediate_size': 160,"
      " 'num_hidden_layers': 1, 'num_attention_heads': 4, 'vocab_size': 4096,"
      " 'implementation': {'code': 'torchtitan', 'loss': 'model'}}";
  static const char plan[] = "{'strategy': 'none', 'batch': {'micro_batch': 1, 'sequence_length': "
                             "64}, 'precision': {'compute': 'bf16', 'autocast': true},"
                             " 'phases': {'evaluate': {}}}";
  g_autoptr(Simulated) s =
      simulation_execute(&(Simulation){network, plan, NULL, 0}, 2, WITHOUT_LIMIT);
  const Range *range = beyond_range(s->recording, "evaluate", 2);
  gint64 logits = 64 * 4096 * 2, head = 4096 * 64 * 2, layer = 2 * (4 * 64 * 64 + 3 * 160 * 64);
  /* logits and logarithms, these in fp32; the copies of weights that autocast keeps; two numbers */
  ck_assert_int_eq(range->peak_allocated - range->start_allocated,
                   2 * logits + 2 * logits + head + layer + 2 * 512);
}
END_TEST

/* Bytes that 8 ranks write together; peaks are those of a moment before. */
static gint64
written(const char *strategy, const char *const *set)
{
  g_autofree char *network = g_strdup_printf(network_format, LAYERS);
  g_autofree char *plan =
      g_strdup_printf("{'strategy': '%s', 'mesh': {'shard': 8}, 'batch': {'sequence_length': 64},"
                      " 'precision': {'parameters': 'bf16'}}",
                      strategy);
  gint64 sum = 0;
  for (int rank = 0; rank < 8; rank++) {
    g_autoptr(Simulated) s =
        simulation_execute(&(Simulation){network, plan, set, rank}, 2, WITHOUT_LIMIT);
    const Range *range = beyond_range(s->recording, "save", 2);
    ck_assert_int_eq(range->end_allocated, range->start_allocated);
    sum += moved_by(s, "save")->state_bytes;
  }
  return sum;
}

/* engine.save_checkpoint: fp32 weights and moments once, 12 bytes a parameter; the bf16 weights by
 * rank 0, but in stage 3.  save_16bit_model: these alone. */
START_TEST(deepspeed_writes_each_part_of_its_state_once)
{
  static const char *const strategies[] = {"zero0", "zero1", "zero2", "zero3"};
  for (guint i = 0; i < G_N_ELEMENTS(strategies); i++) {
    gint64 weights = 2 * MODEL_ELEMENTS;
    ck_assert_int_eq(written(strategies[i], saves_shards),
                     12 * MODEL_ELEMENTS + (i < 3 ? weights : 0));
    ck_assert_int_eq(written(strategies[i], saves_full), weights);
  }
}
END_TEST

/* ---- initialization */

/* Of a layer, in fp32: whole, and a shard of each parameter rounded up to 512 bytes. */
#define LAYER_BYTES (4 * LAYER_ELEMENTS + 2 * 256)
#define LAYER_SHARD_BYTES (2 * 2048 + 2 * 1024 + 3 * 5120 + 2 * 512)

static const char *const from_meta[] = {"phases.initialize.from=meta", NULL};
static const char *const from_full[] = {"phases.initialize.from=full", NULL};
static const char *const from_cpu[] = {"phases.initialize.from=full", "phases.initialize.on=cpu",
                                       NULL};

/* fully_shard makes all shards of a group before the originals go; the first group is a layer. */
START_TEST(a_full_model_on_the_device_is_there_when_the_first_shards_are_made)
{
  g_autoptr(Simulated) s = save_on(from_full, 3);
  gint64 model = 4 * MODEL_ELEMENTS + (2 * LAYERS + 1) * 256;
  ck_assert_int_eq(s->recording->construction_peak_allocated, model + LAYER_SHARD_BYTES);
}
END_TEST

/* Groups come to the device one after another: the last layer when the other one is sharded. */
START_TEST(a_full_model_on_the_host_comes_group_by_group)
{
  g_autoptr(Simulated) s = save_on(from_cpu, 3);
  ck_assert_int_eq(s->recording->construction_peak_allocated,
                   (LAYERS - 1) * LAYER_SHARD_BYTES + LAYER_BYTES + LAYER_SHARD_BYTES);
}
END_TEST

START_TEST(however_a_model_is_made_its_steps_are_the_same)
{
  const char *const *sets[] = {NULL, from_meta, from_full, from_cpu};
  gint64 allocated[G_N_ELEMENTS(sets)], peaks[G_N_ELEMENTS(sets)];
  for (guint i = 0; i < G_N_ELEMENTS(sets); i++) {
    g_autoptr(Simulated) s = save_on(sets[i], 3);
    simulated_check(s);
    allocated[i] = s->recording->construction_allocated;
    peaks[i] = g_array_index(s->recording->steps, StepRecord, 2).peak_allocated;
    ck_assert_int_eq(allocated[i], allocated[0]);
    ck_assert_int_eq(peaks[i], peaks[0]);
  }
}
END_TEST

/* model.to(device) finds a tied weight on the device when it comes to the second layer; made there,
 * that layer has a weight of its own for a moment. */
START_TEST(a_tied_weight_that_is_moved_is_one_all_along)
{
  static const char tied[] =
      "{'model_type': 'llama', 'hidden_size': 64, 'intermediate_size': 160, 'num_hidden_layers': 1,"
      " 'num_attention_heads': 4, 'num_key_value_heads': 2, 'vocab_size': 256,"
      " 'tie_word_embeddings': true, 'implementation': 'torchtitan'}";
  static const struct {
    const char *on, *strategy;
    int weights;
  } cases[] = {{"device", "none", 12 - 1 + 1}, {"cpu", "none", 12 - 1}, {"cpu", "ddp", 12 - 1}};
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autofree char *plan = g_strdup_printf("{'strategy': '%s', 'batch': {'sequence_length': 64},"
                                            " 'phases': {'initialize': {'from': 'full', 'on':"
                                            " '%s'}}}",
                                            cases[i].strategy, cases[i].on);
    g_autoptr(Simulated) s = simulation_lower(&(Simulation){tied, plan, NULL, 0}, 1);
    const Program *program = s->lowered->program;
    const GArray *ops = ((const OpList *) g_ptr_array_index(program->lists, 0))->ops;
    int weights = 0;
    for (guint k = 0; k < ops->len; k++) {
      const ProgramOp *op = &g_array_index(ops, ProgramOp, k);
      if (op->kind != PROGRAM_ALLOC)
        continue;
      const Storage *storage = &g_array_index(program->storages, Storage, op->a);
      weights += storage->category == CATEGORY_PARAMETER && storage->space == SPACE_DEVICE;
    }
    ck_assert_int_eq(weights, cases[i].weights);
    ck_assert_int_eq(simulated_host_bytes_alive(s, 0, CATEGORY_PARAMETER), 0);
  }
}
END_TEST

/* fully_shard is called as groups are listed: a layer's shards, 64 x 64 / 8 numbers the first, come
 * in that order.  The second layer's attention is made of the first group that is listed. */
START_TEST(listed_groups_are_sharded_in_the_lists_order)
{
  const char *const set[] = {"phases.initialize.from=full",
                             "fsdp.groups=[\"layers.1\",\"layers.0\"]", NULL};
  g_autoptr(Simulated) s = save_on(set, 0);
  const Program *program = s->lowered->program;
  const GArray *ops = ((const OpList *) g_ptr_array_index(program->lists, 0))->ops;
  const char *first = NULL;
  for (guint i = 0; i < ops->len && first == NULL; i++) {
    const ProgramOp *op = &g_array_index(ops, ProgramOp, i);
    if (op->kind != PROGRAM_ALLOC)
      continue;
    const Storage *storage = &g_array_index(program->storages, Storage, op->a);
    if (storage->bytes == 4 * 64 * 64 / 8)
      first = program_text(program, storage->what);
  }
  ck_assert_str_eq(first, "layers.1.attention.wq.weight");
}
END_TEST

START_TEST(a_model_that_cannot_be_made_so_is_refused)
{
  g_autofree char *network = g_strdup_printf(network_format, LAYERS);
  g_autoptr(GError) error = NULL;
  Simulation simulation = {network, strategies_tried[6], from_meta, 0};
  ck_assert_ptr_null(simulation_try(&simulation, 1, &error));
  ck_assert(
      test_error_says(error, "key 'phases.initialize': strategy zero3 makes the model whole"));
}
END_TEST

/* ---- restoring */

/* Gradients of zeros and both moments, 4 bytes each, and fused Adam's counters of 512 bytes as the
 * allocator rounds them. */
START_TEST(restoring_an_optimizer_takes_gradients_beside_its_states)
{
  const char *const set[] = {"phases.load.state=sharded", "optimizer.implementation=fused", NULL};
  g_autoptr(Simulated) s = save_on(set, 2);
  const Range *range = beyond_range(s->recording, "load", 0);
  gint64 shards = LAYERS * LAYER_SHARD_BYTES + 2 * (256 * 64 / 8) * 4 + 512;
  gint64 counters = (9 * LAYERS + 3) * 512;
  ck_assert_int_eq(range->peak_allocated - range->start_allocated, 3 * shards + counters);
  ck_assert_int_eq(range->end_allocated - range->start_allocated, 2 * shards + counters);
}
END_TEST

START_TEST(without_the_optimizer_shards_are_read_in_place)
{
  const char *const set[] = {"phases.load.optimizer=false", NULL};
  g_autoptr(Simulated) s = save_on(set, 2);
  const Range *range = beyond_range(s->recording, "load", 0);
  ck_assert_int_eq(range->peak_allocated, range->start_allocated);
  ck_assert_int_eq(moved_by(s, "load")->state_bytes, MODEL_ELEMENTS / 8 * 4);
}
END_TEST

/* One tensor at a time goes from rank 0 to all. */
START_TEST(a_whole_checkpoint_takes_one_parameter_of_the_device)
{
  const char *const set[] = {"phases.load.state=full", "phases.load.optimizer=false", NULL};
  for (int rank = 0; rank < 8; rank += 7) {
    g_autoptr(Simulated) s = save_on(set, rank);
    const Range *range = beyond_range(s->recording, "load", 0);
    ck_assert_int_eq(range->peak_allocated - range->start_allocated, 4 * 256 * 64);
    ck_assert_int_eq(range->end_allocated, range->start_allocated);
    ck_assert_int_eq(moved_by(s, "load")->state_bytes, rank == 0 ? 4 * MODEL_ELEMENTS : 0);
  }
}
END_TEST

/* 8 ranks read what 5 wrote: together all, each its own. */
START_TEST(another_number_of_shards_is_read_once)
{
  const char *const set[] = {"phases.load.optimizer=false", "phases.load.from.shard=5", NULL};
  gint64 read = 0, from[5] = {0};
  for (int rank = 0; rank < 8; rank++) {
    g_autoptr(Simulated) s = save_on(set, rank);
    const LoweredPhase *moved = moved_by(s, "load");
    ck_assert_int_eq(moved->sources, 5);
    gint64 sum = 0;
    for (int i = 0; i < 5; i++) {
      sum += moved->source_bytes[i];
      from[i] += moved->source_bytes[i];
    }
    ck_assert_int_eq(sum, moved->state_bytes);
    read += sum;
  }
  ck_assert_int_eq(read, 4 * MODEL_ELEMENTS);
  /* rank 4 of 5 has the last 256 - 4 * 52 rows of embedding and head, and so on */
  gint64 last = 2 * (256 - 4 * 52) * 64 + (64 - 4 * 13);
  last += LAYERS * (2 * (64 - 4 * 13) * 64 + 2 * (32 - 4 * 7) * 64 + 2 * (160 - 4 * 32) * 64 +
                    (64 - 4 * 13) * 160 + 2 * (64 - 4 * 13));
  ck_assert_int_eq(from[4], 4 * last);
}
END_TEST

/* FSDP1 gathers each parameter of a unit by rows, and its flat parameter to copy them into, while
 * the root's are there: it ends with what it began with, and reads its rows. */
START_TEST(fsdp1_reads_rows_and_spreads_them_over_flat_parameters)
{
  const char *const set[] = {"phases.load.optimizer=false", "phases.load.from.strategy=zero1",
                             "phases.load.from.shard=3", NULL};
  g_autofree char *network = g_strdup_printf(network_format, LAYERS);
  gint64 read = 0;
  for (int rank = 0; rank < 8; rank++) {
    g_autoptr(Simulated) s = simulation_execute(
        &(Simulation){network, strategies_tried[2], set, rank}, 1, WITHOUT_LIMIT);
    const Range *range = beyond_range(s->recording, "load", 0);
    ck_assert_int_eq(range->end_allocated, range->start_allocated);
    ck_assert_int_gt(range->peak_allocated - range->start_allocated,
                     2 * 4 * (LAYER_ELEMENTS + 2 * 256 * 64));
    read += moved_by(s, "load")->state_bytes;
  }
  ck_assert_int_eq(read, 4 * MODEL_ELEMENTS);
}
END_TEST

/* Whole flat parameters are read whole by every rank, into clones that are copied over them. */
START_TEST(fsdp1_without_sharding_reads_a_clone_of_everything)
{
  const char *const set[] = {"phases.load.optimizer=false", "fsdp.sharding_strategy=NO_SHARD",
                             NULL};
  g_autofree char *network = g_strdup_printf(network_format, LAYERS);
  for (int rank = 0; rank < 8; rank += 7) {
    g_autoptr(Simulated) s = simulation_execute(
        &(Simulation){network, strategies_tried[2], set, rank}, 1, WITHOUT_LIMIT);
    const Range *range = beyond_range(s->recording, "load", 0);
    ck_assert_int_eq(moved_by(s, "load")->state_bytes, 4 * MODEL_ELEMENTS);
    ck_assert_int_eq(range->end_allocated, range->start_allocated);
    ck_assert_int_eq(range->peak_allocated - range->start_allocated,
                     4 * MODEL_ELEMENTS + (2 * LAYERS + 1) * 256);
  }
}
END_TEST

/* Storages of that name that the construction makes, the checkpoint's restoration included. */
static int
made_at_first(const Simulated *s, const char *what)
{
  const Program *program = s->lowered->program;
  const GArray *ops = ((const OpList *) g_ptr_array_index(program->lists, 0))->ops;
  int count = 0;
  for (guint i = 0; i < ops->len; i++) {
    const ProgramOp *op = &g_array_index(ops, ProgramOp, i);
    if (op->kind != PROGRAM_ALLOC)
      continue;
    const Storage *storage = &g_array_index(program->storages, Storage, op->a);
    count += strcmp(program_text(program, storage->what), what) == 0;
  }
  return count;
}

/* _param_name_infos has a shared parameter under both of its names, so it is gathered twice.  On
 * seven ranks the last one's rows of everything are short; hybrid shards are padded as well. */
START_TEST(fsdp1_gathers_a_tied_weight_under_both_names)
{
  static const char tied[] =
      "{'model_type': 'llama', 'hidden_size': 64, 'intermediate_size': 160, 'num_hidden_layers': 2,"
      " 'num_attention_heads': 4, 'num_key_value_heads': 2, 'vocab_size': 256,"
      " 'tie_word_embeddings': true, 'implementation': 'torchtitan'}";
  static const char *const strategies[] = {"fsdp.sharding_strategy=FULL_SHARD",
                                           "fsdp.sharding_strategy=HYBRID_SHARD"};
  for (int i = 0; i < 2; i++) {
    const char *const set[] = {"phases.load.optimizer=false", "mesh.shard=7", strategies[i], NULL};
    g_autoptr(Simulated) s =
        simulation_execute(&(Simulation){tied, strategies_tried[2], set, 6}, 1, WITHOUT_LIMIT);
    ck_assert_int_eq(made_at_first(s, "gathered rows"), 9 * LAYERS + 2 + 1);
    ck_assert_int_eq(made_at_first(s, "padded rows"), 9 * LAYERS + 2 + 1);
    const Range *range = beyond_range(s->recording, "load", 0);
    ck_assert_int_eq(range->end_allocated, range->start_allocated);
  }
}
END_TEST

/* Whole parameters wait in the state dict that is broadcast, a tied one under both names. */
START_TEST(a_whole_checkpoint_of_whole_parameters_is_there_beside_them)
{
  static const char ddp[] =
      "{'strategy': 'ddp', 'mesh': {'replicate': 4}, 'batch': {'sequence_length': 64}}";
  g_autofree char *untied = g_strdup_printf(network_format, LAYERS);
  g_autofree char *tied = g_strconcat("{'tie_word_embeddings': true, ", untied + 1, NULL);
  const char *const networks[] = {untied, tied};
  const char *const set[] = {"phases.load.optimizer=false", "phases.load.state=full", NULL};
  for (int i = 0; i < 2; i++) {
    g_autoptr(Simulated) s =
        simulation_execute(&(Simulation){networks[i], ddp, set, 3}, 1, WITHOUT_LIMIT);
    const Range *range = beyond_range(s->recording, "load", 0);
    ck_assert_int_eq(range->end_allocated, range->start_allocated);
    ck_assert_int_eq(range->peak_allocated - range->start_allocated,
                     4 * MODEL_ELEMENTS + (2 * LAYERS + 1) * 256);
  }
}
END_TEST

START_TEST(after_a_restore_the_first_step_is_like_the_others)
{
  const char *const set[] = {"phases.load.from.strategy=zero3", "phases.load.from.shard=3", NULL};
  g_autoptr(Simulated) with = save_on(set, 1);
  g_autoptr(Simulated) without = save_on(NULL, 1);
  const StepRecord *first = &g_array_index(with->recording->steps, StepRecord, 0);
  const StepRecord *third = &g_array_index(without->recording->steps, StepRecord, 2);
  ck_assert_int_eq(first->end_allocated, third->end_allocated);
  simulated_check(with);
}
END_TEST

/* The whole state dict, norms rounded up to 512 bytes, is on every rank; beside it the root's flat
 * parameter, which rounding makes 256 bytes longer, and a layer's. */
START_TEST(fsdp1_has_a_whole_model_on_the_device_to_load_one)
{
  const char *const set[] = {"phases.load.state=full", "phases.load.optimizer=false", NULL};
  g_autofree char *network = g_strdup_printf(network_format, LAYERS);
  gint64 dict = 4 * MODEL_ELEMENTS + 256 * (2 * LAYERS + 1);
  gint64 root = 4 * (2 * 256 * 64 + 64) + 256;
  for (int rank = 0; rank < 8; rank += 7) {
    g_autoptr(Simulated) s = simulation_execute(
        &(Simulation){network, strategies_tried[2], set, rank}, 2, WITHOUT_LIMIT);
    const Range *range = beyond_range(s->recording, "load", 0);
    simulated_check(s);
    ck_assert_int_eq(range->peak_allocated - range->start_allocated,
                     dict + root + 4 * LAYER_ELEMENTS);
    ck_assert_int_eq(range->end_allocated, range->start_allocated);
    ck_assert_int_eq(moved_by(s, "load")->state_bytes, rank == 0 ? 4 * MODEL_ELEMENTS : 0);
  }
}
END_TEST

/* A tied weight is sent under both of its names, and is one in the root's flat parameter. */
START_TEST(fsdp1_has_a_tied_weight_twice_to_load_it)
{
  const char *const set[] = {"phases.load.state=full", "phases.load.optimizer=false", NULL};
  g_autofree char *untied = g_strdup_printf(network_format, LAYERS);
  g_autofree char *tied =
      g_strdup_printf("{'tie_word_embeddings': true, %s", strchr(untied, '{') + 1);
  const char *const networks[] = {untied, tied};
  gint64 rise[2];
  for (int i = 0; i < 2; i++) {
    g_autoptr(Simulated) s = simulation_execute(
        &(Simulation){networks[i], strategies_tried[2], set, 0}, 2, WITHOUT_LIMIT);
    const Range *range = beyond_range(s->recording, "load", 0);
    rise[i] = range->peak_allocated - range->start_allocated;
    ck_assert_int_eq(moved_by(s, "load")->state_bytes, 4 * MODEL_ELEMENTS);
  }
  ck_assert_int_eq(rise[0] - rise[1], 4 * 256 * 64);
}
END_TEST

static void
refuses_fsdp1(const char *const *set, const char *says)
{
  g_autofree char *network = g_strdup_printf(network_format, LAYERS);
  g_autoptr(GError) error = NULL;
  Simulation simulation = {network, strategies_tried[2], set, 0};
  ck_assert_ptr_null(simulation_try(&simulation, 1, &error));
  ck_assert_msg(test_error_says(error, says), "%s", error->message);
}

START_TEST(what_fsdp1_cannot_load_yet_is_refused_by_name)
{
  const char *const states[] = {"phases.load.state=full", NULL};
  const char *const host[] = {"phases.load.state=full", "phases.load.optimizer=false",
                              "fsdp.cpu_offload=true", NULL};
  refuses_fsdp1(states, "key 'phases.load.optimizer': states of the optimizer");
  refuses_fsdp1(host, "key 'phases.load.state': a full state does not yet go with cpu_offload");
}
END_TEST

/* ---- DeepSpeed's engine */

static Simulated *
engine_loads(const char *strategy, const char *const *set, int rank)
{
  g_autofree char *network = g_strdup_printf(network_format, LAYERS);
  g_autofree char *plan = g_strdup_printf(
      "{'strategy': '%s', 'mesh': {'shard': 8}, 'precision': {'parameters': 'bf16'},"
      " 'batch': {'micro_batch': 2, 'sequence_length': 64}}",
      strategy);
  return simulation_execute(&(Simulation){network, plan, set, rank}, 3, WITHOUT_LIMIT);
}

static const char *const loads[] = {"phases.load.optimizer=true", NULL};

/* Every rank reads the model's file, which in stage 3 has no weights and without ZeRO the optimizer
 * too; and its own part of 12 bytes a parameter. */
START_TEST(deepspeed_reads_the_model_everywhere_and_each_part_of_the_optimizer_once)
{
  static const char *const strategies[] = {"zero0", "zero1", "zero2", "zero3"};
  static const gint64 expected[] = {8 * 14, 8 * 2 + 12, 8 * 2 + 12, 12};
  gint64 read = 0, masters = 0;
  for (int rank = 0; rank < 8; rank++) {
    g_autoptr(Simulated) s = engine_loads(strategies[_i], loads, rank);
    const LoweredPhase *moved = moved_by(s, "load");
    simulated_check(s);
    read += moved->state_bytes;
    for (int i = 0; i < moved->sources; i++)
      masters += moved->source_bytes[i];
    for (int i = 0; i < moved->sources && moved->sources > 1; i++)
      ck_assert(i == rank || moved->source_bytes[i] == 0);
  }
  ck_assert_int_eq(read, expected[_i] * MODEL_ELEMENTS);
  ck_assert_int_eq(masters, (_i == 0 ? 8 : 1) * 4 * MODEL_ELEMENTS);
}
END_TEST

/* Stages 1 and 2 make the moments of a partition; the 16-bit optimizer without ZeRO, which has
 * moments already, new ones for all parameters before those go; an fp32 model keeps its first. */
START_TEST(deepspeed_makes_moments_of_what_it_reads)
{
  const char *const fp32[] = {"phases.load.optimizer=true", "precision.parameters=fp32", NULL};
  gint64 flat = 2 * 4 * (MODEL_ELEMENTS / 8),
         whole = 2 * (4 * MODEL_ELEMENTS + 256 * (2 * LAYERS + 1));
  static const struct {
    const char *strategy;
    gboolean fp32, whole, stays;
  } cases[] = {{"zero0", FALSE, TRUE, FALSE},
               {"zero0", TRUE, TRUE, TRUE},
               {"zero1", FALSE, FALSE, TRUE},
               {"zero2", FALSE, FALSE, TRUE}};
  g_autoptr(Simulated) s = engine_loads(cases[_i].strategy, cases[_i].fp32 ? fp32 : loads, 0);
  const Range *range = beyond_range(s->recording, "load", 0);
  gint64 rise = range->peak_allocated - range->start_allocated;
  gint64 moments = cases[_i].whole ? whole : flat;
  ck_assert_int_ge(rise, moments);
  ck_assert_int_lt(rise, moments + 2 * 512);
  ck_assert_int_eq(range->end_allocated - range->start_allocated, cases[_i].stays ? rise : 0);
}
END_TEST

/* All parameters of this model persist: stage 3 gathers them after it has read. */
START_TEST(deepspeed_gathers_again_what_persists)
{
  const char *const none[] = {"phases.load.optimizer=true",
                              "deepspeed.stage3_param_persistence_threshold=0", NULL};
  g_autoptr(Simulated) with = engine_loads("zero3", loads, 0);
  g_autoptr(Simulated) without = engine_loads("zero3", none, 0);
  const Range *a = beyond_range(with->recording, "load", 0);
  const Range *b = beyond_range(without->recording, "load", 0);
  gint64 moments = b->end_allocated - b->start_allocated;
  ck_assert_int_ge(moments, 2 * 4 * (MODEL_ELEMENTS / 8));
  ck_assert_int_lt(moments, 2 * 4 * (MODEL_ELEMENTS / 8) + 2 * 512);
  ck_assert_int_ge(a->end_allocated - a->start_allocated, moments + 2 * MODEL_ELEMENTS);
}
END_TEST

START_TEST(after_deepspeed_has_loaded_steps_hold_what_they_hold_without)
{
  static const char *const strategies[] = {"zero0", "zero1", "zero2", "zero3"};
  g_autoptr(Simulated) with = engine_loads(strategies[_i], loads, 0);
  g_autoptr(Simulated) without = engine_loads(strategies[_i], NULL, 0);
  const GArray *loaded = with->recording->steps, *trained = without->recording->steps;
  ck_assert_int_eq(g_array_index(loaded, StepRecord, 2).end_allocated,
                   g_array_index(trained, StepRecord, 2).end_allocated);
  ck_assert_int_eq(g_array_index(loaded, StepRecord, 2).peak_allocated,
                   g_array_index(trained, StepRecord, 2).peak_allocated);
}
END_TEST

/* load_optimizer_states=False: master weights are cast from the weights that were read. */
START_TEST(without_the_optimizer_deepspeed_takes_nothing_of_the_device)
{
  const char *const set[] = {"phases.load.optimizer=false", "phases.load.from.strategy=zero1",
                             "phases.load.from.shard=8", NULL};
  const char *const offloaded[] = {"phases.load.optimizer=true",
                                   "deepspeed.offload_optimizer.device=cpu", NULL};
  const char *const *sets[] = {set, offloaded};
  for (guint i = 0; i < G_N_ELEMENTS(sets); i++) {
    g_autoptr(Simulated) s = engine_loads("zero2", sets[i], 3);
    const Range *range = beyond_range(s->recording, "load", 0);
    ck_assert_int_eq(range->peak_allocated, range->start_allocated);
    ck_assert_int_ge(moved_by(s, "load")->state_bytes, 2 * MODEL_ELEMENTS);
  }
}
END_TEST

START_TEST(what_deepspeed_cannot_load_is_refused_by_name)
{
  static const struct {
    const char *strategy, *set, *says;
  } cases[] = {
      {"zero2", "phases.load.state=full", "key 'phases.load.state': DeepSpeed's engine"},
      {"zero2", "phases.load.from.shard=4", "reads a checkpoint of 4 ranks with as many only"},
      {"zero3", "phases.load.from.shard=16", "universal checkpoints are not yet supported"},
      {"zero3", "phases.load.from.strategy=zero2", "strategy zero3 does not read what zero2 wrote"},
      {"zero1", "phases.load.from.strategy=fsdp2", "strategy zero1 does not read what fsdp2 wrote"},
      {"zero3", "phases.load.optimizer=false", "key 'phases.load.optimizer': stage 3 without"},
  };
  g_autofree char *network = g_strdup_printf(network_format, LAYERS);
  g_autofree char *plan = g_strdup_printf(
      "{'strategy': '%s', 'mesh': {'shard': 8}, 'precision': {'parameters': 'bf16'},"
      " 'batch': {'micro_batch': 2, 'sequence_length': 64}}",
      cases[_i].strategy);
  const char *const set[] = {cases[_i].set, NULL};
  g_autoptr(GError) error = NULL;
  Simulation simulation = {network, plan, set, 0};
  ck_assert_ptr_null(simulation_try(&simulation, 1, &error));
  ck_assert_msg(test_error_says(error, cases[_i].says), "%s", error->message);
}
END_TEST

/* ---- what is retained for good */

static gint64
growth(const char *retain)
{
  g_autofree char *network = g_strdup_printf(network_format, LAYERS);
  g_autofree char *assignment = g_strdup_printf("retain=[{%s, \"until\": \"end_of_run\"}]", retain);
  const char *const set[] = {assignment, NULL};
  g_autoptr(Simulated) s =
      simulation_execute(&(Simulation){network, fsdp2, set, 0}, 5, WITHOUT_LIMIT);
  const GArray *steps = s->recording->steps;
  return g_array_index(steps, StepRecord, 4).end_allocated -
         g_array_index(steps, StepRecord, 3).end_allocated;
}

START_TEST(what_is_kept_to_the_end_of_the_run_grows_with_each_step)
{
  /* in bf16; every size is a multiple of 512 bytes */
  ck_assert_int_eq(growth("\"group\": \"layers.1.feed_forward\""), 2 * 3 * 160 * 64);
  ck_assert_int_eq(growth("\"group\": \"layers.1\", \"as\": \"reference\""), 0);
  ck_assert_int_eq(growth("\"group\": \"loss\", \"as\": \"reference\""), 512);
}
END_TEST

/* ---- recorded runs: torch.distributed.fsdp.fully_shard of PyTorch 2.11 */

/* What the recorded run's hook or list keeps: of layer 0's feed-forward module its full parameters,
 * copied or as they are, or each step's loss. */
static void
add_leak(GString *plan, const char *leak)
{
  static const struct {
    const char *theirs, *ours;
  } leaks[] = {
      {"clone", "'group': 'layers.0.feed_forward', 'as': 'clone'"},
      {"unsharded", "'group': 'layers.0', 'as': 'reference'"},
      {"unsharded_view", "'group': 'layers.0', 'as': 'reference'"},
      {"loss", "'group': 'loss', 'as': 'reference'"},
      {"loss_detached", "'group': 'loss', 'as': 'reference'"},
  };
  for (guint i = 0; i < G_N_ELEMENTS(leaks); i++)
    if (strcmp(leak, leaks[i].theirs) == 0)
      g_string_append_printf(plan, ", 'retain': [{%s, 'until': 'end_of_run'}]", leaks[i].ours);
}

static void
add_save(GString *plan, const char *save)
{
  if (save[0] == '\0')
    return;
  g_string_append_printf(plan, "'save': {'state': '%s', 'cpu_offload': %s, 'optimizer': %s}",
                         g_str_has_prefix(save, "full") ? "full" : "sharded",
                         strstr(save, "cpu") ? "true" : "false",
                         strstr(save, "opt") ? "true" : "false");
}

static char *
extra_plan(const cJSON *config)
{
  const char *reshard = recorded_text(config, "raf");
  GString *plan = g_string_new(NULL);
  g_string_printf(plan,
                  "{'strategy': 'fsdp2', 'mesh': {'shard': %d},"
                  " 'batch': {'micro_batch': %d, 'sequence_length': %d},"
                  " 'precision': {'compute': 'bf16', 'reduce': 'fp32'},"
                  " 'optimizer': {'implementation': 'fused'},"
                  " 'activation_checkpointing': {'policy': '%s'},"
                  " 'fsdp': {'reshard_after_forward': %s}, 'phases': {",
                  recorded_int(config, "world"), recorded_int(config, "batch"),
                  recorded_int(config, "seq"), recorded_text(config, "ac"),
                  strcmp(reshard, "default") == 0 ? "null" : reshard);
  if (recorded_flag(config, "eval_after"))
    g_string_append(plan, "'evaluate': {}");
  add_save(plan, recorded_text(config, "save"));
  g_string_append(plan, "}");
  add_leak(plan, recorded_text(config, "leak"));
  g_string_append(plan, "}");
  return g_string_free(plan, FALSE);
}

static gint64
bytes_of(const cJSON *object, const char *key)
{
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
  ck_assert_msg(cJSON_IsNumber(item), "%s is no number", key);
  return (gint64) item->valuedouble;
}

/* Peaks of a recorded phase after a step, and what is there at its end. */
static void
compare_phase(const Recording *recording, const cJSON *phase, int step)
{
  static const struct {
    const char *theirs, *ours;
  } names[] = {{"eval", "evaluate"}, {"save", "save"}};
  const char *name = cJSON_GetObjectItemCaseSensitive(phase, "name")->valuestring;
  for (guint i = 0; i < G_N_ELEMENTS(names); i++) {
    if (strcmp(name, names[i].theirs) != 0)
      continue;
    const Range *range = beyond_range(recording, names[i].ours, step);
    ck_assert_int_eq(range->peak_allocated, bytes_of(phase, "peak"));
    ck_assert_int_eq(range->peak_reserved, bytes_of(phase, "peak_reserved"));
    ck_assert_int_eq(range->end_allocated, bytes_of(phase, "end"));
  }
}

static void
compare_run(const Recording *recording, const cJSON *steps)
{
  int step = 0;
  const cJSON *recorded, *phase;
  cJSON_ArrayForEach(recorded, steps)
  {
    gint64 peak = 0;
    step++;
    cJSON_ArrayForEach(phase, cJSON_GetObjectItemCaseSensitive(recorded, "phases"))
    {
      compare_phase(recording, phase, step);
      peak = MAX(peak, bytes_of(phase, "peak"));
    }
    gint64 ours = g_array_index(recording->steps, StepRecord, step - 1).peak_allocated;
    for (guint i = 0; i < recording->beyond->len; i++) {
      gint32 at = g_array_index(recording->beyond, BeyondRecord, i).range;
      const Range *range = &g_array_index(recording->ranges, Range, at);
      ours = range->step == step ? MAX(ours, range->peak_allocated) : ours;
    }
    ck_assert_int_eq(ours, peak);
  }
  ck_assert_int_eq((int) recording->steps->len, step);
}

static const char *const recorded_runs[] = {
    "1b_base",
    "1b_eval",
    "7b_eval_raf_default",
    "1b_save_full",
    "1b_save_full_rank3",
    "1b_save_full_opt",
    "1b_save_full_cpu_rank3",
    "1b_save_full_cpu_opt_small",
    "1b_save_sharded_cpu",
    "1b_leak_clone",
    "1b_leak_unsharded",
    "1b_leak_unsharded_view",
    "1b_leak_loss",
    "1b_leak_loss_detached",
};

START_TEST(recorded_runs_agree_to_the_byte)
{
  g_autofree char *file = g_strdup_printf("reference/extra/%s.json", recorded_runs[_i]);
  g_autofree char *path = test_reference_path(file);
  if (path == NULL) {
    test_note("%s is not there: nothing compared", file);
    return;
  }
  cJSON *document = recorded_document(path);
  const cJSON *config = cJSON_GetObjectItemCaseSensitive(document, "config");
  g_autofree char *network = recorded_network(config), *plan = extra_plan(config);
  Simulation simulation = {network, plan, NULL, recorded_int(config, "rank")};
  g_autoptr(Simulated) s =
      simulation_execute(&simulation, recorded_int(config, "steps"), WITHOUT_LIMIT);
  compare_run(s->recording, cJSON_GetObjectItemCaseSensitive(document, "steps"));
  cJSON_Delete(document);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("phases");
  TCase *evaluation = tcase_create("evaluation");
  tcase_add_test(evaluation, an_evaluation_leaves_memory_as_it_found_it);
  tcase_add_test(evaluation, steps_are_what_they_are_without_an_evaluation);
  tcase_add_test(evaluation, an_evaluation_keeps_nothing_of_a_layer);
  tcase_add_test(evaluation, a_root_that_is_not_resharded_outlives_the_evaluation);
  tcase_add_test(evaluation, an_evaluation_gathers_each_group_once);
  tcase_add_test(evaluation, an_evaluation_has_batches_of_its_own);
  tcase_add_test(evaluation, an_evaluation_comes_after_each_so_many_steps);
  tcase_add_loop_test(evaluation, every_strategy_evaluates_and_keeps_the_rules_of_programs, 0,
                      G_N_ELEMENTS(strategies_tried));
  tcase_add_test(evaluation, memory_that_runs_out_in_an_evaluation_does_not_fit);
  tcase_add_test(evaluation, a_block_casts_its_part_of_a_longer_table);
  tcase_add_test(evaluation, an_evaluation_in_autocast_holds_the_logarithms_for_the_loss);
  suite_add_tcase(suite, evaluation);
  TCase *saving = tcase_create("saving");
  tcase_add_test(saving, a_full_state_dict_on_the_device_is_a_whole_model_more);
  tcase_add_test(saving, a_full_state_dict_on_the_host_takes_one_parameter_of_the_device);
  tcase_add_test(saving, a_sharded_state_dict_takes_nothing_and_writes_each_part_once);
  tcase_add_test(saving, rows_from_the_host_are_there_until_what_is_padded_is_gathered);
  tcase_add_test(saving, a_sharded_state_dict_of_whole_flat_parameters_is_full);
  tcase_add_test(saving, hybrid_shards_are_cloned_from_clones_of_the_whole);
  tcase_add_test(saving, steps_do_not_notice_a_checkpoint);
  tcase_add_test(saving, steps_before_a_checkpoint_repeat_each_other);
  tcase_add_test(saving, deepspeed_writes_each_part_of_its_state_once);
  tcase_add_test(saving, fsdp1_gathers_the_optimizer_unit_by_unit);
  tcase_add_test(saving, fsdp1_writes_each_row_of_the_optimizer_once);
  tcase_add_test(saving, whole_parameters_are_not_copied_on_the_device);
  tcase_add_test(saving, what_is_kept_to_the_end_of_the_run_grows_with_each_step);
  suite_add_tcase(suite, saving);
  TCase *initialization = tcase_create("initialization");
  tcase_add_test(initialization,
                 a_full_model_on_the_device_is_there_when_the_first_shards_are_made);
  tcase_add_test(initialization, a_full_model_on_the_host_comes_group_by_group);
  tcase_add_test(initialization, however_a_model_is_made_its_steps_are_the_same);
  tcase_add_test(initialization, a_tied_weight_that_is_moved_is_one_all_along);
  tcase_add_test(initialization, listed_groups_are_sharded_in_the_lists_order);
  tcase_add_test(initialization, a_model_that_cannot_be_made_so_is_refused);
  suite_add_tcase(suite, initialization);
  TCase *restoring = tcase_create("restoring");
  tcase_add_test(restoring, restoring_an_optimizer_takes_gradients_beside_its_states);
  tcase_add_test(restoring, without_the_optimizer_shards_are_read_in_place);
  tcase_add_test(restoring, a_whole_checkpoint_takes_one_parameter_of_the_device);
  tcase_add_test(restoring, another_number_of_shards_is_read_once);
  tcase_add_test(restoring, fsdp1_reads_rows_and_spreads_them_over_flat_parameters);
  tcase_add_test(restoring, fsdp1_without_sharding_reads_a_clone_of_everything);
  tcase_add_test(restoring, fsdp1_gathers_a_tied_weight_under_both_names);
  tcase_add_test(restoring, a_whole_checkpoint_of_whole_parameters_is_there_beside_them);
  tcase_add_test(restoring, after_a_restore_the_first_step_is_like_the_others);
  tcase_add_test(restoring, fsdp1_has_a_whole_model_on_the_device_to_load_one);
  tcase_add_test(restoring, fsdp1_has_a_tied_weight_twice_to_load_it);
  tcase_add_test(restoring, what_fsdp1_cannot_load_yet_is_refused_by_name);
  tcase_add_loop_test(
      restoring, deepspeed_reads_the_model_everywhere_and_each_part_of_the_optimizer_once, 0, 4);
  tcase_add_loop_test(restoring, deepspeed_makes_moments_of_what_it_reads, 0, 4);
  tcase_add_test(restoring, deepspeed_gathers_again_what_persists);
  tcase_add_loop_test(restoring, after_deepspeed_has_loaded_steps_hold_what_they_hold_without, 0,
                      4);
  tcase_add_test(restoring, without_the_optimizer_deepspeed_takes_nothing_of_the_device);
  tcase_add_loop_test(restoring, what_deepspeed_cannot_load_is_refused_by_name, 0, 6);
  suite_add_tcase(suite, restoring);
  TCase *recorded = tcase_create("recorded");
  tcase_add_loop_test(recorded, recorded_runs_agree_to_the_byte, 0, G_N_ELEMENTS(recorded_runs));
  suite_add_tcase(suite, recorded);
  return suite;
}

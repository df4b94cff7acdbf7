/* plan_spec.c - reads how a network is trained, against the table of strategies. */
#include "spec/plan_spec.h"

#include <math.h>
#include <stdarg.h>

#include "base/units.h"
#include "spec/preset.h"

#define MESH_DIM_MAX (1 << 20)
#define MESH_RANKS_MAX (1 << 24)
#define ACCUMULATION_MAX 1024 /* every micro-batch is simulated */
#define CLIP_MAX 1e9
#define SLOWNESS_MIN 0.1
#define SLOWNESS_MAX 100
#define JITTER_MAX 0.3
#define LOAD_IMBALANCE_MAX 1e6
#define SEQUENCE_LENGTH_DEFAULT 8192
/* PyTorch's CUDAAllocatorConfig: max_split_size_mb must be larger than kLargeBuffer (20 MiB). */
#define MAX_SPLIT_SIZE_MIN (20 * MIB + 1)
/* PyTorch's CUDAAllocatorConfig: the number of divisions is a power of 2 (0 is off). */
#define POWER2_DIVISIONS_MAX (1 << 20)

static const char *const optimizer_names[] = {"adamw", "adam", "sgd", "none", NULL};
static const char *const optimizer_code_names[] = {"fused", "foreach", "forloop", "composer", NULL};
static const char *const zero_grad_names[] = {"start", "end", NULL};
static const char *const retain_as_names[] = {"clone", "unsharded", "reference", NULL};
static const char *const retain_until_names[] = {"end_of_forward", "end_of_backward", "end_of_step",
                                                 "end_of_run", NULL};
static const char *const experts_names[] = {"grouped", "batched", "eager", NULL};
static const char *const compile_names[] = {"none", "per_block", NULL};
static const char *const loop_names[] = {"plain", "accelerate", "trainer", NULL};

/* Part of the format, but nothing simulates them yet. */
static const char *const reserved_keys[] = {"offload"};

const char *
plan_optimizer_name(OptimizerName name)
{
  return optimizer_names[name];
}

const char *
plan_optimizer_code_name(OptimizerCode code)
{
  return optimizer_code_names[code];
}

const char *
plan_loop_name(LoopCode code)
{
  return loop_names[code];
}

static void
read_mesh(JsonReader *reader, PlanSpec *spec)
{
  g_autoptr(JsonReader) mesh = json_reader_section(reader, "mesh");
  spec->shard = (int) json_reader_int(mesh, "shard", 1, 1, MESH_DIM_MAX);
  spec->replicate = (int) json_reader_int(mesh, "replicate", 1, 1, MESH_DIM_MAX);
  gint64 ranks = (gint64) spec->shard * spec->replicate;
  if (ranks > MESH_RANKS_MAX)
    json_reader_fail(reader, "mesh",
                     "%d shards x %d replicas are %" G_GINT64_FORMAT " ranks, more than %d",
                     spec->shard, spec->replicate, ranks, MESH_RANKS_MAX);
  json_reader_finish(mesh, NULL);
}

static void
read_batch(JsonReader *reader, PlanSpec *spec)
{
  g_autoptr(JsonReader) batch = json_reader_section(reader, "batch");
  spec->micro_batch = (int) json_reader_int(batch, "micro_batch", 1, 1, PLAN_MICRO_BATCH_MOST);
  spec->sequence_length_given = json_reader_has(batch, "sequence_length");
  spec->sequence_length =
      (int) json_reader_int(batch, "sequence_length", SEQUENCE_LENGTH_DEFAULT, 1, G_MAXINT32);
  spec->target_length = (int) json_reader_int(batch, "target_length", 0, 1, G_MAXINT32);
  json_reader_finish(batch, NULL);
}

/* Defaults as in a plain loop over FSDP2 or DDP modules without no_sync: every micro-batch reduces
 * its gradients. */
static void
read_accumulation(JsonReader *reader, PlanSpec *spec)
{
  g_autoptr(JsonReader) section = json_reader_section(reader, "accumulation");
  spec->accumulation.steps = (int) json_reader_int(section, "steps", 1, 1, ACCUMULATION_MAX);
  spec->accumulation.sync_every_step_given = json_reader_has(section, "sync_every_step");
  spec->accumulation.sync_every_step = json_reader_bool(section, "sync_every_step", TRUE);
  spec->accumulation.reshard_after_backward_given =
      json_reader_has(section, "reshard_after_backward");
  spec->accumulation.reshard_after_backward =
      json_reader_bool(section, "reshard_after_backward", TRUE);
  spec->accumulation.set_last_backward_given = json_reader_has(section, "set_last_backward");
  spec->accumulation.set_last_backward = json_reader_bool(section, "set_last_backward", FALSE);
  spec->accumulation.all_reduce_every =
      (int) json_reader_int(section, "all_reduce_every", 1, 1, ACCUMULATION_MAX);
  json_reader_finish(section, NULL);
}

/* A floating-point dtype.  Returns whether the key is given. */
static gboolean
read_dtype(JsonReader *reader, const char *key, DType fallback, DType *dtype)
{
  *dtype = fallback;
  const char *name = json_reader_string(reader, key, NULL);
  if (!name)
    return FALSE;
  int found = dtype_from_name(name);
  if (found == DTYPE_FP32 || found == DTYPE_BF16 || found == DTYPE_FP16)
    *dtype = (DType) found;
  else
    json_reader_fail(reader, key, "'%.60s' is not one of fp32, bf16, fp16", name);
  return TRUE;
}

/* torch.distributed.fsdp.MixedPrecisionPolicy: param_dtype None computes in the parameters' dtype,
 * reduce_dtype None reduces in the dtype of the gradients, which is the compute dtype there and the
 * parameters' under autocast. */
static void
read_precision(JsonReader *reader, PlanSpec *spec)
{
  g_autoptr(JsonReader) section = json_reader_section(reader, "precision");
  read_dtype(section, "parameters", DTYPE_FP32, &spec->precision.parameters);
  spec->precision.compute_given =
      read_dtype(section, "compute", spec->precision.parameters, &spec->precision.compute);
  spec->precision.autocast = json_reader_bool(section, "autocast", FALSE);
  DType gradients = spec->precision.autocast ? spec->precision.parameters : spec->precision.compute;
  spec->precision.reduce_given = read_dtype(section, "reduce", gradients, &spec->precision.reduce);
  spec->precision.has_output =
      read_dtype(section, "output", spec->precision.compute, &spec->precision.output);
  spec->precision.grad_scaler = json_reader_bool(section, "grad_scaler", FALSE);
  if (spec->precision.grad_scaler && spec->precision.compute != DTYPE_FP16)
    json_reader_fail(section, "grad_scaler", "needs 'compute' fp16");
  if (spec->precision.autocast && dtype_size(spec->precision.compute) != 2)
    json_reader_fail(section, "autocast", "needs 'compute' bf16 or fp16");
  if (spec->precision.autocast && spec->precision.has_output &&
      spec->precision.output != DTYPE_FP32)
    json_reader_fail(section, "output", "with 'autocast' only fp32, as accelerate casts");
  json_reader_finish(section, NULL);
}

/* torch.optim.AdamW on CUDA without arguments takes its foreach implementation. */
static void
read_optimizer(JsonReader *reader, PlanSpec *spec)
{
  g_autoptr(JsonReader) section = json_reader_section(reader, "optimizer");
  spec->optimizer.name =
      (OptimizerName) json_reader_enum(section, "name", optimizer_names, OPTIMIZER_ADAMW);
  spec->optimizer.implementation = (OptimizerCode) json_reader_enum(
      section, "implementation", optimizer_code_names, OPTIMIZER_FOREACH);
  spec->optimizer.clip_grad_norm = json_reader_double(section, "clip_grad_norm", 0, 0, CLIP_MAX);
  spec->optimizer.zero_grad =
      (ZeroGradAt) json_reader_enum(section, "zero_grad", zero_grad_names, ZERO_GRAD_START);
  json_reader_finish(section, NULL);
}

/* transformers' experts_implementation is grouped_mm where nobody says otherwise. */
static void
read_moe(JsonReader *reader, PlanSpec *spec)
{
  g_autoptr(JsonReader) section = json_reader_section(reader, "moe");
  spec->moe.experts = (MoeExperts) json_reader_enum(section, "experts", experts_names, MOE_GROUPED);
  spec->moe.load_imbalance =
      json_reader_double(section, "load_imbalance", 1, 1, LOAD_IMBALANCE_MAX);
  json_reader_finish(section, NULL);
}

/* TrainingArguments' defaults: average_tokens_across_devices, logging_nan_inf_filter. */
static void
read_loop(JsonReader *reader, PlanSpec *spec)
{
  spec->loop = (LoopCode) json_reader_enum(reader, "loop", loop_names, LOOP_PLAIN);
  if (spec->loop != LOOP_TRAINER && json_reader_has(reader, "trainer"))
    json_reader_fail(reader, "trainer", "has a meaning only with loop 'trainer'");
  g_autoptr(JsonReader) section = json_reader_section(reader, "trainer");
  spec->trainer.average_tokens = json_reader_bool(section, "average_tokens", TRUE);
  spec->trainer.nan_filter = json_reader_bool(section, "nan_filter", TRUE);
  json_reader_finish(section, NULL);
}

/* PYTORCH_ALLOC_CONF's defaults and limits. */
static void
read_allocator(JsonReader *reader, PlanSpec *spec)
{
  g_autoptr(JsonReader) section = json_reader_section(reader, "allocator");
  spec->allocator.expandable_segments = json_reader_bool(section, "expandable_segments", FALSE);
  spec->allocator.max_split_size = json_reader_size_between(section, "max_split_size", G_MAXINT64,
                                                            MAX_SPLIT_SIZE_MIN, G_MAXINT64);
  spec->allocator.garbage_collection_threshold =
      json_reader_double(section, "garbage_collection_threshold", 0, 0, 1);
  if (spec->allocator.garbage_collection_threshold >= 1)
    json_reader_fail(section, "garbage_collection_threshold", "must be below 1");
  int divisions =
      (int) json_reader_int(section, "roundup_power2_divisions", 0, 0, POWER2_DIVISIONS_MAX);
  spec->allocator.roundup_power2_divisions = divisions;
  if (divisions & (divisions - 1))
    json_reader_fail(section, "roundup_power2_divisions", "%d is not a power of 2", divisions);
  json_reader_finish(section, NULL);
}

/* Which ranks are not as fast as the others.  A rank is named once. */
static void
read_slow_rank(JsonReader *ranks, PlanSpec *spec, guint i)
{
  g_autoptr(JsonReader) element = json_reader_element(ranks, "slow", i);
  gint64 last = (gint64) spec->shard * spec->replicate - 1;
  SlowRank slow = {.rank = (int) json_reader_required_int(element, "rank", 0, MAX(last, 0))};
  slow.compute = json_reader_double(element, "compute", 1, SLOWNESS_MIN, SLOWNESS_MAX);
  json_reader_require(element, "compute");
  for (guint k = 0; k < spec->ranks.slow->len; k++)
    if (g_array_index(spec->ranks.slow, SlowRank, k).rank == slow.rank)
      json_reader_fail(element, "rank", "%d is given twice", slow.rank);
  g_array_append_val(spec->ranks.slow, slow);
  json_reader_finish(element, NULL);
}

static void
read_ranks(JsonReader *reader, PlanSpec *spec)
{
  g_autoptr(JsonReader) section = json_reader_section(reader, "ranks");
  guint n = json_reader_array_length(section, "slow");
  for (guint i = 0; i < n; i++)
    read_slow_rank(section, spec, i);
  spec->ranks.jitter = json_reader_double(section, "jitter", 0, 0, JITTER_MAX);
  spec->ranks.seed = json_reader_int(section, "seed", 1, 0, (gint64) 1 << 53);
  if (spec->ranks.seed != 1 && spec->ranks.jitter <= 0)
    json_reader_fail(section, "seed", "has a meaning only with jitter");
  json_reader_finish(section, NULL);
}

static void
retain_spec_free(gpointer data)
{
  RetainSpec *retain = data;
  g_free(retain->group);
  g_free(retain);
}

static void
read_retain(JsonReader *reader, PlanSpec *spec)
{
  guint n = json_reader_array_length(reader, "retain");
  for (guint i = 0; i < n; i++) {
    g_autoptr(JsonReader) element = json_reader_element(reader, "retain", i);
    RetainSpec *retain = g_new0(RetainSpec, 1);
    retain->group = g_strdup(json_reader_required_string(element, "group"));
    for (guint k = 0; k < i; k++)
      if (strcmp(((RetainSpec *) g_ptr_array_index(spec->retain, k))->group, retain->group) == 0)
        json_reader_fail(element, "group", "'%s' is retained twice", retain->group);
    retain->as = (RetainAs) json_reader_enum(element, "as", retain_as_names, RETAIN_CLONE);
    retain->until =
        (RetainUntil) json_reader_enum(element, "until", retain_until_names, RETAIN_END_OF_STEP);
    if (retain->as == RETAIN_UNSHARDED && retain->until == RETAIN_END_OF_RUN)
      json_reader_fail(element, "until", "an unshard ends with its step");
    g_ptr_array_add(spec->retain, retain);
    json_reader_finish(element, NULL);
  }
}

/* "fsdp2, fsdp1": the strategies that have the section.  Caller frees. */
static char *
strategies_with_section(const PlanStrategy *strategies, const char *section)
{
  GString *names = g_string_new(NULL);
  for (; strategies->strategy; strategies++)
    if (strategies->section && g_str_equal(strategies->section->name, section))
      g_string_append_printf(names, "%s%s", names->len > 0 ? ", " : "", strategies->strategy);
  return g_string_free(names, FALSE);
}

/* A plan that names no strategy trains on one rank, as PyTorch without a wrapper does. */
static const PlanStrategy *
read_strategy(JsonReader *reader, PlanSpec *spec, const PlanStrategy *strategies)
{
  guint n = 0, fallback = 0;
  while (strategies[n].strategy)
    n++;
  g_assert(n > 0);
  g_autofree const char **names = g_new0(const char *, n + 1);
  for (guint i = 0; i < n; i++) {
    names[i] = strategies[i].strategy;
    if (g_str_equal(names[i], "none"))
      fallback = i;
  }
  int chosen = json_reader_enum(reader, "strategy", names, (int) fallback);
  spec->strategy = g_strdup(strategies[chosen].strategy);
  return &strategies[chosen];
}

static void
read_phases(JsonReader *reader, PlanSpec *spec, const PlanStrategy *strategies)
{
  guint n = 0;
  while (strategies[n].strategy)
    n++;
  g_autofree const char **names = g_new0(const char *, n + 1);
  for (guint i = 0; i < n; i++)
    names[i] = strategies[i].strategy;
  phase_spec_read(reader, names, &spec->phases);
}

/* Whether the key is written, without making it a known key: those are suggested for misspelt ones.
 */
static gboolean
is_written(JsonDocument *document, const char *key)
{
  return cJSON_GetObjectItemCaseSensitive(json_document_root(document), key) != NULL;
}

static void
read_section(JsonReader *reader, PlanSpec *spec, const OptionSection *section)
{
  spec->section = section;
  if (!section)
    return;
  g_autoptr(JsonReader) options = json_reader_section(reader, section->name);
  spec->options = option_section_read(options, section);
  json_reader_finish(options, NULL);
}

static void
refuse_other_sections(JsonDocument *document, JsonReader *reader, const PlanSpec *spec,
                      const PlanStrategy *strategies)
{
  for (const PlanStrategy *other = strategies; other->strategy; other++) {
    const char *name = other->section ? other->section->name : NULL;
    if (!name || (spec->section && g_str_equal(name, spec->section->name)))
      continue;
    if (!is_written(document, name) || !json_reader_has(reader, name))
      continue;
    g_autofree char *users = strategies_with_section(strategies, name);
    json_reader_fail(reader, name, "strategy '%s' does not use this section, only %s",
                     spec->strategy, users);
  }
}

static void
refuse_reserved(JsonDocument *document, JsonReader *reader)
{
  for (gsize i = 0; i < G_N_ELEMENTS(reserved_keys); i++)
    if (is_written(document, reserved_keys[i]) && json_reader_has(reader, reserved_keys[i]))
      json_reader_fail(reader, reserved_keys[i], "not yet supported");
}

/* A plan that saves all of its state says itself what was saved last before the failure. */
static void
find_last_save(PlanSpec *spec)
{
  FailureSpec *failure = &spec->failure;
  gboolean saves = spec->phases.save.given && spec->phases.save.optimizer;
  int every = spec->phases.save.every;
  if (failure->given && !failure->last_save_given && saves && every > 0)
    failure->last_save = (failure->step - 1) / every * every;
}

/* Takes name and document. */
static PlanSpec *
plan_spec_from_document(char *name, JsonDocument *owned, const char *const *assignments,
                        const PlanStrategy *strategies, GError **error)
{
  g_autoptr(JsonDocument) document = owned;
  g_autoptr(PlanSpec) spec = g_new0(PlanSpec, 1);
  spec->name = name;
  spec->file = g_strdup(json_document_name(document));
  spec->retain = g_ptr_array_new_with_free_func(retain_spec_free);
  spec->ranks.slow = g_array_new(FALSE, FALSE, sizeof(SlowRank));
  for (; assignments && *assignments; assignments++)
    if (!json_document_set(document, *assignments, error))
      return NULL;

  g_autoptr(JsonReader) reader = json_reader_new(document);
  const PlanStrategy *strategy = read_strategy(reader, spec, strategies);
  read_mesh(reader, spec);
  read_batch(reader, spec);
  read_accumulation(reader, spec);
  read_precision(reader, spec);
  checkpoint_spec_read(reader, &spec->checkpointing);
  read_optimizer(reader, spec);
  read_allocator(reader, spec);
  read_moe(reader, spec);
  spec->compile_per_block = json_reader_enum(reader, "compile", compile_names, 0) == 1;
  read_loop(reader, spec);
  read_retain(reader, spec);
  spec->trainable = name_patterns_read(reader, "trainable");
  spec->lora = lora_spec_read(reader, spec->precision.parameters);
  read_ranks(reader, spec);
  read_phases(reader, spec, strategies);
  gint64 ranks = (gint64) spec->shard * spec->replicate;
  failure_spec_read(reader, (int) MIN(ranks, MESH_RANKS_MAX), spec->accumulation.steps,
                    &spec->failure);
  read_section(reader, spec, strategy->section);
  refuse_other_sections(document, reader, spec, strategies);
  refuse_reserved(document, reader);
  if (!json_reader_finish(reader, error))
    return NULL;
  find_last_save(spec);
  return g_steal_pointer(&spec);
}

PlanSpec *
plan_spec_load(const char *preset_or_path, const char *const *assignments,
               const PlanStrategy *strategies, GError **error)
{
  g_autofree char *path = preset_find("plan", preset_or_path, error);
  if (!path)
    return NULL;
  JsonDocument *document = json_document_load(path, error);
  if (!document)
    return NULL;
  return plan_spec_from_document(preset_name_of(path), document, assignments, strategies, error);
}

PlanSpec *
plan_spec_parse(const char *name, const char *text, gsize length, const char *const *assignments,
                const PlanStrategy *strategies, GError **error)
{
  JsonDocument *document = json_document_parse(name, text, length, error);
  if (!document)
    return NULL;
  return plan_spec_from_document(preset_name_of(name), document, assignments, strategies, error);
}

void
plan_spec_free(PlanSpec *spec)
{
  if (!spec)
    return;
  g_ptr_array_unref(spec->retain);
  name_patterns_free(spec->trainable);
  lora_spec_free(spec->lora);
  checkpoint_spec_clear(&spec->checkpointing);
  g_array_unref(spec->ranks.slow);
  option_values_free(spec->options, spec->section);
  phase_spec_clear(&spec->phases);
  g_free(spec->strategy);
  g_free(spec->file);
  g_free(spec->name);
  g_free(spec);
}

gboolean
plan_spec_has_mixed_precision(const PlanSpec *spec)
{
  DType stored = spec->precision.parameters;
  return spec->precision.compute != stored || spec->precision.reduce != stored;
}

gboolean
plan_spec_checkpoints(const PlanSpec *spec, int block)
{
  return checkpoint_spec_of_block(&spec->checkpointing, block) != CHECKPOINT_NONE;
}

gboolean
plan_spec_clips(const PlanSpec *spec)
{
  return spec->optimizer.clip_grad_norm > 0 || spec->loop == LOOP_TRAINER;
}

double
plan_spec_clip_norm(const PlanSpec *spec)
{
  return spec->optimizer.clip_grad_norm > 0 ? spec->optimizer.clip_grad_norm : HUGE_VAL;
}

const OptionValue *
plan_spec_option(const PlanSpec *spec, const char *key)
{
  g_assert(spec->section);
  int index = option_section_index(spec->section, key);
  g_assert(index >= 0);
  return &spec->options[index];
}

gboolean
plan_spec_refuse(const PlanSpec *spec, GError **error, const char *key, const char *format, ...)
{
  va_list arguments;
  va_start(arguments, format);
  g_autofree char *message = g_strdup_vprintf(format, arguments);
  va_end(arguments);
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT, "%s: key '%s': %s", spec->file, key,
              message);
  return FALSE;
}

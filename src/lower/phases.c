/* phases.c - writes the phases that no step is made of, and evaluation itself. */
#include "lower/phases.h"

#include "lower/phase_load.h"
#include "lower/phase_save.h"

struct _Phases {
  StepWalk *w;
  const Network *network; /* of the evaluation, or NULL */
  Tape *tape;
  GArray *moved; /* LoweredPhase */
  LoadMap *load; /* NULL: nothing is loaded */
};

/* ---- what can be had ---- */

/* Parameters must not depend on the length of a sequence. */
static gboolean
is_same_model(const Network *a, const Network *b)
{
  if (a->parameters->len != b->parameters->len || a->modules->len != b->modules->len)
    return FALSE;
  for (guint i = 0; i < a->parameters->len; i++)
    if (network_parameter(a, (int) i)->elements != network_parameter(b, (int) i)->elements)
      return FALSE;
  return TRUE;
}

static gboolean
accept_initialize(const PlanSpec *plan, const Strategy *strategy, GError **error)
{
  const PhaseSpec *phases = &plan->phases;
  guint wanted = phases->initialize.from == INITIALIZE_META      ? INITIALIZES_META
                 : phases->initialize.on == INITIALIZE_ON_DEVICE ? INITIALIZES_ON_DEVICE
                                                                 : INITIALIZES_ON_CPU;
  if (!phases->initialize.given)
    return TRUE;
  if (!(strategy->initializes & wanted))
    return plan_spec_refuse(plan, error, "phases.initialize",
                            "strategy %s makes the model whole on the device%s", plan->strategy,
                            strategy->initializes & INITIALIZES_ON_CPU ? " or on the host" : "");
  gboolean full = phases->initialize.from == INITIALIZE_FULL;
  static const char *const without[] = {"zero_init", "cpu_offload"};
  for (guint i = 0; i < G_N_ELEMENTS(without) && full && plan->section != NULL; i++)
    if (option_section_index(plan->section, without[i]) >= 0 &&
        plan_spec_number(plan, without[i]) != 0)
      return plan_spec_refuse(plan, error, "phases.initialize.from",
                              "a full model does not go with %s", without[i]);
  return TRUE;
}

gboolean
phases_accept(const LowerInput *in, GError **error)
{
  const PlanSpec *plan = in->plan;
  if (!accept_initialize(plan, in->strategy, error))
    return FALSE;
  if (in->evaluation != NULL && !is_same_model(in->network, in->evaluation))
    return plan_spec_refuse(plan, error, "phases.evaluate.sequence_length",
                            "sequences of %" G_GINT64_FORMAT " need another model",
                            in->evaluation->shape.sequence_length);
  return phase_save_accept(plan, in->strategy, error);
}

/* ---- life ---- */

Phases *
phases_new(StepWalk *walk, const Network *evaluation, LoadMap *load)
{
  Phases *p = g_new0(Phases, 1);
  p->w = walk;
  p->moved = g_array_new(FALSE, FALSE, sizeof(LoweredPhase));
  p->network = evaluation;
  p->load = load;
  if (evaluation == NULL)
    return p;
  p->tape = tape_new_beside(walk->tape, evaluation);
  if (evaluation->shape.sequence_length > walk->x->network->shape.sequence_length)
    walk->tables = p->tape; /* tables are made for the longest sequence, and sliced for others */
  return p;
}

void
phases_free(Phases *p)
{
  tape_free(p->tape);
  g_array_unref(p->moved);
  load_map_free(p->load);
  g_free(p);
}

GArray *
phases_moved(const Phases *p)
{
  return p->moved;
}

/* ---- evaluation ---- */

/* Does the evaluation run on batches like those of training?  Then it takes their tensors. */
static gboolean
is_same_shape(const Phases *p)
{
  const NetworkShape *a = &p->network->shape, *b = &p->w->x->network->shape;
  return a->micro_batch == b->micro_batch && a->sequence_length == b->sequence_length;
}

/* Tensors of its own, copied from the host. */
static StorageId *
make_batch(Phases *p)
{
  StrategyContext *x = p->w->x;
  guint n = p->network->inputs->len;
  StorageId *inputs = g_new(StorageId, n);
  for (guint i = 0; i < n; i++) {
    const ValueInfo *info = &g_array_index(p->network->inputs, ValueInfo, i);
    StoragePurpose purpose = {CATEGORY_OTHER, -1, program_builder_name(x->builder, "batch")};
    inputs[i] = live_storage_alloc(x->live, value_bytes(info), STREAM_COMPUTE, purpose);
    program_builder_operand(
        x->builder, live_storage_tensor(x->live, inputs[i], (DType) info->dtype), ROLE_WRITE);
    strategy_copy(x, STREAM_COMPUTE, "copy of the batch", (double) value_bytes(info));
  }
  return inputs;
}

/* with torch.no_grad(): loss = criterion(model(tokens), labels) */
static void
evaluate_batch(Phases *p)
{
  StrategyContext *x = p->w->x;
  gboolean own = !is_same_shape(p);
  StorageId *inputs = own ? make_batch(p) : p->w->inputs;
  TensorRef loss = tape_forward(p->tape, inputs);
  live_storage_drop(x->live, loss.storage);
  for (guint i = 0; own && i < p->network->inputs->len; i++)
    live_storage_drop(x->live, inputs[i]);
  if (own)
    g_free(inputs);
}

static void
evaluate(Phases *p)
{
  StrategyContext *x = p->w->x;
  program_builder_set_module(x->builder, -1);
  program_builder_push(x->builder, RANGE_BEYOND, "evaluate", -1);
  x->no_grad = x->evaluating = TRUE;
  x->last_micro_batch = TRUE;
  tape_share(p->tape, p->w->tape);
  for (int i = 0; i < x->plan->phases.evaluate.batches; i++)
    evaluate_batch(p);
  tape_share(p->w->tape, p->tape);
  for (int moment = RETAIN_END_OF_FORWARD; moment <= RETAIN_END_OF_STEP; moment++)
    strategy_release_retained(x, p->w->strategy, (RetainUntil) moment);
  x->no_grad = x->evaluating = FALSE;
  program_builder_pop(x->builder);
}

/* Of each name the last one. */
static void
remember(Phases *p, LoweredPhase moved)
{
  for (guint i = 0; i < p->moved->len; i++) {
    LoweredPhase *known = &g_array_index(p->moved, LoweredPhase, i);
    if (g_str_equal(known->name, moved.name)) {
      *known = moved;
      return;
    }
  }
  g_array_append_val(p->moved, moved);
}

void
phases_after_step(Phases *p, int step, int steps)
{
  const PhaseSpec *spec = &p->w->x->plan->phases;
  if (p->network != NULL && phase_spec_evaluates(spec, step, steps))
    evaluate(p);
  if (phase_spec_saves(spec, step, steps))
    remember(p, phase_save(p->w));
}

void
phases_constructed(Phases *p)
{
  if (p->load != NULL)
    remember(p, phase_load(p->w, p->load));
}

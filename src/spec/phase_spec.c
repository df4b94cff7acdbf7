/* phase_spec.c - reads the plan's "phases". */
#include "spec/phase_spec.h"

#define STEPS_MAX G_MAXINT16
#define BATCHES_MAX 1024 /* each is simulated */
#define MOST_RANKS (1 << 20)

static const char *const from_names[] = {"meta", "full", NULL};
static const char *const on_names[] = {"device", "cpu", NULL};
static const char *const state_names[] = {"sharded", "full", NULL};

static void
read_initialize(JsonReader *phases, PhaseSpec *spec)
{
  spec->initialize.given = json_reader_has(phases, "initialize");
  g_autoptr(JsonReader) section = json_reader_section(phases, "initialize");
  spec->initialize.from =
      (InitializeFrom) json_reader_enum(section, "from", from_names, INITIALIZE_META);
  if (spec->initialize.given)
    json_reader_require(section, "from");
  gboolean full = spec->initialize.from == INITIALIZE_FULL;
  spec->initialize.on =
      (InitializeOn) json_reader_enum(section, "on", on_names, INITIALIZE_ON_DEVICE);
  if (!full && spec->initialize.on != INITIALIZE_ON_DEVICE)
    json_reader_fail(section, "on", "only a full model is made somewhere else than it stays");
  json_reader_finish(section, NULL);
}

static void
read_evaluate(JsonReader *phases, PhaseSpec *spec)
{
  spec->evaluate.given = json_reader_has(phases, "evaluate");
  g_autoptr(JsonReader) section = json_reader_section(phases, "evaluate");
  spec->evaluate.every = (int) json_reader_int(section, "every", 1, 1, STEPS_MAX);
  spec->evaluate.batches = (int) json_reader_int(section, "batches", 1, 1, BATCHES_MAX);
  spec->evaluate.micro_batch = (int) json_reader_int(section, "micro_batch", 0, 1, MOST_RANKS);
  spec->evaluate.sequence_length =
      (int) json_reader_int(section, "sequence_length", 0, 1, G_MAXINT32);
  json_reader_finish(section, NULL);
}

static void
read_save(JsonReader *phases, PhaseSpec *spec)
{
  spec->save.given = json_reader_has(phases, "save");
  g_autoptr(JsonReader) section = json_reader_section(phases, "save");
  spec->save.every = (int) json_reader_int(section, "every", 0, 1, STEPS_MAX);
  spec->save.state = (StateKind) json_reader_enum(section, "state", state_names, STATE_SHARDED);
  spec->save.optimizer = json_reader_bool(section, "optimizer", TRUE);
  spec->save.cpu_offload = json_reader_bool(section, "cpu_offload", FALSE);
  json_reader_finish(section, NULL);
}

static void
read_source(JsonReader *load, const char *const *strategies, PhaseSpec *spec)
{
  g_autoptr(JsonReader) section = json_reader_section(load, "from");
  if (json_reader_has(section, "strategy")) {
    int chosen = json_reader_enum(section, "strategy", strategies, 0);
    spec->load.strategy = g_strdup(strategies[chosen]);
  }
  spec->load.shard = (int) json_reader_int(section, "shard", 0, 1, MOST_RANKS);
  spec->load.blocks_per_group =
      (int) json_reader_int(section, "blocks_per_group", 1, 0, MOST_RANKS);
  json_reader_finish(section, NULL);
}

static void
read_load(JsonReader *phases, const char *const *strategies, PhaseSpec *spec)
{
  spec->load.given = json_reader_has(phases, "load");
  g_autoptr(JsonReader) section = json_reader_section(phases, "load");
  spec->load.state = (StateKind) json_reader_enum(section, "state", state_names, STATE_SHARDED);
  spec->load.optimizer = json_reader_bool(section, "optimizer", TRUE);
  read_source(section, strategies, spec);
  json_reader_finish(section, NULL);
}

void
phase_spec_read(JsonReader *plan, const char *const *strategies, PhaseSpec *spec)
{
  g_autoptr(JsonReader) phases = json_reader_section(plan, "phases");
  read_initialize(phases, spec);
  read_evaluate(phases, spec);
  read_save(phases, spec);
  read_load(phases, strategies, spec);
  json_reader_finish(phases, NULL);
}

void
phase_spec_clear(PhaseSpec *spec)
{
  g_clear_pointer(&spec->load.strategy, g_free);
}

gboolean
phase_spec_evaluates(const PhaseSpec *spec, int step, G_GNUC_UNUSED int steps)
{
  return spec->evaluate.given && step % spec->evaluate.every == 0;
}

gboolean
phase_spec_saves(const PhaseSpec *spec, int step, int steps)
{
  if (!spec->save.given)
    return FALSE;
  return spec->save.every > 0 ? step % spec->save.every == 0 : step == steps;
}

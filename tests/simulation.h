/* simulation.h - scenarios that tests describe in a line or two: read, lowered and executed. */
#ifndef HIGHWATER_TESTS_SIMULATION_H
#define HIGHWATER_TESTS_SIMULATION_H

#include "record/recording.h"
#include "simulate/scenario.h"

/* What to simulate.  A network and a plan are JSON, in which ' stands for ", or the name of a
 * preset. */
typedef struct {
  const char *network;
  const char *plan;
  const char *const *set; /* "mesh.shard=8", ..., NULL-terminated; NULL: none */
  int rank;
} Simulation;

/* What became of it.  The scenario owns what the rest points to. */
typedef struct {
  Scenario *scenario;
  Lowered *lowered;
  Recording *recording; /* NULL unless executed */
} Simulated;

/* Reads the inputs, on nodes of eight H100.  NULL and error when one is refused. */
Scenario *simulation_read(const Simulation *s, GError **error);
/* The same inputs for something else, with options in one text (see below).  FALSE and error when
 * a preset is not there.  The caller clears them either way. */
gboolean simulation_inputs(const char *network, const char *plan, const char *options,
                           ScenarioInputs *inputs, GError **error);
void simulation_inputs_clear(ScenarioInputs *inputs);
/* Lowers `steps` steps.  NULL and error when anything is refused. */
Simulated *simulation_try(const Simulation *s, int steps, GError **error);
/* The same; a refusal fails the test with its message. */
Simulated *simulation_lower(const Simulation *s, int steps);
/* Lowers with options in one text: "mesh.shard=8 fsdp.cpu_offload=true"; "": none.  One in braces
 * may have blanks. */
Simulated *simulation_lower_options(const char *network, const char *plan, const char *options,
                                    int rank, int steps);
/* The message with which rank 0 refuses such options; not to refuse them fails the test.  Caller
 * frees. */
char *simulation_refusal(const char *network, const char *plan, const char *options);
/* Also executes, with this many bytes for the allocator. */
Simulated *simulation_execute(const Simulation *s, int steps, gint64 memory_limit);
void simulated_free(Simulated *simulated);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(Simulated, simulated_free)

/* "wq.weight[256,256] ...": the parameters whose names begin with the prefix, without it, in order,
 * but those with `but` in their names (NULL: all).  Caller frees. */
char *parameters_text(const Network *n, const char *prefix, const char *but);

/* A Program that program_check() rejects fails the test with what it says. */
void simulated_check(const Simulated *simulated);

/* The operations of step `step` (from 0; -1: the construction). */
const GArray *simulated_ops(const Simulated *simulated, int step);
int simulated_count(const Simulated *simulated, int step, ProgramOpKind kind);
/* The collective of a step at position `*at` of its operations or the next one; `*at` is then the
 * position behind it.  NULL behind the last. */
const Collective *simulated_next_collective(const Simulated *simulated, int step, guint *at);
/* "48640 320": bytes of the step's collectives of a kind and name ("": any), in order, in units of
 * `unit` bytes.  Caller frees. */
char *simulated_collective_bytes(const Simulated *simulated, int step, CollectiveKind kind,
                                 const char *name, gint64 unit);
/* Bytes that copies of that name move in a step. */
double simulated_copied(const Simulated *simulated, int step, const char *name);

typedef struct {
  int count;
  gint64 bytes, largest;
} Allocations;
/* Allocations of tensors of that name in a step. */
Allocations simulated_allocations(const Simulated *simulated, int step, const char *what);

/* Sums over one step (from 0). */
typedef struct {
  int count;       /* collectives */
  gint64 bytes;    /* of the full buffers */
  gint64 elements; /* of them */
  double sent;     /* elements that a rank sends in the ring algorithm */
} CollectiveTotal;
CollectiveTotal simulated_collectives(const Simulated *simulated, int step, CollectiveKind kind);
/* Bytes (as requested) of a category that are alive in a space after the construction and `steps`
 * steps. */
gint64 simulated_bytes_in(const Simulated *simulated, int steps, Category category, Space space);
/* The same on the device. */
gint64 simulated_bytes_alive(const Simulated *simulated, int steps, Category category);
/* The same in the host's memory, pinned or not. */
gint64 simulated_host_bytes_alive(const Simulated *simulated, int steps, Category category);

#endif

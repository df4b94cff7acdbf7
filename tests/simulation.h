/* simulation.h - scenarios that tests describe in a line or two: read, lowered and executed. */
#ifndef HIGHWATER_TESTS_SIMULATION_H
#define HIGHWATER_TESTS_SIMULATION_H

#include "cli/scenario.h"
#include "record/recording.h"

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
/* Lowers `steps` steps.  NULL and error when anything is refused. */
Simulated *simulation_try(const Simulation *s, int steps, GError **error);
/* The same; a refusal fails the test with its message. */
Simulated *simulation_lower(const Simulation *s, int steps);
/* Also executes, with this many bytes for the allocator. */
Simulated *simulation_execute(const Simulation *s, int steps, gint64 memory_limit);
void simulated_free(Simulated *simulated);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(Simulated, simulated_free)

/* Sums over one step (from 0). */
typedef struct {
  int count;       /* collectives */
  gint64 bytes;    /* of the full buffers */
  gint64 elements; /* of them */
  double sent;     /* elements that a rank sends in the ring algorithm */
} CollectiveTotal;
CollectiveTotal simulated_collectives(const Simulated *simulated, int step, CollectiveKind kind);
/* Bytes (as requested) of a category that are alive after the construction and `steps` steps. */
gint64 simulated_bytes_alive(const Simulated *simulated, int steps, Category category);
/* The same in the host's memory. */
gint64 simulated_host_bytes_alive(const Simulated *simulated, int steps, Category category);

#endif

/* run_simulation.c - from what the command line asked for to a Recording and what reports say
 * beside it. */
#include "cli/run_simulation.h"
#include "base/units.h"
#include "spec/cluster_spec.h"
#include "spec/network_spec.h"

/* The network and cluster are read; lowering and execution are not joined to it yet. */
gboolean
run_simulation(const RunRequest *request, RunResult *result, GError **error)
{
  g_autoptr(NetworkSpec) network = network_spec_parse(request->network.name, request->network.text,
                                                      request->network.length, error);
  if (!network)
    return FALSE;
  g_autoptr(ClusterSpec) cluster = cluster_spec_parse(request->cluster.name, request->cluster.text,
                                                      request->cluster.length, error);
  if (!cluster)
    return FALSE;
  result->recording = NULL;
  result->info = NULL;
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT,
              "run: lowering and execution are not part of this build");
  return FALSE;
}

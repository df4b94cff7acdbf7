/* machine_profile.c - puts device, collectives and contention into a cluster's JSON. */
#include "calibrate/machine_profile.h"

#include <math.h>
#include <string.h>

#include "base/json_output.h"
#include "calibrate/device_writer.h"
#include "calibrate/measurement_report.h"
#include "calibrate/profile_writer.h"
#include "spec/cluster_spec.h"
#include "spec/preset.h"

/* Most machines have so many; one GPU alone does not say. */
#define USUAL_NODE 8

char *
cluster_preset_for(const char *device, int gpus_per_node)
{
  g_auto(GStrv) names = preset_names("cluster");
  g_autofree char *model = g_strndup(device, strcspn(device, "-"));
  int wanted = gpus_per_node > 1 ? gpus_per_node : USUAL_NODE;
  char *best = NULL;
  int best_score = -1;
  for (int i = 0; names != NULL && names[i] != NULL; i++) {
    g_autoptr(ClusterSpec) cluster = cluster_spec_load(names[i], NULL);
    if (cluster == NULL || strcmp(cluster->device->name, device) != 0)
      continue;
    /* Rather "h200-8" than a machine that has a name of its own; of those the one of such nodes. */
    int score = 2 * g_str_has_prefix(names[i], model) + (cluster->gpus_per_node == wanted);
    if (score <= best_score)
      continue;
    best_score = score;
    g_free(best);
    best = g_strdup(names[i]);
  }
  return best;
}

static void
add_contention(cJSON *root, const MachineProfile *p)
{
  double share = measured_memory_share(p->measured);
  if (share <= 0)
    return;
  cJSON *section = json_section(root, "contention");
  g_autofree char *source =
      g_strdup_printf("measured, %s: element-wise kernels beside blocks that copy", p->when);
  json_replace(section, "memory_limit", cJSON_CreateNumber(round(MIN(share, 0.99) * 1000) / 1000));
  json_replace_text(section, "_memory_limit", source);
}

char *
machine_profile_text(const MachineProfile *p, GError **error)
{
  const ProbeFacts *facts = &p->measured->facts;
  cJSON *device = device_profile_rewritten(p->device, p->constants, facts, p->when, error);
  cJSON *root = device != NULL ? profile_tree(p->cluster, p->collectives, FALSE, error) : NULL;
  if (root == NULL) {
    cJSON_Delete(device);
    return NULL;
  }
  g_autofree char *summary = g_strdup_printf("%s, measured on %s", facts->device, p->when);
  json_replace_text(root, "_summary", summary);
  json_replace_text(device, "name", facts->device);
  json_replace(root, "device", device);
  /* Of a job on several nodes each has as many. */
  if (facts->ranks_of_node > 0 && facts->ranks > facts->ranks_of_node)
    json_replace(root, "gpus_per_node", cJSON_CreateNumber(facts->ranks_of_node));
  add_contention(root, p);
  return json_finish(root);
}

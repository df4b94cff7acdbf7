/* process_place.c - reads the variables of the launchers. */
#include "calibrate/process_place.h"

#include <string.h>

#include "base/units.h"

/* A launcher is recognized by the variable of the rank.  Sizes of a node are not always told. */
static const struct {
  const char *rank, *size, *local_rank, *local_size;
} launchers[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},       /* torchrun */
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"}, /* MPICH, Intel MPI */
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"},
};

enum { MOST_PROCESSES = 1 << 20, DEFAULT_PORT = 29411 };

static gboolean
read_number(const char *variable, gint64 low, gint64 high, int *value, GError **error)
{
  const char *text = g_getenv(variable);
  gint64 number;
  if (text == NULL || !g_ascii_string_to_signed(text, 10, low, high, &number, NULL)) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
                "%s: '%s' is not in %" G_GINT64_FORMAT "..%" G_GINT64_FORMAT, variable,
                text != NULL ? text : "", low, high);
    return FALSE;
  }
  *value = (int) number;
  return TRUE;
}

gboolean
process_place_find(ProcessPlace *place, GError **error)
{
  *place = (ProcessPlace){.size = 1, .local_size = 1};
  for (guint i = 0; i < G_N_ELEMENTS(launchers); i++) {
    if (g_getenv(launchers[i].rank) == NULL || g_getenv(launchers[i].size) == NULL)
      continue;
    place->local_size = 0;
    return read_number(launchers[i].size, 1, MOST_PROCESSES, &place->size, error) &&
           read_number(launchers[i].rank, 0, place->size - 1, &place->rank, error) &&
           (g_getenv(launchers[i].local_rank) == NULL ||
            read_number(launchers[i].local_rank, 0, place->size - 1, &place->local_rank, error)) &&
           (g_getenv(launchers[i].local_size) == NULL ||
            read_number(launchers[i].local_size, 1, place->size, &place->local_size, error));
  }
  return TRUE;
}

char *
first_host(const char *list)
{
  gsize plain = strcspn(list, ",[");
  if (list[plain] != '[')
    return g_strndup(list, plain);
  const char *number = list + plain + 1;
  return g_strdup_printf("%.*s%.*s", (int) plain, list, (int) strcspn(number, "-,]"), number);
}

gboolean
meeting_point_find(const ProcessPlace *place, MeetingPoint *point, GError **error)
{
  *point = (MeetingPoint){.port = DEFAULT_PORT};
  const char *address = g_getenv("MASTER_ADDR");
  const char *nodes = g_getenv("SLURM_JOB_NODELIST");
  if (g_getenv("MASTER_PORT") != NULL && !read_number("MASTER_PORT", 1, 65535, &point->port, error))
    return FALSE;
  if (address != NULL && *address != '\0')
    point->host = g_strdup(address);
  else if (place->local_size == place->size)
    point->host = g_strdup("127.0.0.1");
  else if (nodes != NULL && *nodes != '\0')
    point->host = first_host(nodes);
  else {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_USAGE,
                "MASTER_ADDR is not set: the processes of this job need the address of the first "
                "one, e.g. mpirun -x MASTER_ADDR=node0");
    return FALSE;
  }
  return TRUE;
}

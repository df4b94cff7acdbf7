/* probe_group.c - the protocol between the first process of a job and the others.
 *
 * Hello (caller) - Seat - Devices (caller) - Opening - Answer (caller), then Request and Answer
 * until a Request says that it is over.  All are structs as they lie in memory: the processes are
 * one program on machines of one kind, which Hello checks. */
#include "calibrate/probe_group.h"

#include <string.h>
#include <unistd.h>

#include "base/units.h"
#include "calibrate/wire.h"

enum { MAGIC = 0x48695761, HOST_NAME_BYTES = 256, MESSAGE_BYTES = 256 };

typedef struct {
  guint32 magic, request_bytes;
  gint32 rank, size;
  char host[HOST_NAME_BYTES];
} Hello;

typedef struct {
  gint32 local_rank, local_size;
} Seat;

typedef struct {
  gint32 gpus;
  char message[MESSAGE_BYTES]; /* why there are none */
} Devices;

typedef struct {
  gint32 first, ranks; /* ranks 0: the job is off */
  gint32 has_id;
  char id[DEVICE_PROBE_ID_BYTES];
} Opening;

typedef struct {
  gint32 over, warmup, count;
  Experiment experiment;
} Request;

typedef struct {
  gint32 done;
  char message[MESSAGE_BYTES];
} Answer;

static void
set_message(char *place, const GError *error)
{
  g_strlcpy(place, error != NULL ? error->message : "failed", MESSAGE_BYTES);
}

/* ---- the others ---- */

static Hello
hello_of(const ProbeJob *job)
{
  Hello hello = {
      .magic = MAGIC,
      .request_bytes = sizeof(Request),
      .rank = job->place.rank,
      .size = job->place.size,
  };
  gethostname(hello.host, sizeof(hello.host) - 1);
  return hello;
}

/* Opens this process's devices as the first process says. */
static DeviceProbe *
take_seat(const ProbeJob *job, int socket, GError **error)
{
  Hello hello = hello_of(job);
  Seat seat;
  if (!wire_send(socket, &hello, sizeof(hello), error) ||
      !wire_receive(socket, &seat, sizeof(seat), error))
    return NULL;
  ProcessPlace place = job->place;
  place.local_rank = seat.local_rank;
  place.local_size = seat.local_size;
  Devices devices = {0};
  g_autoptr(GError) failure = NULL;
  if (!job->module->count(&place, &devices.gpus, &failure))
    set_message(devices.message, failure);
  Opening opening;
  if (!wire_send(socket, &devices, sizeof(devices), error) ||
      !wire_receive(socket, &opening, sizeof(opening), error))
    return NULL;
  if (opening.ranks == 0) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT, "the job was called off");
    return NULL;
  }
  return job->module->open(&place, opening.first, opening.ranks, opening.has_id ? opening.id : NULL,
                           error);
}

static gboolean
answer(DeviceProbe *probe, int socket, const Request *request, GError **error)
{
  g_autoptr(GArray) samples = g_array_new(FALSE, FALSE, sizeof(double));
  g_autoptr(GError) failure = NULL;
  Answer reply = {0};
  reply.done = probe->class->sample(probe, &request->experiment, request->warmup, request->count,
                                    samples, &failure);
  if (!reply.done)
    set_message(reply.message, failure);
  return wire_send(socket, &reply, sizeof(reply), error) &&
         (!reply.done ||
          wire_send(socket, samples->data, sizeof(double) * (gsize) request->count, error));
}

static gboolean
serve(const ProbeJob *job, int socket, GError **error)
{
  GError *failure = NULL;
  g_autoptr(DeviceProbe) probe = take_seat(job, socket, &failure);
  Answer opened = {.done = probe != NULL};
  if (probe == NULL) {
    set_message(opened.message, failure);
    wire_send(socket, &opened, sizeof(opened), NULL);
    g_propagate_error(error, failure);
    return FALSE;
  }
  if (!wire_send(socket, &opened, sizeof(opened), error))
    return FALSE;
  for (;;) {
    Request request;
    if (!wire_receive(socket, &request, sizeof(request), error))
      return FALSE;
    if (request.over)
      return TRUE;
    if (!answer(probe, socket, &request, error))
      return FALSE;
  }
}

gboolean
probe_group_serve(const ProbeJob *job, GError **error)
{
  int socket = wire_connect(&job->point, job->patience_s, error);
  if (socket < 0)
    return FALSE;
  gboolean served = serve(job, socket, error);
  close(socket);
  return served;
}

/* ---- the first ---- */

typedef struct {
  DeviceProbe probe;
  DeviceProbe *own; /* of this process */
  int *sockets;     /* of the others, by rank; [0] is not used */
  int size;
  ProbeFacts facts;
} GroupProbe;

static void
describe(DeviceProbe *probe, ProbeFacts *facts)
{
  *facts = ((GroupProbe *) probe)->facts;
}

static char *
conditions(DeviceProbe *probe)
{
  DeviceProbe *own = ((GroupProbe *) probe)->own;
  return own->class->conditions != NULL ? own->class->conditions(own) : NULL;
}

/* Takes the longest of the ranks for each iteration. */
static gboolean
collect(int socket, int rank, double *longest, int count, GError **error)
{
  Answer reply;
  if (!wire_receive(socket, &reply, sizeof(reply), error))
    return FALSE;
  if (!reply.done) {
    reply.message[MESSAGE_BYTES - 1] = '\0';
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT, "process %d: %s", rank,
                reply.message);
    return FALSE;
  }
  g_autofree double *theirs = g_new(double, count);
  if (!wire_receive(socket, theirs, sizeof(double) * (gsize) count, error))
    return FALSE;
  for (int i = 0; i < count; i++)
    longest[i] = MAX(longest[i], theirs[i]);
  return TRUE;
}

static gboolean
sample(DeviceProbe *probe, const Experiment *experiment, int warmup, int count, GArray *samples,
       GError **error)
{
  GroupProbe *group = (GroupProbe *) probe;
  Request request = {.warmup = warmup, .count = count, .experiment = *experiment};
  for (int rank = 1; rank < group->size; rank++)
    if (!wire_send(group->sockets[rank], &request, sizeof(request), error))
      return FALSE;
  guint before = samples->len;
  GError *first = NULL;
  gboolean done = group->own->class->sample(group->own, experiment, warmup, count, samples, &first);
  g_autofree double *longest =
      done ? g_memdup2(&g_array_index(samples, double, before), sizeof(double) * (gsize) count)
           : g_new0(double, count);
  /* All answers are read, whatever they say: the next request finds the wire empty. */
  for (int rank = 1; rank < group->size; rank++)
    done =
        collect(group->sockets[rank], rank, longest, count, first == NULL ? &first : NULL) && done;
  g_array_set_size(samples, before);
  if (done)
    g_array_append_vals(samples, longest, (guint) count);
  else
    g_propagate_error(error, first);
  return done;
}

static void
close_group(DeviceProbe *probe)
{
  GroupProbe *group = (GroupProbe *) probe;
  Request over = {.over = TRUE};
  for (int rank = 1; rank < group->size; rank++)
    if (group->sockets[rank] >= 0) {
      wire_send(group->sockets[rank], &over, sizeof(over), NULL);
      close(group->sockets[rank]);
    }
  device_probe_close(group->own);
  g_free(group->sockets);
  g_free(group);
}

static const DeviceProbeClass group_class = {describe, sample, conditions, close_group};

/* ---- everybody finds a seat ---- */

static gboolean
refuse(GError **error, const char *why)
{
  g_set_error_literal(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT, why);
  return FALSE;
}

/* Waits for the others; hellos[rank] is filled. */
static gboolean
gather_callers(const ProbeJob *job, int listener, GroupProbe *group, Hello *hellos, GError **error)
{
  hellos[0] = hello_of(job);
  for (int missing = job->place.size - 1; missing > 0; missing--) {
    Hello hello;
    int socket = wire_accept(listener, job->patience_s, error);
    if (socket < 0)
      return FALSE;
    gboolean known = wire_receive(socket, &hello, sizeof(hello), error);
    if (known && (hello.magic != MAGIC || hello.request_bytes != sizeof(Request)))
      known = refuse(error, "a caller is not the same program");
    else if (known && (hello.size != job->place.size || hello.rank < 1 ||
                       hello.rank >= hello.size || group->sockets[hello.rank] >= 0))
      known = refuse(error, "a caller's rank is not of this job, or two have the same");
    if (!known) {
      close(socket);
      return FALSE;
    }
    group->sockets[hello.rank] = socket;
    hello.host[HOST_NAME_BYTES - 1] = '\0';
    hellos[hello.rank] = hello;
  }
  return TRUE;
}

static Seat
seat_of(const Hello *hellos, int size, int rank)
{
  Seat seat = {0};
  for (int other = 0; other < size; other++) {
    gboolean together = strcmp(hellos[other].host, hellos[rank].host) == 0;
    seat.local_size += together;
    seat.local_rank += together && other < rank;
  }
  return seat;
}

static gboolean
count_devices(const ProbeJob *job, GroupProbe *group, const Hello *hellos, ProcessPlace *own,
              gint32 *gpus, GError **error)
{
  for (int rank = 0; rank < group->size; rank++) {
    Seat seat = seat_of(hellos, group->size, rank);
    if (rank == 0) {
      own->local_rank = seat.local_rank;
      own->local_size = seat.local_size;
      if (!job->module->count(own, &gpus[0], error))
        return FALSE;
    } else if (!wire_send(group->sockets[rank], &seat, sizeof(seat), error)) {
      return FALSE;
    }
  }
  for (int rank = 1; rank < group->size; rank++) {
    Devices devices;
    if (!wire_receive(group->sockets[rank], &devices, sizeof(devices), error))
      return FALSE;
    if (devices.gpus < 1) {
      devices.message[MESSAGE_BYTES - 1] = '\0';
      g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT, "process %d: %s", rank,
                  devices.message);
      return FALSE;
    }
    gpus[rank] = devices.gpus;
  }
  return TRUE;
}

/* All open at the same time: connecting communicators needs all of them. */
static gboolean
open_all(const ProbeJob *job, GroupProbe *group, const ProcessPlace *own, const gint32 *gpus,
         GError **error)
{
  Opening opening = {0};
  for (int rank = 0; rank < group->size; rank++)
    opening.ranks += gpus[rank];
  g_autoptr(GError) without = NULL;
  opening.has_id = opening.ranks > 1 && job->module->make_id(opening.id, &without);
  for (int rank = 1; rank < group->size; rank++) {
    opening.first += gpus[rank - 1];
    if (!wire_send(group->sockets[rank], &opening, sizeof(opening), error))
      return FALSE;
  }
  group->own = job->module->open(own, 0, opening.ranks, opening.has_id ? opening.id : NULL, error);
  gboolean opened = group->own != NULL;
  for (int rank = 1; rank < group->size; rank++)
    opened = collect(group->sockets[rank], rank, NULL, 0, opened ? error : NULL) && opened;
  return opened;
}

static gboolean
fill_seats(const ProbeJob *job, int listener, GroupProbe *group, GError **error)
{
  g_autofree Hello *hellos = g_new0(Hello, group->size);
  g_autofree gint32 *gpus = g_new0(gint32, group->size);
  ProcessPlace own = job->place;
  if (!gather_callers(job, listener, group, hellos, error) ||
      !count_devices(job, group, hellos, &own, gpus, error) ||
      !open_all(job, group, &own, gpus, error))
    return FALSE;
  group->own->class->describe(group->own, &group->facts);
  group->facts.ranks = group->facts.ranks_of_node = 0;
  for (int rank = 0; rank < group->size; rank++) {
    group->facts.ranks += gpus[rank];
    if (strcmp(hellos[rank].host, hellos[0].host) == 0)
      group->facts.ranks_of_node += gpus[rank];
  }
  return TRUE;
}

DeviceProbe *
probe_group_open(const ProbeJob *job, GError **error)
{
  GroupProbe *group = g_new0(GroupProbe, 1);
  group->probe.class = &group_class;
  group->size = job->place.size;
  group->sockets = g_new(int, group->size);
  memset(group->sockets, -1, sizeof(int) * (gsize) group->size);
  int port = job->point.port, listener = job->listener;
  if (group->size > 1 && listener < 0)
    listener = wire_listen(&port, error);
  gboolean open = (group->size == 1 || listener >= 0) && fill_seats(job, listener, group, error);
  if (listener >= 0)
    close(listener);
  if (open)
    return &group->probe;
  close_group(&group->probe);
  return NULL;
}

/* bench_engine.c - events a second of the engine: the bare queue, streams with works and sync
 * points, and works whose rates and shares change all the time. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "engine/engine.h"
#include "engine/event_queue.h"

/* Each figure is the best of so many runs: others use the machine too. */
#define REPEATS 5

static double
cpu_seconds(void)
{
  struct timespec now;

  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (double) now.tv_sec + 1e-9 * (double) now.tv_nsec;
}

/* xorshift64 (Marsaglia 2003): cheap beside what is measured. */
static inline guint64
next_random(guint64 *state)
{
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

/* ---- queue ---- */

#define LONGEST_HOLD 100000

/* The hold model (Jones 1986): with so many events pending, take one and insert one later on.
 * Returns events a second. */
static double
hold(int pending)
{
  const int holds = 3000000;
  guint64 random = 88172645463325252u;
  EventQueue queue;
  Event event;
  double seconds;

  event_queue_init(&queue);
  for (int i = 0; i < pending; i++)
    event_queue_push(&queue, (SimTime) (1 + next_random(&random) % LONGEST_HOLD), 0);
  seconds = cpu_seconds();
  for (int i = 0; i < holds; i++) {
    event_queue_pop(&queue, &event);
    event_queue_push(&queue, event.time + 1 + (SimTime) (next_random(&random) % LONGEST_HOLD), 0);
  }
  seconds = cpu_seconds() - seconds;
  event_queue_clear(&queue);
  return holds / seconds;
}

/* ---- streams ---- */

/* How far submission runs ahead: works in the queues when a batch begins. */
#define AHEAD 4096

typedef struct {
  Engine *engine;
  int streams;
  Stream **stream;
  SyncPoint **point; /* [round * streams + stream], AHEAD of them */
  RateGroup *group;  /* NULL: none */
  SharedLink *link;  /* NULL: none */
  guint64 random;
} Net;

static double
slower_together(gpointer user, int rate_class, const int *running)
{
  (void) user;
  return running[1 - rate_class] > 0 ? 0.75 : 1;
}

static Net
net_new(int streams, gboolean rated)
{
  Net net = {.engine = engine_new(), .streams = streams, .random = 88172645463325252u};

  net.stream = g_new(Stream *, streams);
  net.point = g_new(SyncPoint *, AHEAD);
  for (int s = 0; s < streams; s++)
    net.stream[s] = stream_new(net.engine, "stream");
  for (int p = 0; p < AHEAD; p++)
    net.point[p] = sync_point_new(net.engine, "point", p);
  if (rated) {
    net.group = rate_group_new(net.engine, 2, slower_together, NULL);
    net.link = shared_link_new(net.engine, "link", 100e9, 40e9);
  }
  return net;
}

static void
net_clear(Net *net)
{
  engine_free(net->engine);
  g_free(net->stream);
  g_free(net->point);
}

/* In each round every stream works, records a point, and waits for that of its neighbour. */
static void
submit_rounds(Net *net)
{
  SimTime now = engine_now(net->engine);

  for (int p = 0; p < AHEAD; p++) {
    int s = p % net->streams;
    int neighbour = p - s + (s + 1) % net->streams;
    Work work = {.duration = (SimTime) (1 + next_random(&net->random) % 10000),
                 .group = net->group,
                 .rate_class = s % 2,
                 .link = s % 2 ? net->link : NULL,
                 .link_bytes = 1e5};

    sync_point_reset(net->point[p]);
    stream_submit(net->stream[s], now, &work);
    stream_record(net->stream[s], now, net->point[p]);
    stream_wait(net->stream[s], now, net->point[neighbour]);
  }
}

/* Events a second, submission included.  *items_per_event: how many items an event moves. */
static double
run_net(int streams, gboolean rated, double *items_per_event)
{
  const int batches = (rated ? 100000 : 1000000) / AHEAD;
  Net net = net_new(streams, rated);
  double seconds = cpu_seconds();
  guint64 events;

  for (int i = 0; i < batches; i++) {
    submit_rounds(&net);
    engine_run(net.engine);
  }
  seconds = cpu_seconds() - seconds;
  events = engine_event_count(net.engine);
  *items_per_event = 3.0 * batches * AHEAD / (double) events;
  net_clear(&net);
  return (double) events / seconds;
}

int
main(void)
{
  static const int pending[] = {16, 256, 1024, 4096, 65536, 1048576};
  static const int streams[] = {4, 64, 1024};
  double items = 0;

  for (guint i = 0; i < G_N_ELEMENTS(pending); i++) {
    double best = 0;

    for (int repeat = 0; repeat < REPEATS; repeat++)
      best = MAX(best, hold(pending[i]));
    printf("queue, %7d pending           %6.1f million events/s\n", pending[i], best / 1e6);
  }
  for (guint i = 0; i < 2 * G_N_ELEMENTS(streams); i++) {
    gboolean rated = i >= G_N_ELEMENTS(streams);
    int count = rated ? 1 << (2 * (i - G_N_ELEMENTS(streams)) + 1) : streams[i];
    double best = 0;

    for (int repeat = 0; repeat < REPEATS; repeat++)
      best = MAX(best, run_net(count, rated, &items));
    printf("%4d streams, %-17s %6.1f million events/s (%.1f items an event)\n", count,
           rated ? "rates and a link" : "works and points", best / 1e6, items);
  }
  return EXIT_SUCCESS;
}

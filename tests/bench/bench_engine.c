/* bench_engine.c - events a second of the engine on one core: the bare queue, streams with works
 * and sync points, and works whose rates and shares keep changing. */
#include "bench.h"
#include "engine/engine.h"
#include "engine/event_queue.h"
#include <time.h>

/* Each figure is the best of so many runs: others use the machine too. */
#define RUNS 9

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
  const int holds = 1000000;
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
#define WORKS (64 * AHEAD)

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
slower_together(gpointer user, int rate_class, const int *running, G_GNUC_UNUSED int total)
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

/* Every stream works, records a point of this round, and waits for that of its neighbour. */
static void
submit_round(Net *net, SyncPoint **points)
{
  const Work kinds[] = {
      {.group = net->group},
      {.group = net->group, .rate_class = 1, .link = net->link, .link_bytes = 1e5},
  };
  SimTime now = engine_now(net->engine);

  for (int s = 0; s < net->streams; s++) {
    Work work = kinds[s & 1];

    work.duration = (SimTime) (1 + next_random(&net->random) % 10000);
    sync_point_reset(points[s]);
    stream_submit(net->stream[s], now, &work);
    stream_record(net->stream[s], now, points[s]);
    stream_wait(net->stream[s], now, points[s + 1 < net->streams ? s + 1 : 0]);
  }
}

/* Events a second, submission included. */
static double
run_net(int streams, gboolean rated)
{
  const int batches = WORKS / AHEAD;
  Net net = net_new(streams, rated);
  double seconds = cpu_seconds();
  double events;

  for (int i = 0; i < batches; i++) {
    for (int first = 0; first < AHEAD; first += streams)
      submit_round(&net, net.point + first);
    engine_run(net.engine);
  }
  seconds = cpu_seconds() - seconds;
  events = (double) engine_event_count(net.engine);
  net_clear(&net);
  return events / seconds;
}

static double
run_works_and_points(int streams)
{
  return run_net(streams, FALSE);
}

static double
run_rates_and_link(int streams)
{
  return run_net(streams, TRUE);
}

static const struct {
  const char *name;
  double (*run)(int size); /* events a second */
  int sizes[5];            /* up to the first 0 */
} cases[] = {
    {"engine-queue", hold, {16, 256, 1024, 16384, 262144}},
    {"engine-streams", run_works_and_points, {4, 64, 1024}},
    {"engine-rates", run_rates_and_link, {2, 8, 32}},
};

int
main(void)
{
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    for (guint k = 0; k < G_N_ELEMENTS(cases[i].sizes) && cases[i].sizes[k] > 0; k++) {
      g_autofree char *name = g_strdup_printf("%s-%d", cases[i].name, cases[i].sizes[k]);
      double best = 0;

      for (int run = 0; run < RUNS; run++)
        best = MAX(best, cases[i].run(cases[i].sizes[k]));
      bench_figure(name, best / 1e6, "Mevents/s");
    }
  }
  return 0;
}

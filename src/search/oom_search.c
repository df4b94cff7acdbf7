/* oom_search.c - which allocation of a plan a message about memory running out can be.
 *
 * The message has what cudaMalloc was asked for, which is the request rounded up, and how much was
 * allocated then.  Each allocation of a simulation without limit whose segment is of that size is a
 * candidate; how near its level is to the message's says how likely it is.  Besides, the message
 * tells what there was for the allocator - segments and what is free - so simulations with limits
 * from the least to the most of that say where memory runs out. */
#include "search/oom_search.h"

#include <string.h>

#include "base/units.h"
#include "memory/caching_allocator.h"
#include "report/summary.h"
#include "search/trials.h"

/* The message rounds, so that limits between the least and the most are tried. */
enum { LIMITS_TRIED = 5 };

/* c10's get_allocation_size: up to 1 MiB 2, below 10 MiB 20, else the next multiple of 2 MiB. */
enum { SMALL_MIB = 2, BUFFER_MIB = 20, DIRECT_MIB = 10 };

char *
oom_requests(const OomFigure *tried)
{
  gint64 low = ceil_div(MAX(tried->low, 1), 2 * MIB) * 2 * MIB;
  gint64 high = tried->high / (2 * MIB) * 2 * MIB;
  if (low > high || (high < DIRECT_MIB * MIB && low > SMALL_MIB * MIB))
    return NULL;
  if (low == SMALL_MIB * MIB)
    return g_strdup("at most 1 MiB");
  g_autofree char *from = format_bytes(low - 2 * MIB), *to = format_bytes(high);
  return g_strdup_printf("%smore than %s and at most %s",
                         low <= BUFFER_MIB * MIB && high >= BUFFER_MIB * MIB
                             ? "more than 1 MiB and less than 10 MiB, or "
                             : "",
                         from, to);
}

/* ---- candidates ---- */

/* How the plan's allocator rounds. */
static gboolean
read_rounding(const RunRequest *request, AllocatorConfig *config, GError **error)
{
  g_autoptr(Scenario) scenario = scenario_new(&request->inputs, request->rank, error);
  *config = allocator_config_default();
  if (scenario == NULL)
    return FALSE;
  config->roundup_power2_divisions = scenario->plan->allocator.roundup_power2_divisions;
  return TRUE;
}

/* "step 1, forward of layers.4: mul", as the report says who asks. */
static char *
name_of(const Recording *recording, const OomCandidate *candidate)
{
  const HostPlace *place = &candidate->place;
  GString *name = g_string_new(NULL);
  report_append_place(recording, place->step, place->phase, place->module, name);
  g_string_append_printf(name, ": %s", report_text(recording, candidate->what, "a tensor"));
  return g_string_free(name, FALSE);
}

/* The report's module is the one whose forward the host is in, else the tensor's own. */
static gboolean
is_named(const Recording *recording, const OomCandidate *candidate, const char *named)
{
  OomCandidate own = *candidate;
  own.place.module = candidate->module;
  g_autofree char *by_host = name_of(recording, candidate), *by_tensor = name_of(recording, &own);
  return named != NULL && (g_str_equal(named, by_host) || g_str_equal(named, by_tensor));
}

static void
collect(OomSearch *search, const OomMessage *message, const AllocatorConfig *config)
{
  const Recording *recording = search->run.recording;
  g_autoptr(HostPlaces) places = host_places_new(recording);
  gint64 allocated = 0, reserved = 0;
  for (guint i = 0; i < recording->memory->len; i++) {
    const MemoryEvent *event = &g_array_index(recording->memory, MemoryEvent, i);
    gint64 segment =
        event->requested_bytes > 0 ? allocator_segment_bytes(config, event->requested_bytes) : 0;
    if (segment > 0 && oom_figure_distance(&message->tried, segment) == 0) {
      OomCandidate candidate = {
          .event = i,
          .module = event->module,
          .what = event->what,
          .category = event->category,
          .place = host_place_at(places, i),
          .requested_bytes = event->requested_bytes,
          .segment_bytes = segment,
          .allocated = allocated,
          .reserved = reserved,
      };
      if (message->allocated.known)
        candidate.distance = oom_figure_distance(&message->allocated, allocated);
      candidate.named = is_named(recording, &candidate, message->named);
      g_array_append_val(search->candidates, candidate);
    }
    search->allocations += event->requested_bytes > 0;
    allocated = event->allocated_after;
    reserved = event->reserved_after;
  }
}

/* ---- the limit ---- */

/* Segments and what is free, unless the process may have less. */
static OomFigure
limit_of(const OomMessage *m)
{
  const OomFigure *allowed = &m->allowed;
  if (!m->reserved.known || !m->free.known)
    return *allowed;
  OomFigure limit = {TRUE, m->reserved.low + m->free.low, m->reserved.high + m->free.high};
  if (allowed->known && allowed->low < limit.low)
    return *allowed;
  return limit;
}

/* One limit tried. */
typedef struct {
  RunRequest request;
  RunResult result;
  gboolean ran;
} LimitedRun;

static void
run_limited(gpointer data, gpointer user)
{
  LimitedRun *run = data;
  (void) user;
  run->ran = run_simulation(&run->request, &run->result, NULL);
}

/* The candidate that fails where the recording ends, NULL: none does.  The host allocates in the
 * same order with a limit and without. */
static OomCandidate *
candidate_at_end(const OomSearch *search, const Recording *ended)
{
  for (guint i = 0; i < search->candidates->len; i++) {
    OomCandidate *candidate = &g_array_index(search->candidates, OomCandidate, i);
    if (candidate->event == ended->memory->len &&
        candidate->requested_bytes == ended->out_of_memory.requested_bytes)
      return candidate;
  }
  return NULL;
}

static void
take_limited(OomSearch *search, const LimitedRun *run, gboolean is_middle)
{
  if (!run->ran)
    return;
  const Recording *recording = run->result.recording;
  search->simulated_limit = TRUE;
  search->fits &= !recording->out_of_memory.happened;
  if (!recording->out_of_memory.happened)
    return;
  OomCandidate *candidate = candidate_at_end(search, recording);
  if (candidate != NULL)
    candidate->fails = TRUE;
  if (is_middle) {
    g_autoptr(ReportModel) model = report_model_new(recording, run->result.info);
    search->runs_out = report_model_out_of_memory(model);
  }
}

static void
try_limits(OomSearch *search, const RunRequest *request)
{
  const OomFigure *limit = &search->limit;
  if (!limit->known || limit->low <= 0)
    return;
  LimitedRun runs[LIMITS_TRIED] = {0};
  GThreadPool *pool =
      g_thread_pool_new(run_limited, NULL, (gint) g_get_num_processors(), FALSE, NULL);
  for (int i = 0; i < LIMITS_TRIED; i++) {
    runs[i].request = *request;
    runs[i].request.memory_limit = limit->low + (limit->high - limit->low) / (LIMITS_TRIED - 1) * i;
    g_thread_pool_push(pool, &runs[i], NULL);
  }
  g_thread_pool_free(pool, FALSE, TRUE);
  for (int i = 0; i < LIMITS_TRIED; i++) {
    take_limited(search, &runs[i], i == LIMITS_TRIED / 2);
    run_result_clear(&runs[i].result);
  }
}

/* ---- order ---- */

static int
compare_candidates(gconstpointer a, gconstpointer b)
{
  const OomCandidate *x = a, *y = b;
  if (x->fails != y->fails)
    return x->fails ? -1 : 1;
  if (x->named != y->named)
    return x->named ? -1 : 1;
  if (x->distance != y->distance)
    return x->distance < y->distance ? -1 : 1;
  return x->event < y->event ? -1 : x->event > y->event;
}

OomSearch *
oom_search_new(const RunRequest *request, const OomMessage *message, GError **error)
{
  AllocatorConfig rounding;
  g_autoptr(OomSearch) search = g_new0(OomSearch, 1);
  search->candidates = g_array_new(FALSE, FALSE, sizeof(OomCandidate));
  search->limit = limit_of(message);
  search->fits = TRUE;
  RunRequest endless = *request;
  endless.without_limit = TRUE;
  if (!read_rounding(request, &rounding, error) || !run_simulation(&endless, &search->run, error))
    return NULL;
  collect(search, message, &rounding);
  try_limits(search, request);
  g_array_sort(search->candidates, compare_candidates);
  return g_steal_pointer(&search);
}

void
oom_search_free(OomSearch *search)
{
  if (search == NULL)
    return;
  run_result_clear(&search->run);
  g_array_unref(search->candidates);
  g_free(search->runs_out);
  g_free(search);
}

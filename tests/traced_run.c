/* traced_run.c - simulates, exports, reads the file, and binds its flows as Perfetto does. */
#include "traced_run.h"

#include <math.h>
#include <string.h>

#include "report/chrome_trace.h"
#include "tap_main.h"

/* ---- the run ---- */

static void
read_input(const char *kind, const char *preset, InputText *input)
{
  g_autoptr(GError) error = NULL;
  if (!input_text_read(kind, preset, input, &error))
    ck_abort_msg("%s", error->message);
}

TracedRun *
traced_run_new(const TracedCase *c)
{
  TracedRun *run = g_new0(TracedRun, 1);
  g_autoptr(GError) error = NULL;
  char **set = g_new0(char *, G_N_ELEMENTS(c->set) + 1);
  memcpy(set, c->set, sizeof c->set);
  RunRequest request = {.steps = c->steps,
                        .keep_spans = TRUE,
                        .memory_limit = c->memory_limit,
                        .inputs.assignments = set};
  read_input("network", "tiny", &request.inputs.network);
  read_input("plan", c->plan, &request.inputs.plan);
  read_input("cluster", "h100-8", &request.inputs.cluster);
  if (!run_simulation(&request, &run->run, &error))
    ck_abort_msg("%s", error->message);
  run_request_clear(&request);
  g_free(set);
  run->text = g_string_new(NULL);
  chrome_trace(run->run.recording, run->run.info, run->text);
  run->root = cJSON_ParseWithOpts(run->text->str, NULL, TRUE);
  ck_assert_ptr_nonnull(run->root);
  run->events = traced_events(run->root);
  return run;
}

void
traced_run_free(TracedRun *run)
{
  if (run == NULL)
    return;
  run_result_clear(&run->run);
  g_string_free(run->text, TRUE);
  g_array_unref(run->events);
  cJSON_Delete(run->root);
  g_free(run);
}

/* ---- events ---- */

static const char *
text_of(const cJSON *object, const char *key)
{
  const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, key);
  return cJSON_IsString(value) ? value->valuestring : "";
}

static double
number_of(const cJSON *object, const char *key)
{
  const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, key);
  return cJSON_IsNumber(value) ? value->valuedouble : -1;
}

static gint64
ns_of(const cJSON *object, const char *key)
{
  return llround(number_of(object, key) * 1000);
}

GArray *
traced_events(const cJSON *root)
{
  const cJSON *all = cJSON_GetObjectItemCaseSensitive(root, "traceEvents"), *item;
  GArray *events = g_array_new(FALSE, FALSE, sizeof(TracedEvent));
  ck_assert(cJSON_IsArray(all));
  cJSON_ArrayForEach(item, all)
  {
    TracedEvent event = {.type = text_of(item, "ph")[0],
                         .category = text_of(item, "cat"),
                         .name = text_of(item, "name"),
                         .start = ns_of(item, "ts"),
                         .process = (int) number_of(item, "pid"),
                         .thread = (int) number_of(item, "tid"),
                         .arguments = cJSON_GetObjectItemCaseSensitive(item, "args"),
                         .id = (gint64) number_of(item, "id")};
    event.end = event.start + (event.type == 'X' ? ns_of(item, "dur") : 0);
    g_array_append_val(events, event);
  }
  return events;
}

const char *
traced_text(const TracedEvent *event, const char *key)
{
  return text_of(event->arguments, key);
}

gint64
traced_number(const TracedEvent *event, const char *key)
{
  return (gint64) number_of(event->arguments, key);
}

/* ---- as Perfetto reads it ---- */

/* The trace processor drops slices deeper than that. */
#define MAX_DEPTH 512

typedef struct {
  const TracedEvent *event;
  guint place;
} Placed;

/* By time; slices before what is bound to them, longer ones first. */
static int
compare_events(gconstpointer a, gconstpointer b)
{
  const Placed *x = a, *y = b;
  gboolean slice = x->event->type == 'X', other = y->event->type == 'X';
  if (x->event->start != y->event->start)
    return x->event->start < y->event->start ? -1 : 1;
  if (slice != other)
    return slice ? -1 : 1;
  if (slice && x->event->end != y->event->end)
    return x->event->end > y->event->end ? -1 : 1;
  return x->place < y->place ? -1 : 1;
}

typedef struct {
  GHashTable *tracks; /* process and thread -> GArray of (const TracedEvent *): open slices */
  GHashTable *flows;  /* id and kind -> 1 + place of the slice that it begins in */
  const GArray *events;
} Processor;

static GArray *
track_of(Processor *processor, const TracedEvent *event)
{
  gpointer key = GINT_TO_POINTER(event->process * 1000000 + event->thread + 1);
  GArray *track = g_hash_table_lookup(processor->tracks, key);
  if (track == NULL)
    g_hash_table_insert(processor->tracks, key,
                        track = g_array_new(FALSE, FALSE, sizeof(gpointer)));
  return track;
}

static void
open_slice(Processor *processor, const TracedEvent *event)
{
  GArray *track = track_of(processor, event);
  while (track->len > 0) {
    const TracedEvent *top = g_array_index(track, const TracedEvent *, track->len - 1);
    gboolean both_instants = top->start == top->end && event->start == event->end;
    if (top->end > event->start || (top->end == event->start && both_instants))
      break;
    g_array_set_size(track, track->len - 1);
  }
  for (guint i = 0; i < track->len; i++) {
    const TracedEvent *around = g_array_index(track, const TracedEvent *, i);
    ck_assert_msg(event->start >= around->end || event->end <= around->end,
                  "%s at %" G_GINT64_FORMAT " ns reaches over the end of %s", event->name,
                  event->start, around->name);
  }
  g_array_append_val(track, event);
  ck_assert_uint_le(track->len, MAX_DEPTH);
}

/* The slice that an end of a flow is in. */
static const TracedEvent *
slice_at(Processor *processor, const TracedEvent *event)
{
  GArray *track = track_of(processor, event);
  ck_assert_msg(track->len > 0, "flow %" G_GINT64_FORMAT " is bound to nothing", event->id);
  const TracedEvent *slice = g_array_index(track, const TracedEvent *, track->len - 1);
  ck_assert_msg(event->start >= slice->start && event->start <= slice->end,
                "flow %" G_GINT64_FORMAT " is bound to %s, which is over", event->id, slice->name);
  return slice;
}

static char *
flow_key(const TracedEvent *event)
{
  return g_strdup_printf("%s %s %" G_GINT64_FORMAT, event->category, event->name, event->id);
}

/* Binds an end of a flow; TRUE when it is one of those looked for. */
static gboolean
bind_flow(Processor *processor, const TracedEvent *event, const char *kind, const char *from,
          const char *to)
{
  const TracedEvent *slice = slice_at(processor, event);
  char *key = flow_key(event);
  guint found = GPOINTER_TO_UINT(g_hash_table_lookup(processor->flows, key));
  const TracedEvent *all = &g_array_index(processor->events, TracedEvent, 0);
  const TracedEvent *begin = found > 0 ? all + (found - 1) : NULL;
  if (event->type == 's') {
    ck_assert_msg(begin == NULL, "flow %s begins twice", key);
    g_hash_table_insert(processor->flows, key, GUINT_TO_POINTER((guint) (slice - all) + 1));
    return FALSE;
  }
  ck_assert_msg(begin != NULL, "flow %s has no beginning", key);
  ck_assert_msg(begin->start <= slice->start, "flow %s leads back", key);
  g_free(key);
  return g_str_equal(event->category, kind) && (from == NULL || g_str_equal(begin->name, from)) &&
         (to == NULL || g_str_equal(slice->name, to));
}

guint
traced_flows_between(const GArray *events, const char *kind, const char *from, const char *to)
{
  guint found = 0;
  g_autoptr(GArray) order = g_array_new(FALSE, FALSE, sizeof(Placed));
  Processor processor = {
      .tracks = g_hash_table_new_full(NULL, NULL, NULL, (GDestroyNotify) g_array_unref),
      .flows = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL),
      .events = events};
  for (guint i = 0; i < events->len; i++) {
    Placed placed = {&g_array_index(events, TracedEvent, i), i};
    g_array_append_val(order, placed);
  }
  g_array_sort(order, compare_events);
  for (guint i = 0; i < order->len; i++) {
    const TracedEvent *event = g_array_index(order, Placed, i).event;
    if (event->type == 'X' || event->type == 'i')
      open_slice(&processor, event);
    else if (event->type == 's' || event->type == 'f')
      found += bind_flow(&processor, event, kind, from, to);
  }
  g_hash_table_unref(processor.tracks);
  g_hash_table_unref(processor.flows);
  return found;
}

/* stuck_report.c - who still waits when no event is left, for what, and who never came. */
#include "engine/engine_private.h"

/* Who would fire what. */
typedef struct {
  GHashTable *recorders; /* SyncPoint * -> Stream * whose queue holds its record */
  Stream *stream;
} RecorderSearch;

static void
note_record(const Item *item, gpointer user)
{
  RecorderSearch *search = user;

  if (item->kind == ITEM_RECORD)
    g_hash_table_insert(search->recorders, ((const PointItem *) item)->point, search->stream);
}

static GHashTable *
find_recorders(const Engine *engine)
{
  RecorderSearch search = {.recorders = g_hash_table_new(NULL, NULL)};

  for (guint i = 0; i < engine->streams->len; i++) {
    search.stream = g_ptr_array_index(engine->streams, i);
    item_queue_foreach(&search.stream->queue, note_record, &search);
  }
  return search.recorders;
}

static void
report_point(GString *out, const Stream *stream, GHashTable *recorders)
{
  const Item *item = item_queue_first(&stream->queue);
  const SyncPoint *point = ((const PointItem *) item)->point;
  const Stream *recorder = g_hash_table_lookup(recorders, point);
  g_autofree char *label = engine_label(point->prefix, point->number);

  g_string_append_printf(out, "%s waits for sync point '%s', which ", stream->name, label);
  if (recorder != NULL)
    g_string_append_printf(out, "%s would record\n", recorder->name);
  else
    g_string_append(out, "nothing records\n");
}

/* The parties that have not come, as "party 3" or "parties 0-2, 5". */
static void
append_absent(GString *out, const Rendezvous *rendezvous)
{
  gboolean one = rendezvous->parties - rendezvous->arrived == 1;
  const char *separator = one ? "party " : "parties ";

  for (int i = 0; i < rendezvous->parties; i++) {
    int first = i;

    if (rendezvous->party[i] != NULL)
      continue;
    while (i + 1 < rendezvous->parties && rendezvous->party[i + 1] == NULL)
      i++;
    g_string_append_printf(out, "%s%d", separator, first);
    if (i > first)
      g_string_append_printf(out, "-%d", i);
    separator = ", ";
  }
}

static void
report_meeting(GString *out, const Stream *stream)
{
  const Rendezvous *rendezvous = stream_work(stream)->rendezvous;
  g_autofree char *label = engine_label(rendezvous->prefix, rendezvous->number);

  g_string_append_printf(out, "%s waits in rendezvous '%s', which lacks ", stream->name, label);
  append_absent(out, rendezvous);
  g_string_append_c(out, '\n');
}

char *
engine_stuck_report(const Engine *engine)
{
  GString *out = g_string_new(NULL);
  g_autoptr(GHashTable) recorders = find_recorders(engine);

  for (guint i = 0; i < engine->streams->len; i++) {
    const Stream *stream = g_ptr_array_index(engine->streams, i);

    if (stream->state == STREAM_AT_POINT)
      report_point(out, stream, recorders);
    else if (stream->state == STREAM_AT_MEETING)
      report_meeting(out, stream);
  }
  return g_string_free(out, FALSE);
}

/* check_trace_order.c - the order in which a step allocates and frees: event by event that of every
 * recorded trace of the real framework, on the same stream up to its name.
 *
 * The traces are reference data; without them nothing is compared here.  What an allocator makes of
 * the requests is another test's business. */
#include "recorded_config.h"
#include "simulation.h"
#include "strategy/strategy.h"
#include "tap_main.h"
#include <string.h>

#define TRACES "reference/pytorch"

static GPtrArray *traces; /* char *: paths, sorted */

/* An allocation (bytes > 0) or a free. */
typedef struct {
  gint64 bytes;
  gint64 stream;
  const char *where;  /* theirs: frames; ours: what it is */
  const char *module; /* theirs: the phase */
} Event;

/* ---- theirs */

/* Values of a row, by column. */
typedef struct {
  int action, size, address, stream, frame, phase;
} Columns;

static int
column(const cJSON *document, const char *name)
{
  const cJSON *columns = cJSON_GetObjectItemCaseSensitive(document, "columns"), *item;
  int i = 0;
  cJSON_ArrayForEach(item, columns)
  {
    if (strcmp(item->valuestring, name) == 0)
      return i;
    i++;
  }
  ck_abort_msg("no column %s", name);
  return -1;
}

static const char *
frame_text(const cJSON *document, int frame)
{
  const cJSON *frames = cJSON_GetObjectItemCaseSensitive(document, "frames");
  const cJSON *item = cJSON_GetArrayItem(frames, frame);
  return cJSON_IsString(item) ? item->valuestring : "?";
}

/* Requested bytes by address of what is alive when the trace begins. */
static GHashTable *
alive_before(const cJSON *document)
{
  GHashTable *alive = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, g_free);
  const cJSON *segments = cJSON_GetObjectItemCaseSensitive(document, "segments_before");
  const cJSON *segment, *block;
  cJSON_ArrayForEach(segment, segments)
  {
    gint64 at = (gint64) cJSON_GetObjectItemCaseSensitive(segment, "address")->valuedouble;
    cJSON_ArrayForEach(block, cJSON_GetObjectItemCaseSensitive(segment, "blocks"))
    {
      gint64 requested = (gint64) cJSON_GetArrayItem(block, 1)->valuedouble;
      if (g_str_has_prefix(cJSON_GetArrayItem(block, 2)->valuestring, "active"))
        g_hash_table_insert(alive, g_memdup2(&at, sizeof at), g_memdup2(&requested, sizeof at));
      at += (gint64) cJSON_GetArrayItem(block, 0)->valuedouble;
    }
  }
  return alive;
}

static gint64
number(const cJSON *row, int i)
{
  return (gint64) cJSON_GetArrayItem(row, i)->valuedouble;
}

/* The host's side: a free counts when it is asked for.  failed: bytes of the request that ended the
 * run, or 0. */
static GArray *
recorded_events(const cJSON *document, gint64 *failed)
{
  Columns c = {column(document, "action"), column(document, "size"),  column(document, "addr"),
               column(document, "stream"), column(document, "frame"), column(document, "phase")};
  GArray *events = g_array_new(FALSE, FALSE, sizeof(Event));
  g_autoptr(GHashTable) alive = alive_before(document);
  const cJSON *row;
  *failed = 0;
  cJSON_ArrayForEach(row, cJSON_GetObjectItemCaseSensitive(document, "events"))
  {
    const char *action = cJSON_GetArrayItem(row, c.action)->valuestring;
    Event event = {number(row, c.size), number(row, c.stream),
                   frame_text(document, (int) number(row, c.frame)),
                   cJSON_GetArrayItem(row, c.phase)->valuestring};
    gint64 address = number(row, c.address);
    if (strcmp(action, "alloc") == 0) {
      g_hash_table_insert(alive, g_memdup2(&address, sizeof address),
                          g_memdup2(&event.bytes, sizeof address));
    } else if (strcmp(action, "free_requested") == 0) {
      const gint64 *bytes = g_hash_table_lookup(alive, &address);
      ck_assert_msg(bytes != NULL, "event %u frees what is not alive", events->len);
      event.bytes = -*bytes;
      g_hash_table_remove(alive, &address);
    } else {
      *failed = strcmp(action, "oom") == 0 ? event.bytes : *failed;
      continue;
    }
    g_array_append_val(events, event);
  }
  return events;
}

/* ---- ours */

static GArray *
lowered_events(const Program *program, int first_step, int last_step)
{
  GArray *events = g_array_new(FALSE, FALSE, sizeof(Event));
  for (int step = first_step; step <= last_step; step++) {
    const GArray *ops = program_step(program, step - 1)->ops;
    for (guint i = 0; i < ops->len; i++) {
      const ProgramOp *op = &g_array_index(ops, ProgramOp, i);
      if (op->kind != PROGRAM_ALLOC && op->kind != PROGRAM_FREE)
        continue;
      const Storage *storage = &g_array_index(program->storages, Storage, op->a);
      if (storage->space != SPACE_DEVICE)
        continue;
      Event event = {op->kind == PROGRAM_ALLOC ? storage->bytes : -storage->bytes, storage->stream,
                     program_text(program, storage->what),
                     program_module_path(program, storage->module)};
      g_array_append_val(events, event);
    }
  }
  return events;
}

/* ---- comparison */

/* Whose stream is whose, as far as the events have shown. */
typedef struct {
  GHashTable *ours, *theirs;
} StreamNames;

/* TRUE when the two streams may be the same one, which they are from then on. */
static gboolean
same_stream(StreamNames *names, const Event *ours, const Event *theirs)
{
  gpointer a = GSIZE_TO_POINTER((gsize) ours->stream + 1);
  gpointer b = GSIZE_TO_POINTER((gsize) theirs->stream + 1);
  gpointer known_b = g_hash_table_lookup(names->ours, a);
  gpointer known_a = g_hash_table_lookup(names->theirs, b);
  if (known_a == NULL && known_b == NULL) {
    g_hash_table_insert(names->ours, a, b);
    g_hash_table_insert(names->theirs, b, a);
    return TRUE;
  }
  return known_a == a && known_b == b;
}

static guint
same_events(const GArray *ours, const GArray *theirs)
{
  StreamNames names = {g_hash_table_new(NULL, NULL), g_hash_table_new(NULL, NULL)};
  guint n = MIN(ours->len, theirs->len), i = 0;
  for (; i < n; i++) {
    const Event *a = &g_array_index(ours, Event, i), *b = &g_array_index(theirs, Event, i);
    if (a->bytes != b->bytes || !same_stream(&names, a, b))
      break;
  }
  g_hash_table_unref(names.ours);
  g_hash_table_unref(names.theirs);
  return i;
}

static void
describe(GString *text, const GArray *events, guint i)
{
  if (i >= events->len) {
    g_string_append(text, "(end)");
    return;
  }
  const Event *event = &g_array_index(events, Event, i);
  g_string_append_printf(text,
                         "%+" G_GINT64_FORMAT " on stream %" G_GINT64_FORMAT ", %s, module '%s'",
                         event->bytes, event->stream, event->where, event->module);
}

static void
assert_same_events(const char *path, const GArray *ours, const GArray *theirs, gboolean to_the_end)
{
  guint same = same_events(ours, theirs);
  if (same == theirs->len && (same == ours->len || !to_the_end))
    return;
  g_autoptr(GString) text = g_string_new(NULL);
  for (guint i = same > 3 ? same - 3 : 0; i < same + 4; i++) {
    g_string_append_printf(text, "\n%s %u\n    ours:   ", i == same ? "=>" : "  ", i);
    describe(text, ours, i);
    g_string_append(text, "\n    theirs: ");
    describe(text, theirs, i);
  }
  ck_abort_msg("%s: event %u of %u differs:%s", path, same, theirs->len, text->str);
}

/* ---- tests */

/* Runs that hit a small device's limit may end there; the next request is then the one that
 * failed. */
static void
compare(const char *path, const cJSON *document, const cJSON *config)
{
  g_autofree char *network = recorded_network(config), *plan = recorded_plan(config);
  const cJSON *from = cJSON_GetObjectItemCaseSensitive(config, "trace_step");
  int last = recorded_int(config, "steps");
  int first = cJSON_IsNumber(from) && from->valueint > 0 ? from->valueint : last;
  Simulation simulation = {network, plan, NULL, recorded_int(config, "rank")};
  g_autoptr(Simulated) simulated = simulation_lower(&simulation, last);
  gint64 failed;
  g_autoptr(GArray) theirs = recorded_events(document, &failed);
  g_autoptr(GArray) ours = lowered_events(simulated->lowered->program, first, last);
  ck_assert_uint_gt(theirs->len, 500);
  assert_same_events(path, ours, theirs, failed == 0);
  if (failed != 0)
    ck_assert_int_eq(g_array_index(ours, Event, theirs->len).bytes, failed);
}

START_TEST(allocations_and_frees_come_in_the_recorded_order)
{
  const char *path = g_ptr_array_index(traces, (guint) _i);
  cJSON *document = recorded_document(path);
  const cJSON *config = cJSON_GetObjectItemCaseSensitive(document, "config");
  if (strategy_find(recorded_strategy(config)) != NULL)
    compare(path, document, config);
  else
    test_note("left out: %s is of %s", path, recorded_strategy(config));
  cJSON_Delete(document);
}
END_TEST

START_TEST(the_recorded_traces_are_there)
{
  if (traces->len == 0)
    test_note("left out: there are no traces under %s", TRACES);
  else
    ck_assert_uint_ge(traces->len, 15);
}
END_TEST

static int
compare_paths(gconstpointer a, gconstpointer b)
{
  return strcmp(*(char *const *) a, *(char *const *) b);
}

static GPtrArray *
find_traces(void)
{
  GPtrArray *paths = g_ptr_array_new_with_free_func(g_free);
  g_autofree char *folder = test_reference_path(TRACES);
  GDir *dir = folder != NULL ? g_dir_open(folder, 0, NULL) : NULL;
  const char *name;
  while (dir != NULL && (name = g_dir_read_name(dir)) != NULL)
    if (g_str_has_suffix(name, ".trace.json.gz"))
      g_ptr_array_add(paths, g_build_filename(folder, name, NULL));
  if (dir != NULL)
    g_dir_close(dir);
  g_ptr_array_sort(paths, compare_paths);
  return paths;
}

Suite *
test_suite(void)
{
  Suite *suite = suite_create("trace order");
  TCase *tests = tcase_create("trace order");
  traces = find_traces();
  tcase_add_test(tests, the_recorded_traces_are_there);
  tcase_add_loop_test(tests, allocations_and_frees_come_in_the_recorded_order, 0,
                      (int) traces->len);
  suite_add_tcase(suite, tests);
  return suite;
}

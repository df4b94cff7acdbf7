/* explain_message.c - what a message about memory running out can mean. */
#include "base/json_output.h"
#include "cli/explain_print.h"
#include "report/numbered_path.h"
#include "report/summary_text_parts.h"

/* So many rows are named unless all are asked for. */
enum { ROWS_MAX = 12 };

/* Candidates that differ in the number of their block alone. */
typedef struct {
  const OomCandidate *best;
  PathSet modules;
  int count;
  gint64 low, high; /* allocated before them */
} CandidateRow;

static void
row_clear(gpointer data)
{
  path_set_clear(&((CandidateRow *) data)->modules);
}

static const char *
module_of(const OomSearch *search, const OomCandidate *candidate)
{
  return report_text(search->run.recording, candidate->module, "");
}

/* What alike candidates have in common.  Caller frees. */
static char *
key_of(const OomSearch *search, const OomCandidate *c)
{
  NumberedPath path = numbered_path(module_of(search, c));
  GString *key = g_string_new(NULL);
  g_string_printf(key, "%d.%d.%d.%d.%d.%" G_GINT64_FORMAT ".%d.%d ", c->what, c->place.step,
                  c->place.phase, c->place.micro_batch, c->place.hook, c->requested_bytes, c->fails,
                  c->named);
  numbered_path_append_masked(&path, key);
  numbered_path_clear(&path);
  return g_string_free(key, FALSE);
}

/* CandidateRow, in the order of the best of each. */
static GArray *
rows_of(const OomSearch *search)
{
  GArray *rows = g_array_new(FALSE, TRUE, sizeof(CandidateRow));
  g_array_set_clear_func(rows, row_clear);
  g_autoptr(GHashTable) known = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
  for (guint i = 0; i < search->candidates->len; i++) {
    const OomCandidate *candidate = &g_array_index(search->candidates, OomCandidate, i);
    char *key = key_of(search, candidate);
    gpointer found;
    guint position = rows->len;
    if (g_hash_table_lookup_extended(known, key, NULL, &found)) {
      position = GPOINTER_TO_UINT(found);
      g_free(key);
    } else {
      CandidateRow row = {.best = candidate, .low = G_MAXINT64};
      g_hash_table_insert(known, key, GUINT_TO_POINTER(position));
      g_array_append_val(rows, row);
    }
    CandidateRow *row = &g_array_index(rows, CandidateRow, position);
    NumberedPath path = numbered_path(module_of(search, candidate));
    path_set_add(&row->modules, &path);
    numbered_path_clear(&path);
    row->count++;
    row->low = MIN(row->low, candidate->allocated);
    row->high = MAX(row->high, candidate->allocated);
  }
  return rows;
}

/* ---- text ---- */

static void
print_tried(const OomMessage *message, GString *out)
{
  g_autofree char *tried = format_bytes(oom_figure_bytes(&message->tried));
  g_autofree char *requests = oom_requests(&message->tried);
  g_string_append_printf(out, "cudaMalloc was asked for %s: ", tried);
  if (requests != NULL)
    g_string_append_printf(out, "the tensor has %s.\n", requests);
  else
    g_string_append(out, "the allocator of today asks for no segment of that size.\n");
}

static char *
row_name(const OomSearch *search, CandidateRow *row)
{
  const char *what = report_text(search->run.recording, row->best->what, "a tensor");
  GString *name = g_string_new(row->best->fails || row->best->named ? "* " : "  ");
  if (row->count > 1)
    g_string_append_printf(name, "%d x ", row->count);
  g_string_append(name, what);
  if (*module_of(search, row->best) != '\0' &&
      !g_str_has_prefix(what, module_of(search, row->best))) {
    g_string_append(name, " of ");
    path_set_append(&row->modules, name);
  }
  return g_string_free(name, FALSE);
}

/* Where the best of them is; its module only when it is not in the name. */
static char *
row_place(const OomSearch *search, const CandidateRow *row)
{
  HostPlace place = row->best->place;
  place.module = -1;
  GString *text = g_string_new(NULL);
  host_place_append(search->run.recording, &place, NULL, text);
  return g_string_free(text, FALSE);
}

static void
print_candidates(const OomMessage *message, const OomSearch *search, const TextStyle *style,
                 GString *out)
{
  g_autoptr(GArray) rows = rows_of(search);
  guint shown = style->verbose ? rows->len : MIN(rows->len, ROWS_MAX);
  g_string_append_printf(out, "\n%u of %u allocations are of that size%s:\n",
                         search->candidates->len, search->allocations,
                         message->allocated.known ? ", the likeliest first" : "");
  g_autoptr(TextTable) table = text_table_new("lrrrrl");
  TEXT_ROW(table, NULL, g_strdup("asks for"), g_strdup("allocated"), g_strdup("off by"),
           g_strdup("reserved"), g_strdup("in"));
  for (guint i = 0; i < shown; i++) {
    CandidateRow *row = &g_array_index(rows, CandidateRow, i);
    TEXT_ROW(table, row_name(search, row), format_bytes(row->best->requested_bytes),
             format_bytes(row->best->allocated),
             row->best->distance > 0 ? format_bytes(row->best->distance) : NULL,
             format_bytes(row->best->reserved), row_place(search, row));
  }
  text_table_print(table, 0, out);
  if (shown < rows->len)
    g_string_append_printf(out, "and %u others; --verbose lists them all\n", rows->len - shown);
  const OomCandidate *best = &g_array_index(search->candidates, OomCandidate, 0);
  if (best->fails || best->named)
    g_string_append(out, best->fails ? "* here the simulation runs out too\n"
                                     : "* what the message names\n");
}

static void
print_findings(const OomMessage *message, const OomSearch *search, GString *out)
{
  g_autoptr(GArray) findings = oom_findings(message, search);
  for (guint i = 0; i < findings->len; i++)
    g_string_append_printf(out, "%s.\n", g_array_index(findings, OomFinding, i).text);
}

char *
explain_message_text(const OomMessage *message, const OomSearch *search, const TextStyle *style)
{
  GString *out = g_string_new(NULL);
  print_tried(message, out);
  print_findings(message, search, out);
  if (search->candidates->len > 0)
    print_candidates(message, search, style, out);
  else
    g_string_append_printf(out,
                           "\nNone of %u allocations is of that size: it is none of this plan.\n",
                           search->allocations);
  return g_string_free(out, FALSE);
}

/* ---- JSON ---- */

static void
add_figure(cJSON *object, const char *key, const OomFigure *figure)
{
  if (!figure->known) {
    cJSON_AddNullToObject(object, key);
    return;
  }
  cJSON *bounds = cJSON_AddArrayToObject(object, key);
  cJSON_AddItemToArray(bounds, cJSON_CreateNumber((double) figure->low));
  cJSON_AddItemToArray(bounds, cJSON_CreateNumber((double) figure->high));
}

static void
add_message(cJSON *root, const OomMessage *m)
{
  const struct {
    const char *key;
    const OomFigure *figure;
  } figures[] = {{"tried_bytes", &m->tried},
                 {"capacity_bytes", &m->capacity},
                 {"free_bytes", &m->free},
                 {"allowed_bytes", &m->allowed},
                 {"this_process_bytes", &m->this_process},
                 {"allocated_bytes", &m->allocated},
                 {"private_pools_bytes", &m->private_pools},
                 {"reserved_not_allocated_bytes", &m->idle},
                 {"reserved_bytes", &m->reserved}};
  cJSON *object = cJSON_AddObjectToObject(root, "message");
  json_add_text(object, "text", m->text);
  for (guint i = 0; i < G_N_ELEMENTS(figures); i++)
    add_figure(object, figures[i].key, figures[i].figure);
  cJSON *others = cJSON_AddArrayToObject(object, "processes");
  for (guint i = 0; i < m->processes->len; i++) {
    const OomProcess *process = &g_array_index(m->processes, OomProcess, i);
    cJSON *item = cJSON_CreateObject();
    json_add_int(item, "id", process->id);
    add_figure(item, "used_bytes", &process->used);
    cJSON_AddItemToArray(others, item);
  }
}

static cJSON *
candidate_json(const OomSearch *search, const OomCandidate *candidate)
{
  const Recording *recording = search->run.recording;
  const HostPlace *place = &candidate->place;
  cJSON *object = cJSON_CreateObject();
  json_add_text(object, "what", report_text(recording, candidate->what, NULL));
  json_add_text(object, "module", report_text(recording, candidate->module, NULL));
  json_add_text(object, "category", category_name(candidate->category));
  json_add_int(object, "step", place->step);
  json_add_text(object, "phase", report_text(recording, place->phase, NULL));
  json_add_int(object, "micro_batch", MAX(place->micro_batch, 0));
  json_add_text(object, "hook", report_text(recording, place->hook, NULL));
  json_add_int(object, "event", candidate->event);
  json_add_int(object, "requested_bytes", candidate->requested_bytes);
  json_add_int(object, "segment_bytes", candidate->segment_bytes);
  json_add_int(object, "allocated_bytes", candidate->allocated);
  json_add_int(object, "reserved_bytes", candidate->reserved);
  json_add_int(object, "off_by_bytes", candidate->distance);
  cJSON_AddBoolToObject(object, "runs_out_here", candidate->fails);
  cJSON_AddBoolToObject(object, "named", candidate->named);
  return object;
}

char *
explain_message_json(const OomMessage *message, const OomSearch *search)
{
  cJSON *root = cJSON_CreateObject();
  json_add_text(root, "format", "highwater-oom-message-1");
  add_message(root, message);
  g_autoptr(GArray) findings = oom_findings(message, search);
  cJSON *list = cJSON_AddArrayToObject(root, "findings");
  for (guint i = 0; i < findings->len; i++) {
    const OomFinding *finding = &g_array_index(findings, OomFinding, i);
    cJSON *item = cJSON_CreateObject();
    json_add_text(item, "name", finding->name);
    json_add_text(item, "text", finding->text);
    cJSON_AddItemToArray(list, item);
  }
  json_add_int(root, "allocations", search->allocations);
  cJSON *candidates = cJSON_AddArrayToObject(root, "candidates");
  for (guint i = 0; i < search->candidates->len; i++)
    cJSON_AddItemToArray(
        candidates, candidate_json(search, &g_array_index(search->candidates, OomCandidate, i)));
  return json_finish(root);
}

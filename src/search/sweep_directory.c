/* sweep_directory.c - the folder that `sweep --output` leaves, and goes on in after an
 * interruption. */
#include "search/sweep_directory.h"

#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/json_output.h"
#include "base/json_reader.h"
#include "base/output_file.h"
#include "search/sweep_comparison.h"
#include "search/sweep_leftovers.h"
#include "search/sweep_results.h"

struct _SweepDirectory {
  char *path;
  int lines; /* results.jsonl, open at its end; locked */
};

static gboolean
fail(const char *path, GError **error)
{
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_OUTPUT, "%s: cannot be written: %s",
              output_file_name(path), g_strerror(errno));
  return FALSE;
}

/* ---- description ---- */

static void
add_varied(cJSON *description, const Vary *vary)
{
  cJSON *varied = cJSON_AddObjectToObject(description, "vary");
  for (guint i = 0; i < vary->axes->len; i++) {
    const VaryAxis *axis = g_ptr_array_index(vary->axes, i);
    cJSON *values = cJSON_AddArrayToObject(varied, axis->key);
    for (guint k = 0; k < axis->values->len; k++)
      cJSON_AddItemToArray(values, cJSON_CreateString(g_ptr_array_index(axis->values, k)));
  }
}

static void
add_request(cJSON *description, const Sweep *sweep, const SweepRequest *request)
{
  const RunRequest *base = request->base;
  json_add_text(description, "format", "highwater-sweep-1");
  json_add_text(description, "version", PACKAGE_VERSION);
  json_add_text(description, "title", sweep->title);
  json_add_text(description, "network", base->inputs.network.name);
  json_add_text(description, "plan", base->inputs.plan.name);
  json_add_text(description, "cluster", base->inputs.cluster.name);
  cJSON *set = cJSON_AddArrayToObject(description, "set");
  for (char **text = base->inputs.assignments; text != NULL && *text != NULL; text++)
    cJSON_AddItemToArray(set, cJSON_CreateString(*text));
  add_varied(description, sweep->vary);
  cJSON_AddBoolToObject(description, "hold_global_batch", request->hold_global_batch);
  json_add_int(description, "steps", base->steps);
  json_add_int(description, "rank", base->rank);
  cJSON_AddBoolToObject(description, "all_ranks", base->all_ranks);
  json_add_known_int(description, "memory_limit_bytes", base->memory_limit > 0, base->memory_limit);
  json_add_int(description, "variants", sweep->variants->len);
}

static void
digest_input(GChecksum *checksum, const InputText *input)
{
  g_checksum_update(checksum, (const guchar *) &input->length, sizeof input->length);
  g_checksum_update(checksum, (const guchar *) input->text, (gssize) input->length);
}

/* Of all that the results follow from. */
static char *
digest_of(const Sweep *sweep, const SweepRequest *request, const char *description)
{
  const ScenarioInputs *inputs = &request->base->inputs;
  g_autoptr(GChecksum) checksum = g_checksum_new(G_CHECKSUM_SHA256);
  g_checksum_update(checksum, (const guchar *) description, -1);
  digest_input(checksum, &inputs->network);
  digest_input(checksum, &inputs->plan);
  digest_input(checksum, &inputs->cluster);
  for (guint i = 0; i < sweep->inputs->len; i++)
    digest_input(checksum, &g_array_index(sweep->inputs, InputText, i));
  return g_strdup(g_checksum_get_string(checksum));
}

/* sweep.json: the request, ending with the digest.  Caller frees. */
static char *
describe(const Sweep *sweep, const SweepRequest *request, char **digest)
{
  cJSON *description = cJSON_CreateObject();
  add_request(description, sweep, request);
  g_autofree char *text = json_line(description);
  *digest = digest_of(sweep, request, text);
  json_add_text(description, "digest", *digest);
  return json_finish(description);
}

/* ---- opening ---- */

static gboolean
make_folder(const char *path, GError **error)
{
  if (!sweep_leftovers_are_all(path)) {
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_OUTPUT,
                "%s: is there already and is not a folder written by 'highwater sweep --output'",
                path);
    return FALSE;
  }
  return g_mkdir_with_parents(path, 0777) == 0 || fail(path, error);
}

static gboolean
check_same(const char *file, const char *digest, GError **error)
{
  g_autoptr(JsonDocument) document = json_document_load(file, error);
  if (document == NULL)
    return FALSE;
  g_autoptr(JsonReader) reader = json_reader_new(document);
  json_reader_allow_unknown(reader);
  const char *there = json_reader_required_string(reader, "digest");
  gboolean is_same = g_str_equal(there, digest);
  if (!json_reader_finish(reader, error))
    return FALSE;
  if (!is_same)
    g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_OUTPUT,
                "%s: is of another sweep: give another --output, or remove the folder", file);
  return is_same;
}

static gboolean
read_lines(Sweep *sweep, const char *file, gsize *whole, GError **error)
{
  gsize length = 0;
  g_autofree char *text = NULL;
  g_autoptr(GError) reason = NULL;
  if (g_file_get_contents(file, &text, &length, &reason))
    return sweep_results_read(sweep, file, text, length, whole, error);
  g_set_error_literal(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT, reason->message);
  return FALSE;
}

/* Opens the lines and locks the folder by them. */
static gboolean
lock(SweepDirectory *directory, GError **error)
{
  g_autofree char *file = g_build_filename(directory->path, SWEEP_LINES, NULL);
  directory->lines = g_open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (directory->lines < 0)
    return fail(file, error);
  if (flock(directory->lines, LOCK_EX | LOCK_NB) == 0)
    return TRUE;
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_OUTPUT, "%s: another sweep is writing there",
              file);
  return FALSE;
}

static void
remove_leftovers(const char *path, const Sweep *sweep)
{
  g_autoptr(GHashTable) labels = g_hash_table_new(g_str_hash, g_str_equal);
  for (guint i = 0; i < sweep->variants->len; i++)
    g_hash_table_add(labels, sweep_variant(sweep, i)->label);
  sweep_leftovers_remove(path, labels);
}

/* Takes up the results that are there; half a line at the end goes. */
static gboolean
go_on(SweepDirectory *directory, Sweep *sweep, GError **error)
{
  g_autofree char *file = g_build_filename(directory->path, SWEEP_LINES, NULL);
  gsize whole;
  if (!read_lines(sweep, file, &whole, error))
    return FALSE;
  remove_leftovers(directory->path, sweep);
  return ftruncate(directory->lines, (off_t) whole) == 0 || fail(file, error);
}

SweepDirectory *
sweep_directory_open(const char *path, Sweep *sweep, const SweepRequest *request, GError **error)
{
  g_autofree char *digest = NULL;
  g_autofree char *description = describe(sweep, request, &digest);
  g_autofree char *file = g_build_filename(path, SWEEP_DESCRIPTION, NULL);
  gboolean is_there = g_file_test(file, G_FILE_TEST_EXISTS);
  if (is_there ? !check_same(file, digest, error) : !make_folder(path, error))
    return NULL;
  g_autoptr(SweepDirectory) directory = g_new0(SweepDirectory, 1);
  directory->path = g_strdup(path);
  directory->lines = -1;
  if (!lock(directory, error))
    return NULL;
  /* Under the lock: another process may have described its sweep meanwhile. */
  gboolean is_described = g_file_test(file, G_FILE_TEST_EXISTS)
                              ? is_there || check_same(file, digest, error)
                              : output_file_write(file, description, strlen(description), error);
  return is_described && go_on(directory, sweep, error) ? g_steal_pointer(&directory) : NULL;
}

/* ---- writing ---- */

gboolean
sweep_directory_add(SweepDirectory *directory, const Sweep *sweep, guint variant, GError **error)
{
  g_autoptr(GString) line = g_string_new(NULL);
  sweep_results_line(sweep, variant, FALSE, line);
  for (gsize written = 0; written < line->len;) {
    gssize n = write(directory->lines, line->str + written, line->len - written);
    if (n < 0 && errno != EINTR) {
      g_autofree char *file = g_build_filename(directory->path, SWEEP_LINES, NULL);
      return fail(file, error);
    }
    written += n > 0 ? (gsize) n : 0;
  }
  return TRUE;
}

static gboolean
write_comparison(const SweepDirectory *directory, const Sweep *sweep, GError **error)
{
  g_autofree char *file = g_build_filename(directory->path, SWEEP_COMPARISON, NULL);
  g_autoptr(GString) text = g_string_new(NULL);
  sweep_comparison(directory, sweep, text);
  return output_file_write(file, text->str, text->len, error);
}

static gboolean
write_table(const SweepDirectory *directory, const Sweep *sweep, const char *name,
            void (*table)(const Sweep *sweep, GString *out), GError **error)
{
  g_autofree char *file = g_build_filename(directory->path, name, NULL);
  g_autoptr(GString) text = g_string_new(NULL);
  table(sweep, text);
  return output_file_write(file, text->str, text->len, error);
}

gboolean
sweep_directory_finish(SweepDirectory *directory, const Sweep *sweep, GError **error)
{
  return write_table(directory, sweep, SWEEP_CSV, sweep_results_csv, error) &&
         write_table(directory, sweep, SWEEP_TABLE, sweep_results_table, error) &&
         write_comparison(directory, sweep, error);
}

char *
sweep_directory_variant(const SweepDirectory *directory, const SweepVariant *variant)
{
  return g_build_filename(directory->path, SWEEP_VARIANTS, variant->label, NULL);
}

void
sweep_directory_free(SweepDirectory *directory)
{
  if (directory == NULL)
    return;
  if (directory->lines >= 0)
    close(directory->lines);
  g_free(directory->path);
  g_free(directory);
}

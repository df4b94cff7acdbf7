/* nccl_tests_table.c - finds the tables in a file, and what the lines around them say. */
#include "import/nccl_tests_internal.h"

#include "base/units.h"
#include "import/byte_source.h"
#include <string.h>

const char *const ranks_source_names[] = {
    [RANKS_FROM_CALLER] = "the command line",  [RANKS_FROM_DEVICES] = "device lines",
    [RANKS_FROM_COUNT] = "counts of elements", [RANKS_FROM_BANDWIDTHS] = "bandwidths",
    [RANKS_FROM_NAME] = "file name or header",
};

#define RANKS_MAX (1 << 20)

/* Reads a file line by line. */
typedef struct {
  const char *file;
  NcclTestsHints hints;
  guint line; /* number of the line at hand */
  TableHeader header;
  gboolean ended; /* rows have been seen since the header's lines: the next ones are another's */
  GArray *rows;   /* RawRow of the table at hand */
  NcclTestsTable *table; /* and what it will be; NULL: no row yet */
  guint header_line;     /* of the last line that looks like a table's header; 0: none */
  GPtrArray *tables;
} Parser;

void
nccl_tests_table_free(NcclTestsTable *table)
{
  if (!table)
    return;
  g_free(table->file);
  g_free(table->gpu);
  g_free(table->nccl);
  g_array_unref(table->rows);
  g_array_unref(table->rejected);
  g_free(table);
}

static void
table_free(gpointer table)
{
  nccl_tests_table_free(table);
}

static gboolean
refuse(const Parser *parser, guint line, GError **error, const char *what)
{
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT, "%s: line %u: %s", parser->file, line,
              what);
  return FALSE;
}

/* ---- header */

static void
header_clear(TableHeader *header)
{
  g_clear_pointer(&header->hosts, g_hash_table_unref);
  g_clear_pointer(&header->gpu, g_free);
  g_clear_pointer(&header->nccl, g_free);
  header->ranks = header->gpus = header->device_lines = header->devices = 0;
  header->collective = NULL;
}

/* The whole number after a word, or -1. */
static gint64
number_after(const char *line, const char *word)
{
  const char *at = strstr(line, word);
  if (!at)
    return -1;
  at += strlen(word);
  at += strspn(at, " ");
  return g_ascii_isdigit(*at) ? (gint64) MIN(g_ascii_strtoull(at, NULL, 10), RANKS_MAX) : -1;
}

/* "#  Rank 15 Group 0 Pid 2081 on node-1 device 7 [0xda] NVIDIA A100-SXM4-40GB" */
static gboolean
read_device(TableHeader *header, const char *line)
{
  gint64 rank = number_after(line, " Rank ");
  const char *on = strstr(line, " on "), *device = strstr(line, " device ");
  if (rank < 0 || rank >= RANKS_MAX || !on || !device || device < on)
    return FALSE;
  if (rank == 0) {
    if (header->hosts)
      g_hash_table_remove_all(header->hosts);
    header->ranks = header->device_lines = header->devices = 0;
  }
  header->ranks = MAX(header->ranks, (int) rank + 1);
  header->device_lines++;
  header->devices = MAX(header->devices, (int) number_after(device, " device ") + 1);
  on += strlen(" on ");
  on += strspn(on, " ");
  if (!header->hosts)
    header->hosts = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
  g_hash_table_add(header->hosts, g_strndup(on, strcspn(on, " ")));
  const char *gpu = strchr(device, ']');
  if (gpu) {
    g_free(header->gpu);
    header->gpu = g_strstrip(g_strdup(gpu + 1));
  }
  return TRUE;
}

static gboolean
is_version(char c)
{
  return g_ascii_isdigit(c) || c == '.';
}

/* "NCCL version 2.26.2+cuda12.8"; "nccl-library=22907" */
static void
read_version(TableHeader *header, const char *line)
{
  const char *at = strstr(line, "NCCL version ");
  gint64 library = number_after(line, "nccl-library=");
  gsize length = 0;
  if (at) {
    at += strlen("NCCL version ");
    while (is_version(at[length]))
      length++;
  }
  if (length > 0) {
    g_free(header->nccl);
    header->nccl = g_strndup(at, length);
  } else if (library >= 2000) {
    g_free(header->nccl);
    header->nccl = g_strdup_printf("%d.%d.%d", (int) (library / 10000), (int) (library / 100 % 100),
                                   (int) (library % 100));
  }
}

/* "# nThread 1 nGpus 8 minBytes ...": a new run. */
static void
read_arguments(TableHeader *header, const char *line)
{
  gint64 threads = number_after(line, "nThread "), gpus = number_after(line, "nGpus ");
  if (threads > 0 && gpus > 0 && threads * gpus <= RANKS_MAX)
    header->gpus = (int) (threads * gpus);
}

static void
read_header(Parser *parser, const char *line)
{
  TableHeader *header = &parser->header;
  int count;
  gboolean device = strstr(line, " Rank ") && strstr(line, " device ");
  gboolean starts = strstr(line, "nThread ") || strstr(line, "Collective test starting");
  if (parser->ended && (device || starts)) {
    header_clear(header);
    parser->ended = FALSE;
  }
  if (device)
    read_device(header, line);
  read_arguments(header, line);
  read_version(header, line);
  const char *collective = nccl_tests_collective_in(line, &count);
  if (count == 1 && strstr(line, "Collective test starting"))
    header->collective = collective;
  else if (count == 1)
    header->mentioned = collective;
  if (strstr(line, "algbw") && strstr(line, "time"))
    parser->header_line = parser->line;
}

/* "h100_2x8_ag.txt": nodes and GPUs of each, and the collective. */
static void
read_name(TableHeader *header, const char *path)
{
  static const struct {
    const char *word, *collective;
  } words[] = {
      {"all_reduce", "all_reduce"},
      {"allreduce", "all_reduce"},
      {"all_gather", "all_gather"},
      {"allgather", "all_gather"},
      {"reduce_scatter", "reduce_scatter"},
      {"reducescatter", "reduce_scatter"},
      {"alltoall", "alltoall"},
      {"a2a", "alltoall"},
      {"sendrecv", "sendrecv"},
      {"broadcast", "broadcast"},
  };
  g_autofree char *name = g_path_get_basename(path);
  for (guint i = 0; i < G_N_ELEMENTS(words) && !header->name_collective; i++)
    if (strstr(name, words[i].word))
      header->name_collective = words[i].collective;
  for (const char *x = strchr(name, 'x'); x; x = strchr(x + 1, 'x')) {
    const char *start = x;
    while (start > name && g_ascii_isdigit(start[-1]))
      start--;
    guint64 nodes = g_ascii_strtoull(start, NULL, 10), gpus = g_ascii_strtoull(x + 1, NULL, 10);
    gsize digits = strspn(x + 1, "0123456789");
    gboolean bounded = !g_ascii_isalpha(x[1 + digits]);
    if (start < x && digits > 0 && bounded && nodes > 0 && gpus > 0 && nodes <= 65536 &&
        gpus <= 1024 && header->name_nodes == 0) {
      header->name_nodes = (int) nodes;
      header->name_gpus = (int) gpus;
    }
  }
}

/* ---- tables */

static int
nodes_of(const Parser *parser, int ranks)
{
  const TableHeader *header = &parser->header;
  if (parser->hints.nodes > 0)
    return parser->hints.nodes;
  if (header->hosts && header->device_lines == ranks)
    return (int) g_hash_table_size(header->hosts);
  if (header->name_nodes * header->name_gpus == ranks)
    return header->name_nodes;
  /* Some lines are left out, but a node has as many GPUs as the highest number seen. */
  return header->devices > 0 ? (int) ceil_div(ranks, header->devices) : 0;
}

static void
keep_rows(const Parser *parser, NcclTestsTable *table)
{
  for (guint i = 0; i < parser->rows->len; i++) {
    const RawRow *raw = &g_array_index(parser->rows, RawRow, i);
    NcclTestsRow *row = &g_array_index(table->rows, NcclTestsRow, i);
    row->bytes = raw->bytes;
    row->time_us = raw->out_of_place.time_us;
    if (raw->in_place.time_us > 0)
      row->time_us = MIN(row->time_us, raw->in_place.time_us);
  }
}

/* Ends the table at hand: tells what it is and keeps it. */
static gboolean
end_table(Parser *parser, GError **error)
{
  NcclTestsTable *table = parser->table;
  if (!table || parser->rows->len == 0)
    return TRUE;
  TableIdentity identity = nccl_tests_identify(&parser->header, parser->rows, parser->hints);
  if (!identity.collective)
    return refuse(parser, table->line, error,
                  "columns of no collective of nccl-tests (redop, root, count and bandwidths)");
  if (identity.ranks == 0)
    return refuse(parser, table->line, error,
                  "the number of ranks cannot be told from this table; give --ranks");
  if (identity.ranks == 1)
    return refuse(parser, table->line, error,
                  "a table of one rank, which sends nothing (nccl-tests built without MPI prints "
                  "one for each process)");
  table->collective = identity.collective;
  table->ranks = identity.ranks;
  table->ranks_source = identity.source;
  table->nodes = MIN(nodes_of(parser, identity.ranks), identity.ranks);
  table->gpu = g_strdup(parser->header.gpu);
  table->nccl = g_strdup(parser->header.nccl);
  keep_rows(parser, table);
  g_ptr_array_add(parser->tables, table);
  parser->table = NULL;
  g_array_set_size(parser->rows, 0);
  parser->ended = TRUE;
  return TRUE;
}

static void
begin_table(Parser *parser)
{
  if (parser->table)
    return;
  parser->table = g_new0(NcclTestsTable, 1);
  parser->table->file = g_strdup(parser->file);
  parser->table->rows = g_array_new(FALSE, FALSE, sizeof(NcclTestsRow));
  parser->table->rejected = g_array_new(FALSE, FALSE, sizeof(NcclTestsRejected));
}

static gboolean
take_row(Parser *parser, const RawRow *raw, GError **error)
{
  guint n = parser->rows->len;
  gboolean restarts = n > 0 && raw->bytes < g_array_index(parser->rows, RawRow, n - 1).bytes;
  if (restarts && !end_table(parser, error))
    return FALSE;
  begin_table(parser);
  NcclTestsRow row = {.bytes = raw->bytes, .line = parser->line};
  g_array_append_val(parser->rows, *raw);
  g_array_append_val(parser->table->rows, row);
  if (parser->rows->len == 1)
    parser->table->line = parser->line;
  return TRUE;
}

static gboolean
take_line(Parser *parser, const char *line, GError **error)
{
  RawRow raw;
  const char *reason = NULL;
  switch (nccl_tests_row_parse(line, &raw, &reason)) {
  case ROW_GOOD:
    return take_row(parser, &raw, error);
  case ROW_BAD: {
    NcclTestsRejected rejected = {parser->line, reason};
    begin_table(parser);
    g_array_append_val(parser->table->rejected, rejected);
    return TRUE;
  }
  case ROW_NONE:
    break;
  }
  /* A header after rows begins another table. */
  gboolean begins = strstr(line, "nThread ") || strstr(line, "Collective test starting") ||
                    (strstr(line, "algbw") && strstr(line, "busbw"));
  if (begins && !end_table(parser, error))
    return FALSE;
  read_header(parser, line);
  return TRUE;
}

static gboolean
parse_lines(Parser *parser, const char *text, gsize length, GError **error)
{
  const char *end = length > 0 ? text + length : text; /* an empty file may be NULL */
  while (text < end) {
    const char *newline = memchr(text, '\n', (gsize) (end - text));
    const char *stop = newline ? newline : end;
    /* NUL bytes end a line early: what follows them is no text. */
    g_autofree char *line = g_strndup(text, (gsize) (stop - text));
    parser->line++;
    g_strchomp(line);
    if (!take_line(parser, line, error))
      return FALSE;
    text = stop + 1;
  }
  return end_table(parser, error);
}

static gboolean
finish(const Parser *parser, GError **error)
{
  if (parser->tables->len > 0)
    return TRUE;
  if (parser->table && parser->table->rejected->len > 0) {
    NcclTestsRejected first = g_array_index(parser->table->rejected, NcclTestsRejected, 0);
    g_autofree char *what =
        g_strdup_printf("no usable row of an nccl-tests table: %s", first.reason);
    return refuse(parser, first.line, error, what);
  }
  if (parser->header_line > 0)
    return refuse(parser, parser->header_line, error, "no row follows this table's header");
  return refuse(parser, MAX(parser->line, 1), error,
                "no nccl-tests table up to here: rows are 'size count type redop root time algbw "
                "busbw ...'");
}

GPtrArray *
nccl_tests_tables_parse(const char *name, const char *text, gsize length, NcclTestsHints hints,
                        GError **error)
{
  Parser parser = {
      .file = name,
      .hints = hints,
      .rows = g_array_new(FALSE, FALSE, sizeof(RawRow)),
      .tables = g_ptr_array_new_with_free_func(table_free),
  };
  read_name(&parser.header, name);
  gboolean good = parse_lines(&parser, text, length, error) && finish(&parser, error);
  header_clear(&parser.header);
  nccl_tests_table_free(parser.table);
  g_array_unref(parser.rows);
  if (good)
    return parser.tables;
  g_ptr_array_unref(parser.tables);
  return NULL;
}

GPtrArray *
nccl_tests_tables_load(const char *path, NcclTestsHints hints, GError **error)
{
  g_autoptr(ByteSource) source = byte_source_open(path, error);
  if (!source)
    return NULL;
  g_autoptr(GString) text = g_string_new(NULL);
  while (source->at < source->end || byte_source_refill(source)) {
    g_string_append_len(text, (const char *) source->at, source->end - source->at);
    source->at = source->end;
  }
  if (source->error) {
    g_propagate_error(error, g_error_copy(source->error));
    return NULL;
  }
  return nccl_tests_tables_parse(path, text->str, text->len, hints, error);
}

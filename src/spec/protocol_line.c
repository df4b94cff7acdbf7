/* protocol_line.c - reads the constants of NCCL's algorithms and protocols. */
#include "spec/protocol_line.h"

#include "spec/profile_fields.h"

#define MICROSECONDS_MAX 1e6

const char *const protocol_line_keys[] = {
#define X(name, key) key,
    PROTOCOL_LINES(X)
#undef X
        NULL};

/* A key of a line: `required` where the line is new. */
typedef struct {
  ProfileField field;
  gboolean required;
} LineField;

static const LineField fields[] = {
    {{"base_us", PROFILE_DOUBLE, G_STRUCT_OFFSET(ProtocolLine, base_ns), NS_PER_US, 0,
      MICROSECONDS_MAX},
     TRUE},
    {{"hop_us", PROFILE_DOUBLE, G_STRUCT_OFFSET(ProtocolLine, hop_ns), NS_PER_US, 0,
      MICROSECONDS_MAX},
     TRUE},
    {{"bandwidth", PROFILE_DOUBLE, G_STRUCT_OFFSET(ProtocolLine, bandwidth), 1, 1e-3, 10}, TRUE},
    {{"busbw_max_gb_per_s", PROFILE_DOUBLE, G_STRUCT_OFFSET(ProtocolLine, busbw_max), GIGA, 1e-3,
      1e6},
     FALSE},
    {{"pipeline_us", PROFILE_DOUBLE, G_STRUCT_OFFSET(ProtocolLine, pipeline_ns), NS_PER_US, 0,
      MICROSECONDS_MAX},
     FALSE},
};

static void
line_read(JsonReader *reader, ProtocolLine *line)
{
  for (guint i = 0; i < G_N_ELEMENTS(fields); i++) {
    const ProfileField *field = &fields[i].field;
    double *place = (double *) (gpointer) ((char *) line + field->offset);
    if (json_reader_has(reader, field->key))
      *place = field->scale * json_reader_double(reader, field->key, 0, field->min, field->max);
    else if (fields[i].required && !line->present)
      json_reader_require(reader, field->key);
  }
  line->present = TRUE;
  json_reader_finish(reader, NULL);
}

void
protocol_lines_read(JsonReader *reader, const char *key, ProtocolLine lines[LINE_COUNT])
{
  g_autoptr(JsonReader) section = json_reader_section(reader, key);
  for (int id = 0; id < LINE_COUNT; id++) {
    if (id == LINE_RING_SIMPLE || !json_reader_has(section, protocol_line_keys[id]))
      continue;
    g_autoptr(JsonReader) line = json_reader_section(section, protocol_line_keys[id]);
    line_read(line, &lines[id]);
  }
  json_reader_finish(section, NULL);
}

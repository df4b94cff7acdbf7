/* ops_recorded.c - reads what an exported network says of an op without a recipe: views, saved
 * tensors and the steps of its backward. */
#include <string.h>

#include "network/ops_format.h"

#define MOST_BACKWARD 64

/* "views": [output, operand, offset in elements] of each. */
static void
read_views(JsonReader *reader, OpsStatement *s)
{
  const cJSON *views = json_reader_raw(reader, "views"), *view;
  for (int i = 0; i < OP_OUTPUTS; i++)
    s->recorded.view_of[i] = -1;
  if (views == NULL)
    return;
  gboolean good = cJSON_IsArray(views);
  cJSON_ArrayForEach(view, views)
  {
    double part[3] = {-1, -1, -1};
    for (int k = 0; k < 3 && cJSON_GetArraySize(view) == 3; k++)
      if (cJSON_IsNumber(cJSON_GetArrayItem(view, k)))
        part[k] = cJSON_GetArrayItem(view, k)->valuedouble;
    good = good && part[0] >= 0 && part[0] < s->outs && part[1] >= 0 && part[1] < s->ins &&
           part[2] >= 0 && part[2] <= (double) BUILDER_MOST_ELEMENTS;
    if (!good)
      break;
    s->recorded.view_of[(int) part[0]] = (gint8) part[1];
    s->recorded.offset[(int) part[0]] = (gint64) part[2];
  }
  if (!good)
    json_reader_fail(reader, "views", "views are [output, operand, offset in elements]");
}

/* "in0" and "out1". */
static gboolean
read_saved(const char *text, const OpsStatement *s, guint8 *buffer)
{
  gboolean out = g_str_has_prefix(text, "out");
  const char *digit = text + (out ? 3 : 2);
  if ((!out && !g_str_has_prefix(text, "in")) || !g_ascii_isdigit(digit[0]) || digit[1] != '\0')
    return FALSE;
  int index = digit[0] - '0';
  *buffer = (guint8) (out ? BUFFER_OUT + index : BUFFER_IN + index);
  return index < (out ? s->outs : s->ins);
}

static void
read_saves(JsonReader *reader, OpsStatement *s)
{
  const cJSON *saves = json_reader_raw(reader, "saves"), *item;
  RecordedOp *r = &s->recorded;
  r->kept = json_reader_int(reader, "kept", 0, 0, BUILDER_MOST_ELEMENTS);
  if (r->kept > 0 && s->outs >= OP_OUTPUTS)
    json_reader_fail(reader, "kept", "there are %d results already", OP_OUTPUTS);
  if (saves == NULL)
    return;
  gboolean good = cJSON_IsArray(saves);
  cJSON_ArrayForEach(item, saves)
  {
    guint8 buffer = 0;
    good = good && r->saves < OP_SAVED - 1 && cJSON_IsString(item) &&
           read_saved(item->valuestring, s, &buffer);
    if (!good)
      break;
    r->saved[r->saves++] = buffer;
  }
  if (!good)
    json_reader_fail(reader, "saves", "at most %d of in0, in1, ... and out0, out1, ... are needed",
                     OP_SAVED - 1);
}

/* Temporaries of a backward, numbered as they are written. */
typedef struct {
  gboolean there[256];
  gboolean has_grad[OP_INPUTS];
  int count;
} Temporaries;

static gboolean
accept_step(Temporaries *t, const OpsStatement *s, const RecordedStep *step)
{
  switch ((RecordedAction) step->action) {
  case RECORDED_GRAD:
  case RECORDED_PASS:
    if (step->index >= s->ins || t->has_grad[step->index])
      return FALSE;
    t->has_grad[step->index] = TRUE;
    return TRUE;
  case RECORDED_TEMP:
    if (step->index >= OP_TEMPS || t->there[step->index] || t->count >= OP_TEMPS - 4)
      return FALSE;
    t->there[step->index] = TRUE;
    t->count++;
    return TRUE;
  case RECORDED_RELEASE:
    if (step->index >= OP_TEMPS || !t->there[step->index])
      return FALSE;
    t->there[step->index] = FALSE;
    t->count--;
    return TRUE;
  }
  return FALSE;
}

/* ["grad", operand], ["pass", operand], ["temp", number, bytes] or ["release", number]. */
static gboolean
read_step(const cJSON *item, RecordedStep *step)
{
  static const char *const names[] = {"grad", "pass", "temp", "release"};
  const cJSON *name = cJSON_GetArrayItem(item, 0), *index = cJSON_GetArrayItem(item, 1);
  const cJSON *bytes = cJSON_GetArrayItem(item, 2);
  if (!cJSON_IsArray(item) || !cJSON_IsString(name) || !cJSON_IsNumber(index))
    return FALSE;
  guint action = 0;
  while (action < G_N_ELEMENTS(names) && strcmp(name->valuestring, names[action]) != 0)
    action++;
  gboolean sized = action == RECORDED_TEMP;
  if (action == G_N_ELEMENTS(names) || index->valuedouble < 0 || index->valuedouble > 255 ||
      cJSON_GetArraySize(item) != (sized ? 3 : 2))
    return FALSE;
  if (sized && (!cJSON_IsNumber(bytes) || bytes->valuedouble < 1 ||
                bytes->valuedouble > 8.0 * (double) BUILDER_MOST_ELEMENTS))
    return FALSE;
  *step = (RecordedStep){.action = (guint8) action,
                         .index = (guint8) index->valuedouble,
                         .bytes = sized ? (gint64) bytes->valuedouble : 0};
  return TRUE;
}

static void
read_backward(JsonReader *reader, OpsStatement *s)
{
  const cJSON *steps = json_reader_raw(reader, "backward"), *item;
  Temporaries temporaries = {.count = 0};
  gboolean good =
      steps == NULL || (cJSON_IsArray(steps) && cJSON_GetArraySize(steps) <= MOST_BACKWARD);
  s->backward = g_array_new(FALSE, FALSE, sizeof(RecordedStep));
  if (good && steps != NULL)
    cJSON_ArrayForEach(item, steps)
    {
      RecordedStep step = {0};
      good = good && read_step(item, &step) && accept_step(&temporaries, s, &step);
      if (!good)
        break;
      g_array_append_val(s->backward, step);
    }
  if (!good || temporaries.count > 0)
    json_reader_fail(reader, "backward",
                     "steps are [\"grad\", operand], [\"pass\", operand], [\"temp\", number, "
                     "bytes] and [\"release\", number], each gradient once and each temporary "
                     "released");
}

void
ops_recorded_read(JsonReader *reader, OpsStatement *s)
{
  read_views(reader, s);
  read_saves(reader, s);
  read_backward(reader, s);
  s->recorded.flops = json_reader_double(reader, "flops", 0, 0, 1e24);
}

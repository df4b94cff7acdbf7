/* kineto_event.c - one event of a Kineto trace: the keys that matter, in the spellings that
 * versions of PyTorch have had. */
#include "import/kineto_internal.h"

#include <math.h>
#include <string.h>

#include "spec/dtype.h"

/* Shapes of an op with lists of thousands of parameters are as long as a page. */
#define SHAPES_SHOWN 160

/* The event's texts, all of them. */
enum { TEXTS = 14 };
static void
texts_of(KinetoEvent *event, GString **texts[TEXTS])
{
  KinetoDetails *details = &event->details;
  GString **all[TEXTS] = {
      &event->name,       &event->process,         &event->thread,   &event->shapes,
      &event->types,      &event->collective,      &event->type,     &details->track,
      &details->group,    &details->group_purpose, &details->module, &details->phase,
      &details->category, &details->what};
  memcpy(texts, all, sizeof(all));
}

static const KinetoDetails no_details = {
    .device_type = -1,
    .device = -1,
    .address = -1,
    .allocated = -1,
    .reserved = -1,
    .requested = -1,
    .stream = -1,
    .source = -1,
    .record = -1,
    .micro_batch = -1,
    .flops = -1,
    .step = -1,
    .retries = -1,
    .done = -1,
    .at = -1,
    .alone = -1,
    .arrived = -1,
};

void
kineto_event_init(KinetoEvent *event)
{
  GString **texts[TEXTS];
  *event = (KinetoEvent){.details = no_details};
  texts_of(event, texts);
  for (guint i = 0; i < TEXTS; i++)
    *texts[i] = g_string_new(NULL);
}

void
kineto_event_clear(KinetoEvent *event)
{
  GString **texts[TEXTS];
  texts_of(event, texts);
  for (guint i = 0; i < TEXTS; i++)
    g_string_free(*texts[i], TRUE);
}

static void
reset(KinetoEvent *event)
{
  KinetoEvent empty = {.stride = 1, .details = no_details};
  GString **old[TEXTS], **fresh[TEXTS];
  texts_of(event, old);
  texts_of(&empty, fresh);
  for (guint i = 0; i < TEXTS; i++) {
    *fresh[i] = *old[i];
    g_string_truncate(*fresh[i], 0);
  }
  for (guint i = 0; i < KINETO_ARGUMENTS; i++)
    empty.arguments[i].dtype = -1;
  *event = empty;
}

int
kineto_dtype(const char *type)
{
  static const struct {
    const char *type;
    DType dtype;
  } types[] = {
      {"float", DTYPE_FP32},          {"c10::BFloat16", DTYPE_BF16},
      {"BFloat16", DTYPE_BF16},       {"c10::Half", DTYPE_FP16},
      {"Half", DTYPE_FP16},           {"long int", DTYPE_INT64},
      {"long", DTYPE_INT64},          {"int", DTYPE_INT32},
      {"unsigned char", DTYPE_UINT8}, {"Byte", DTYPE_UINT8},
      {"bool", DTYPE_BOOL},           {"c10::complex<float>", DTYPE_COMPLEX64},
  };
  for (guint i = 0; i < G_N_ELEMENTS(types); i++)
    if (g_ascii_strcasecmp(type, types[i].type) == 0)
      return types[i].dtype;
  return -1;
}

/* ---- scalars ---- */

/* A text or a number as text; NULL: anything else. */
static gboolean
read_scalar(JsonPull *pull, const char **text)
{
  int first = json_pull_peek(pull);
  *text = NULL;
  if (first == '"')
    return json_pull_string(pull, text);
  if (first == '-' || (first >= '0' && first <= '9'))
    return json_pull_number(pull, text);
  return json_pull_skip(pull);
}

/* "pid" and "tid" are numbers or texts ("stream 7"), by version. */
static gboolean
read_text(JsonPull *pull, GString *into)
{
  const char *text;
  if (!read_scalar(pull, &text))
    return FALSE;
  g_string_assign(into, text != NULL ? text : "");
  return TRUE;
}

/* A whole number, also as text; anything else leaves the value. */
static gboolean
read_int(JsonPull *pull, gint64 *value)
{
  const char *text;
  if (!read_scalar(pull, &text))
    return FALSE;
  char *end = NULL;
  gint64 number = text != NULL ? g_ascii_strtoll(text, &end, 10) : 0;
  if (text != NULL && end != text && *end == '\0')
    *value = number;
  return TRUE;
}

/* Microseconds with a fraction, exactly: a double has no nanoseconds at today's date. */
static gboolean
read_time(JsonPull *pull, gint64 *ns)
{
  const char *text;
  if (json_pull_peek(pull) == '"' ? !json_pull_string(pull, &text) : !json_pull_number(pull, &text))
    return FALSE;
  char *end;
  gint64 whole = g_ascii_strtoll(text, &end, 10);
  if (end == text)
    return json_pull_fail(pull, "'%s' is no time in microseconds", text);
  gint64 fraction = 0;
  if (*end == '.') {
    gint64 unit = 100;
    for (end++; g_ascii_isdigit(*end); end++, unit /= 10)
      fraction += unit * (*end - '0');
  }
  if (*end != '\0') {
    double us = g_ascii_strtod(text, &end);
    if (*end != '\0' || !(fabs(us) < 4e15))
      return json_pull_fail(pull, "'%s' is no time in microseconds", text);
    *ns = (gint64) (us * 1e3);
    return TRUE;
  }
  if (whole > (gint64) 4e15 || whole < (gint64) -4e15)
    return json_pull_fail(pull, "'%s' is no time in microseconds", text);
  *ns = whole * 1000 + (text[0] == '-' ? -fraction : fraction);
  return TRUE;
}

/* ---- shapes and types ---- */

/* The rest of a list that was entered: numbers are dimensions, lists are tensors of a list.  As
 * deep as JSON may be. */
static gboolean
read_dimensions(JsonPull *pull, KinetoArgument *argument, GString *text, int depth)
{
  double elements = 1;
  guint n = 0;
  g_string_append_c(text, '[');
  for (gboolean first = TRUE; json_pull_element(pull); first = FALSE) {
    gint64 dimension = -1;
    if (!first)
      g_string_append_c(text, ',');
    if (json_pull_peek(pull) == '[') {
      argument->is_list = TRUE;
      json_pull_array(pull);
      read_dimensions(pull, argument, text, depth + 1);
      continue;
    }
    if (!read_int(pull, &dimension))
      return FALSE;
    g_string_append_printf(text, "%" G_GINT64_FORMAT, dimension);
    if (depth == 0 && n < KINETO_DIMS)
      argument->dims[n] = dimension;
    n++;
    elements *= MAX((double) dimension, 0);
  }
  g_string_append_c(text, ']');
  if (n > 0)
    argument->elements += elements;
  argument->n_dims = depth == 0 && n <= KINETO_DIMS ? n : argument->n_dims;
  return pull->error == NULL;
}

/* Long texts are cut, and stay different from each other. */
static void
shorten(GString *text)
{
  while (text->len >= 3 && g_str_has_suffix(text->str, " []"))
    g_string_truncate(text, text->len - 3);
  if (g_str_equal(text->str, "[]"))
    g_string_truncate(text, 0);
  if (text->len <= SHAPES_SHOWN)
    return;
  guint number = g_str_hash(text->str);
  g_string_truncate(text, SHAPES_SHOWN);
  g_string_append_printf(text, "... #%08x", number);
}

static gboolean
read_shapes(JsonPull *pull, KinetoEvent *event)
{
  if (json_pull_peek(pull) != '[')
    return json_pull_skip(pull);
  json_pull_array(pull);
  g_string_truncate(event->shapes, 0);
  event->n_arguments = 0;
  while (json_pull_element(pull)) {
    KinetoArgument unused = {0};
    KinetoArgument *argument = &unused;
    if (event->n_arguments < KINETO_ARGUMENTS) {
      argument = &event->arguments[event->n_arguments++];
      *argument = (KinetoArgument){.dtype = argument->dtype};
    }
    if (event->shapes->len > 0)
      g_string_append_c(event->shapes, ' ');
    if (json_pull_peek(pull) != '[') {
      g_string_append(event->shapes, "[]");
      json_pull_skip(pull);
      continue;
    }
    json_pull_array(pull);
    if (!read_dimensions(pull, argument, event->shapes, 0))
      return FALSE;
  }
  shorten(event->shapes);
  return TRUE;
}

static gboolean
read_types(JsonPull *pull, KinetoEvent *event)
{
  if (json_pull_peek(pull) != '[')
    return json_pull_skip(pull);
  json_pull_array(pull);
  g_string_truncate(event->types, 0);
  for (guint i = 0; json_pull_element(pull); i++) {
    const char *type = "";
    gboolean is_text = json_pull_peek(pull) == '"';
    if (is_text ? !json_pull_string(pull, &type) : !json_pull_skip(pull))
      return FALSE;
    if (i > 0)
      g_string_append_c(event->types, ',');
    g_string_append(event->types, type);
    if (i < KINETO_ARGUMENTS)
      event->arguments[i].dtype = kineto_dtype(type);
  }
  shorten(event->types);
  return TRUE;
}

/* "[0, 8, 16, ...]": how far its first two ranks are apart. */
static gboolean
read_ranks(JsonPull *pull, KinetoEvent *event)
{
  const char *text;
  if (json_pull_peek(pull) != '"')
    return json_pull_skip(pull);
  if (!json_pull_string(pull, &text))
    return FALSE;
  char *end;
  text += strspn(text, "[ ");
  gint64 first = g_ascii_strtoll(text, &end, 10);
  if (end == text || *end != ',')
    return TRUE;
  text = end + 1;
  gint64 second = g_ascii_strtoll(text, &end, 10);
  if (end != text && first >= 0 && second > first && second < 1 << 20)
    event->stride = second - first;
  return TRUE;
}

/* ---- keys ---- */

/* A time like the event's own; what is none leaves it. */
static gboolean
read_moment(JsonPull *pull, SimTime *time)
{
  int first = json_pull_peek(pull);
  return first >= '0' && first <= '9' ? read_time(pull, time) : json_pull_skip(pull);
}

/* *known: FALSE when the key is no detail, and nothing was read. */
static gboolean
read_detail(JsonPull *pull, KinetoDetails *details, const char *key, gboolean *known)
{
  const struct {
    const char *key;
    gint64 *value;
  } numbers[] = {
      {"Device Type", &details->device_type},
      {"Device Id", &details->device},
      {"Addr", &details->address},
      {"Total Allocated", &details->allocated},
      {"Total Reserved", &details->reserved},
      {"requested", &details->requested},
      {"stream", &details->stream},
      {"wait_on_stream", &details->source},
      {"wait_on_cuda_event_record_corr_id", &details->record},
      {"micro_batch", &details->micro_batch},
      {"flops", &details->flops},
      {"step", &details->step},
      {"allocator_retries", &details->retries},
  };
  const struct {
    const char *key;
    SimTime *time;
  } times[] = {{"done", &details->done},
               {"at", &details->at},
               {"alone", &details->alone},
               {"arrived", &details->arrived}};
  const struct {
    const char *key;
    GString *text;
  } texts[] = {
      {"name", details->track},    {"Process Group Name", details->group},
      {"module", details->module}, {"Process Group Description", details->group_purpose},
      {"phase", details->phase},   {"category", details->category},
      {"what", details->what},
  };
  for (guint i = 0; i < G_N_ELEMENTS(numbers); i++)
    if (g_str_equal(key, numbers[i].key))
      return read_int(pull, numbers[i].value);
  for (guint i = 0; i < G_N_ELEMENTS(times); i++)
    if (g_str_equal(key, times[i].key))
      return read_moment(pull, times[i].time);
  for (guint i = 0; i < G_N_ELEMENTS(texts); i++)
    if (g_str_equal(key, texts[i].key)) {
      details->has_module |= texts[i].text == details->module;
      return read_text(pull, texts[i].text);
    }
  *known = FALSE;
  return TRUE;
}

static gboolean
read_argument_key(JsonPull *pull, KinetoEvent *event, const char *key)
{
  const struct {
    const char *key;
    gint64 *value;
  } numbers[] = {
      {"External id", &event->id},
      {"correlation", &event->correlation},
      {"bytes", &event->bytes},
      {"In msg nelems", &event->elements[0]},
      {"Out msg nelems", &event->elements[1]},
      {"Group size", &event->ranks},
  };
  /* Some were written in small letters once. */
  for (guint i = 0; i < G_N_ELEMENTS(numbers); i++)
    if (g_ascii_strcasecmp(key, numbers[i].key) == 0)
      return read_int(pull, numbers[i].value);
  gboolean known = TRUE, ok = read_detail(pull, &event->details, key, &known);
  if (known)
    return ok;
  if (g_ascii_strcasecmp(key, "Input Dims") == 0)
    return read_shapes(pull, event);
  if (g_ascii_strcasecmp(key, "Input type") == 0)
    return read_types(pull, event);
  if (g_ascii_strcasecmp(key, "Collective name") == 0)
    return read_text(pull, event->collective);
  if (g_str_equal(key, "dtype"))
    return read_text(pull, event->type);
  if (g_ascii_strcasecmp(key, "Process Group Ranks") == 0)
    return read_ranks(pull, event);
  return json_pull_skip(pull);
}

static gboolean
read_arguments(JsonPull *pull, KinetoEvent *event)
{
  const char *key;
  if (json_pull_peek(pull) != '{')
    return json_pull_skip(pull);
  json_pull_object(pull);
  while (json_pull_key(pull, &key) && read_argument_key(pull, event, key))
    continue;
  return pull->error == NULL;
}

static gboolean
read_category(JsonPull *pull, KinetoEvent *event)
{
  static const struct {
    const char *category;
    KinetoEventKind kind;
  } categories[] = {
      {"cpu_op", KINETO_EVENT_OP},
      {"Operator", KINETO_EVENT_OP},
      {"cuda_runtime", KINETO_EVENT_LAUNCH},
      {"Runtime", KINETO_EVENT_LAUNCH},
      {"cuda_driver", KINETO_EVENT_LAUNCH},
      {"hip_runtime", KINETO_EVENT_LAUNCH},
      {"kernel", KINETO_EVENT_KERNEL},
      {"gpu_memcpy", KINETO_EVENT_COPY},
      {"Memcpy", KINETO_EVENT_COPY},
      {"gpu_memset", KINETO_EVENT_FILL},
      {"Memset", KINETO_EVENT_FILL},
      {"user_annotation", KINETO_EVENT_ANNOTATION},
      {"python_function", KINETO_EVENT_PYTHON},
      {"cuda_sync", KINETO_EVENT_SYNC},
  };
  const char *category;
  if (json_pull_peek(pull) != '"')
    return json_pull_skip(pull);
  if (!json_pull_string(pull, &category))
    return FALSE;
  for (guint i = 0; i < G_N_ELEMENTS(categories); i++)
    if (g_ascii_strcasecmp(category, categories[i].category) == 0)
      event->kind = categories[i].kind;
  return TRUE;
}

static gboolean
read_phase(JsonPull *pull, KinetoEvent *event)
{
  const char *phase;
  if (!json_pull_string(pull, &phase))
    return FALSE;
  event->phase = phase[0];
  event->complete = g_str_equal(phase, "X");
  return TRUE;
}

static gboolean
read_key(JsonPull *pull, KinetoEvent *event, const char *key)
{
  if (g_str_equal(key, "ph"))
    return read_phase(pull, event);
  if (g_str_equal(key, "cat"))
    return read_category(pull, event);
  if (g_str_equal(key, "name"))
    return read_text(pull, event->name);
  if (g_str_equal(key, "pid"))
    return read_text(pull, event->process);
  if (g_str_equal(key, "tid"))
    return read_text(pull, event->thread);
  if (g_str_equal(key, "ts")) {
    event->timed = TRUE;
    return read_time(pull, &event->begin);
  }
  if (g_str_equal(key, "dur"))
    return read_time(pull, &event->length);
  if (g_str_equal(key, "args"))
    return read_arguments(pull, event);
  return json_pull_skip(pull);
}

gboolean
kineto_event_read(KinetoEvent *event, JsonPull *pull)
{
  const char *key;
  reset(event);
  json_pull_object(pull);
  while (json_pull_key(pull, &key) && read_key(pull, event, key))
    continue;
  if (pull->error != NULL)
    return FALSE;
  if (event->kind != KINETO_EVENT_OTHER && event->kind <= KINETO_EVENT_FILL && event->complete) {
    if (!event->timed)
      return json_pull_fail(pull, "event '%s' has no time 'ts'", event->name->str);
    if (event->length < 0)
      return json_pull_fail(pull, "event '%s' has a negative duration", event->name->str);
  }
  return TRUE;
}

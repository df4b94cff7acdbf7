/* kineto_document.c - a trace's file: the events one after another, and what stands around them. */
#include "import/kineto_internal.h"

#include <string.h>

typedef struct {
  KinetoDocument *document;
  JsonPull pull;
  KinetoEvent event;
  gboolean has_events, has_kernels;
} Reader;

static gboolean
read_events(Reader *reader)
{
  KinetoDocument *document = reader->document;
  reader->has_events = TRUE;
  json_pull_array(&reader->pull);
  while (json_pull_element(&reader->pull) && kineto_event_read(&reader->event, &reader->pull) &&
         document->keep(document->user, &reader->event, &reader->pull))
    reader->has_kernels |= reader->event.complete && kineto_event_is_work(&reader->event);
  return reader->pull.error == NULL;
}

/* ---- what stands around them ---- */

static gboolean
read_whole(Reader *reader, gint64 *value)
{
  int first = json_pull_peek(&reader->pull);
  const char *text;
  if (first != '-' && !(first >= '0' && first <= '9'))
    return json_pull_skip(&reader->pull);
  if (!json_pull_number(&reader->pull, &text))
    return FALSE;
  *value = g_ascii_strtoll(text, NULL, 10);
  return TRUE;
}

static gboolean
read_name(Reader *reader, char *into, gsize size)
{
  const char *text;
  if (json_pull_peek(&reader->pull) != '"')
    return json_pull_skip(&reader->pull);
  if (!json_pull_string(&reader->pull, &text))
    return FALSE;
  g_strlcpy(into, text, size);
  return TRUE;
}

/* One GPU of the machine; they are alike, and the first is kept. */
static gboolean
read_device(Reader *reader)
{
  KinetoMachine device = {0};
  gint64 major = 0, minor = 0;
  const char *key;
  json_pull_object(&reader->pull);
  while (json_pull_key(&reader->pull, &key)) {
    if (g_str_equal(key, "name"))
      read_name(reader, device.device, sizeof(device.device));
    else if (g_str_equal(key, "totalGlobalMem"))
      read_whole(reader, &device.memory_bytes);
    else if (g_str_equal(key, "outside_allocator_bytes"))
      read_whole(reader, &device.outside_bytes);
    else if (g_str_equal(key, "computeMajor"))
      read_whole(reader, &major);
    else if (g_str_equal(key, "computeMinor"))
      read_whole(reader, &minor);
    else if (g_str_equal(key, "numSms"))
      read_whole(reader, &device.sms);
    else if (g_str_equal(key, "maxThreadsPerMultiprocessor"))
      read_whole(reader, &device.max_threads_per_sm);
    else
      json_pull_skip(&reader->pull);
  }
  KinetoMachine *machine = reader->document->machine;
  if (machine->device[0] != '\0' || device.device[0] == '\0')
    return TRUE;
  memcpy(machine->device, device.device, sizeof(device.device));
  machine->memory_bytes = CLAMP(device.memory_bytes, 0, (gint64) 1 << 50);
  machine->outside_bytes = device.outside_bytes;
  machine->sms = CLAMP(device.sms, 0, 100000);
  machine->max_threads_per_sm = CLAMP(device.max_threads_per_sm, 0, 100000);
  machine->compute_capability = CLAMP(major, 0, 100) * 10 + CLAMP(minor, 0, 9);
  return TRUE;
}

static gboolean
read_devices(Reader *reader)
{
  KinetoMachine *machine = reader->document->machine;
  gint64 devices = 0;
  json_pull_array(&reader->pull);
  while (json_pull_element(&reader->pull) && read_device(reader))
    devices++;
  machine->devices = MAX(machine->devices, devices);
  return TRUE;
}

static gboolean
read_job(Reader *reader)
{
  KinetoMachine *machine = reader->document->machine;
  gint64 ranks = 0;
  const char *key;
  if (json_pull_peek(&reader->pull) != '{')
    return json_pull_skip(&reader->pull);
  json_pull_object(&reader->pull);
  while (json_pull_key(&reader->pull, &key)) {
    if (g_str_equal(key, "world_size"))
      read_whole(reader, &ranks);
    else if (g_str_equal(key, "rank"))
      read_whole(reader, &machine->rank);
    else if (g_str_equal(key, "nccl_version"))
      read_name(reader, machine->nccl, sizeof(machine->nccl));
    else
      json_pull_skip(&reader->pull);
  }
  machine->world_size = MAX(machine->world_size, CLAMP(ranks, 0, 1 << 20));
  return TRUE;
}

/* 12060 is CUDA 12.6. */
static gboolean
read_runtime(Reader *reader)
{
  KinetoMachine *machine = reader->document->machine;
  gint64 version = 0;
  read_whole(reader, &version);
  if (version > 0 && version < 1000000)
    g_snprintf(machine->runtime, sizeof(machine->runtime), "%d.%d", (int) version / 1000,
               (int) version % 1000 / 10);
  return TRUE;
}

static gboolean
read_base(Reader *reader)
{
  return read_whole(reader, &reader->document->base_ns);
}

static gboolean
read_title(Reader *reader)
{
  return read_name(reader, reader->document->title, sizeof(reader->document->title));
}

static gboolean
read_document(Reader *reader)
{
  static const struct {
    const char *key;
    gboolean (*read)(Reader *reader);
  } sections[] = {
      {"traceEvents", read_events},       {"deviceProperties", read_devices},
      {"distributedInfo", read_job},      {"cuda_runtime_version", read_runtime},
      {"baseTimeNanoseconds", read_base}, {"traceName", read_title},
  };
  JsonPull *pull = &reader->pull;
  const char *key;
  if (json_pull_peek(pull) == '[')
    return read_events(reader) && json_pull_end(pull);
  json_pull_object(pull);
  while (json_pull_key(pull, &key)) {
    guint i = 0;
    while (i < G_N_ELEMENTS(sections) && !g_str_equal(key, sections[i].key))
      i++;
    if (i < G_N_ELEMENTS(sections) ? !sections[i].read(reader) : !json_pull_skip(pull))
      return FALSE;
  }
  if (pull->error == NULL && !reader->has_events)
    return json_pull_fail(pull, "no key 'traceEvents': not a trace of PyTorch's profiler");
  return json_pull_end(pull);
}

/* TRUE when all that is wrong is that the input ends too early, with something in it by then. */
static gboolean
was_cut(Reader *reader)
{
  ByteSource *source = reader->pull.source;
  gboolean over = source->error != NULL ? source->cut : byte_source_peek(source) < 0;
  return reader->has_events && over && reader->has_kernels;
}

static gboolean
read_file(Reader *reader, GError **error)
{
  ByteSource *source = reader->pull.source;
  gboolean ok = read_document(reader);
  if (!ok && was_cut(reader)) {
    g_ptr_array_add(reader->document->notes,
                    g_strdup_printf("%s: cut short at byte %" G_GUINT64_FORMAT
                                    ": what stands before is used",
                                    source->name, byte_source_position(source)));
    return TRUE;
  }
  return json_pull_ok(&reader->pull, error);
}

gboolean
kineto_document_read(KinetoDocument *document, ByteSource *source, GError **error)
{
  Reader reader = {.document = document};
  document->base_ns = -1;
  json_pull_init(&reader.pull, source);
  /* Bandwidths of copies in no time are "inf", file names of Windows have single backslashes. */
  reader.pull.lenient = TRUE;
  kineto_event_init(&reader.event);
  gboolean ok = read_file(&reader, error);
  kineto_event_clear(&reader.event);
  json_pull_clear(&reader.pull);
  return ok;
}

/* fuzz_kineto.c - any bytes as a trace of PyTorch's profiler: what is read has runs that add up,
 * and is fitted and printed; what it makes a Recording of holds
 * together. */
#include <cjson/cJSON.h>

#include "calibrate/fit_device.h"
#include "calibrate/measured_collectives.h"
#include "calibrate/traced_ops.h"
#include "calibrate/traced_report.h"
#include "fuzz.h"
#include "import/kineto_recording.h"

static const ClusterSpec *
base_cluster(void)
{
  static ClusterSpec *cluster;
  if (cluster == NULL)
    cluster = cluster_spec_load("h100-8", NULL);
  g_assert(cluster != NULL);
  return cluster;
}

/* Every kernel is in one run: that of a row or of a collective. */
static void
count_kernels(const KinetoTrace *trace)
{
  guint64 kernels = 0;
  for (guint i = 0; i < trace->rows->len; i++) {
    const KinetoRow *row = g_ptr_array_index(trace->rows, i);
    g_assert(row->kernels >= (gint64) row->runs->len);
    kernels += (guint64) row->kernels;
  }
  for (guint i = 0; i < trace->collectives->len; i++)
    kernels += ((const KinetoCollective *) g_ptr_array_index(trace->collectives, i))->runs->len;
  g_assert(kernels == trace->kernels);
}

/* The import checks what it made; what is drawn and summed up of it must have a place. */
static void
make_recording(const guint8 *data, gsize size)
{
  g_autoptr(ByteSource) source = byte_source_from_memory("fuzz", data, size);
  g_autoptr(KinetoAbout) about = kineto_about_new();
  g_autoptr(GError) error = NULL;
  g_autoptr(Recording) recording = kineto_recording_read(source, -1, about, &error);
  g_assert((recording == NULL) == (error != NULL));
  for (guint i = 0; recording != NULL && i < recording->steps->len; i++)
    g_assert(recording_step_duration(recording, i) >= 0);
}

int
LLVMFuzzerTestOneInput(const guint8 *data, gsize size)
{
  make_recording(data, size);
  g_autoptr(ByteSource) source = byte_source_from_memory("fuzz", data, size);
  g_autoptr(KinetoTrace) trace = kineto_trace_new();
  g_autoptr(GError) error = NULL;
  kineto_trace_recognized((const char *) data, size);
  gboolean ok = kineto_trace_read(trace, source, &error);
  g_assert(ok == (error == NULL));
  if (!ok)
    return 0;
  count_kernels(trace);
  g_autoptr(Measurements) measured = traced_measurements(trace, (TracedJob){0});
  g_autoptr(GArray) constants = fit_device(base_cluster()->device, measured);
  g_autoptr(GPtrArray) collectives = measured_collectives(measured, base_cluster(), "fuzz");
  g_assert(constants->len > 0 && collectives->len <= measured->measurements->len);
  g_autoptr(GString) out = g_string_new(NULL);
  traced_report_text(trace, out);
  cJSON *object = cJSON_CreateObject();
  traced_report_json(trace, object);
  cJSON_Delete(object);
  return 0;
}

/* fuzz_measurements.c - any bytes as stored samples: what is read is printed, read and fitted. */
#include <string.h>

#include "calibrate/fit_device.h"
#include "calibrate/measurement_report.h"
#include "calibrate/measurements_file.h"
#include "fuzz.h"

static const DeviceProfile *
base_device(void)
{
  static DeviceProfile *device;
  if (device == NULL)
    device = device_profile_load("h100-sxm-80gb", NULL);
  g_assert(device != NULL);
  return device;
}

int
LLVMFuzzerTestOneInput(const guint8 *data, gsize size)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(Measurements) all = measurements_parse("fuzz", (const char *) data, size, &error);
  g_assert((all == NULL) == (error != NULL));
  if (all == NULL)
    return 0;
  g_autofree char *text = measurements_print(all, "today");
  g_autoptr(Measurements) again = measurements_parse("again", text, strlen(text), NULL);
  g_assert(again != NULL && again->measurements->len == all->measurements->len);
  g_autoptr(GArray) constants = fit_device(base_device(), all);
  g_autoptr(GString) out = g_string_new(NULL);
  measurement_report_text(&(MeasurementReport){all, constants, NULL, "base"}, out);
  return 0;
}

/* collectives_table.c - measured collectives and the lines fitted to them, as a table. */
#include "calibrate/collectives_table.h"
#include "base/output_file.h"
#include "report/table_text.h"
#include <math.h>

/* Sizes at which a fit is told: so many an octave. */
enum { FITS_AN_OCTAVE = 8 };

static void
append_number(GString *out, double number)
{
  char text[G_ASCII_DTOSTR_BUF_SIZE];
  g_string_append_printf(out, " %s", g_ascii_formatd(text, sizeof text, "%.7g", number));
}

static void
append_about(const CalibratedCollective *collective, guint number, GString *out)
{
  const MeasuredCollective *about = &collective->about;
  g_string_append_printf(out, "%u %s %d %d %u %s", number, about->collective, about->ranks,
                         about->nodes, collective->samples->len,
                         fit_model_names[collective->fit.model]);
  append_number(out, collective->errors.median);
  append_number(out, collective->errors.worst);
  g_string_append_c(out, ' ');
  g_autofree char *name = g_path_get_basename(about->source ? about->source : "-");
  table_word(out, name);
  g_string_append_c(out, '\n');
}

/* Bus bandwidth as nccl-tests counts it. */
static void
append_row(const CalibratedCollective *collective, guint number, gint64 bytes, double time_us,
           GString *out)
{
  g_string_append_printf(out, "%u %" G_GINT64_FORMAT, number, bytes);
  append_number(out, time_us);
  append_number(out, collective->factor * (double) bytes / time_us * 1e-3);
  g_string_append_c(out, '\n');
}

static void
append_points(const CalibratedCollective *collective, guint number, GString *out)
{
  for (guint i = 0; i < collective->samples->len; i++) {
    const FitSample *sample = &g_array_index(collective->samples, FitSample, i);
    append_row(collective, number, sample->bytes, sample->time_us, out);
  }
}

/* From the least to the largest size that was measured. */
static void
append_fits(const CalibratedCollective *collective, guint number, GString *out)
{
  const GArray *samples = collective->samples;
  gint64 least = g_array_index(samples, FitSample, 0).bytes;
  gint64 largest = g_array_index(samples, FitSample, samples->len - 1).bytes;
  int steps = (int) ceil(log2((double) largest / (double) least) * FITS_AN_OCTAVE);
  for (int i = 0; i <= steps; i++) {
    gint64 bytes = (gint64) ((double) least * exp2((double) i / FITS_AN_OCTAVE));
    bytes = i == steps ? largest : MIN(bytes, largest);
    append_row(collective, number, bytes, fit_time_us(&collective->fit, bytes), out);
  }
}

void
collectives_table(const GPtrArray *collectives, GString *out)
{
  table_begin(out, COLLECTIVES_FORMAT, "measured collectives");
  table_block(out, "tables",
              "table collective ranks nodes points model median_error worst_error source");
  for (guint i = 0; i < collectives->len; i++)
    append_about(collectives->pdata[i], i, out);
  table_block(out, "points", "table bytes time_us bus_bandwidth_GBps");
  for (guint i = 0; i < collectives->len; i++)
    append_points(collectives->pdata[i], i, out);
  table_block(out, "fits", "table bytes time_us bus_bandwidth_GBps");
  for (guint i = 0; i < collectives->len; i++)
    append_fits(collectives->pdata[i], i, out);
  table_end(out);
}

gboolean
collectives_table_write(const GPtrArray *collectives, const char *path, GError **error)
{
  g_autoptr(GString) text = g_string_new(NULL);
  collectives_table(collectives, text);
  return output_file_write(path, text->str, text->len, error);
}

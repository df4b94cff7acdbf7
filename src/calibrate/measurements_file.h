/* measurements_file.h - measurements with all their samples, stored: to look at, and to fit again.
 */
#ifndef HIGHWATER_CALIBRATE_MEASUREMENTS_FILE_H
#define HIGHWATER_CALIBRATE_MEASUREMENTS_FILE_H

#include "calibrate/measure.h"

#define MEASUREMENTS_FORMAT "highwater-measurements-1"

/* The file's text; date as it shall stand there ("2026-11-30").  Caller frees. */
char *measurements_print(const Measurements *measurements, const char *date);
/* TRUE when the text names the format in its first lines. */
gboolean measurements_recognized(const char *text, gsize length);
/* NULL and error ("NAME: key 'experiments[3].kind': ...") when it is malformed. */
Measurements *measurements_parse(const char *name, const char *text, gsize length, GError **error);

#endif

/* collectives_table.h - measured collectives and the lines fitted to them, as a table for figures.
 */
#ifndef HIGHWATER_CALIBRATE_COLLECTIVES_TABLE_H
#define HIGHWATER_CALIBRATE_COLLECTIVES_TABLE_H

#include "calibrate/calibration.h"

#define COLLECTIVES_FORMAT "highwater-collectives-1"

/* Appends blocks "tables", "points" and "fits" (doc/formats.md) of CalibratedCollective. */
void collectives_table(const GPtrArray *collectives, GString *out);

/* The same into a file, whole or not at all. */
gboolean collectives_table_write(const GPtrArray *collectives, const char *path, GError **error);

#endif

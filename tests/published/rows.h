/* rows.h - published measurements as networks, plans and clusters of ours. */
#ifndef HIGHWATER_TESTS_PUBLISHED_ROWS_H
#define HIGHWATER_TESTS_PUBLISHED_ROWS_H

#include <glib.h>

/* A measurement, and what we say it is of. */
typedef struct {
  const char *source;             /* a PublishedSource's name */
  char *label;                    /* what tells it from the source's other rows */
  char *network, *plan, *cluster; /* JSON */
  double measured;                /* tokens per second and GPU */
} PublishedRow;

typedef struct {
  const char *name, *file;
  const char *assumed; /* what the tables do not say, or say otherwise: one line */
  /* Limits that hold, in percent; 0: none. */
  double median, p90, worst;
} PublishedSource;

/* Ends with a NULL name. */
extern const PublishedSource published_sources[];

/* All rows in bf16 that are FSDP, HSDP, ZeRO or DDP alone, of the tables in a folder: PublishedRow,
 * in the order of the sources.  NULL and error when a table cannot be read. */
GArray *published_rows(const char *folder, GError **error);

#endif

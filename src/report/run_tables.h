/* run_tables.h - the tables of a run that figures and readers of columns take, by name.
 *
 * Each is text: a first line "# highwater-NAME-1: TITLE", then blocks of rows, cells separated by
 * one blank (doc/formats.md).  `report --table` prints one, the scripts in plots/ read them. */
#ifndef HIGHWATER_REPORT_RUN_TABLES_H
#define HIGHWATER_REPORT_RUN_TABLES_H

#include "record/recording.h"
#include "report/run_info.h"

/* Which part of the run a table tells; {0} is all of it. */
typedef struct {
  const char *module; /* "layers.3": of tables of one module */
  int step;           /* that step alone; 0: as from and to say */
  SimTime from, to;   /* what lies between these moments; to 0: until the end */
  guint max_rows; /* about so many rows a block, the rest is joined or thinned so that no peak is
                     lost; 0: as many as there are */
} TableView;

typedef struct {
  const char *name, *file; /* "streams", "streams.tsv" */
  const char *summary;     /* one line */
  gboolean of_module;      /* view->module must be given */
  gboolean of_host;        /* a step is over when the host has issued it, not when it is done */
  /* Appends the table.  info may be NULL: what a Recording cannot know is left out.  FALSE and
   * error when the run has nothing to tell in it. */
  gboolean (*write)(const Recording *recording, const RunInfo *info, const TableView *view,
                    GString *out, GError **error);
} RunTable;

/* All of them, ended by one without a name. */
extern const RunTable run_tables[];
/* The table of that name, or an error that lists them. */
const RunTable *run_table_find(const char *name, GError **error);

/* Does the view say less than all of the run? */
gboolean table_view_is_part(const TableView *view);

/* Sets the view's times to those of its step, if it has one and no times yet, in the time that the
 * table tells.  Error: there is no such step. */
gboolean run_table_narrow(const RunTable *table, const Recording *recording, TableView *view,
                          GError **error);

/* Appends a table, after checking that the view has what it needs. */
gboolean run_table_write(const RunTable *table, const Recording *recording, const RunInfo *info,
                         const TableView *view, GString *out, GError **error);

#endif

/* figure_kinds.h - the figures that `highwater plot` draws: what each reads and which options it
 * takes. */
#ifndef HIGHWATER_CLI_FIGURE_KINDS_H
#define HIGHWATER_CLI_FIGURE_KINDS_H

#include "report/gnuplot.h"
#include "report/run_tables.h"

/* Options that only some figures take. */
typedef enum { FIGURE_STEP = 1, FIGURE_TIMES = 2, FIGURE_MODULE = 4 } FigureOptions;

/* What was asked for; borrowed. */
typedef struct {
  char *const *inputs; /* at least one */
  TableView view;
} FigureRequest;

/* The tables that a script reads, in a folder of their own. */
typedef struct {
  char *folder;  /* NULL until there is one */
  GArray *texts; /* FigureText, for the script */
} FigureTables;

void figure_tables_init(FigureTables *tables);
/* Removes the tables and their folder. */
void figure_tables_clear(FigureTables *tables);

typedef struct FigureKind {
  const char *name, *inputs; /* "timeline", "RUN" */
  const char *summary;       /* one line */
  int most_inputs;           /* -1: any number */
  guint options;             /* FigureOptions */
  const char *table;         /* of run_tables, or file of a folder */
  /* Makes the tables.  FALSE and error when the inputs cannot be drawn so. */
  gboolean (*make)(const struct FigureKind *kind, const FigureRequest *request,
                   FigureTables *tables, GError **error);
} FigureKind;

/* All of them, ended by one without a name. */
extern const FigureKind figure_kinds[];
/* The kind of that name, or an error that lists them. */
const FigureKind *figure_kind_find(const char *name, GError **error);

#endif

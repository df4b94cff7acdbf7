/* lifetimes_table.h - when one module's or group's parameters and gradients are there, whole and
 * sharded, and what its collectives and kernels do. */
#ifndef HIGHWATER_REPORT_LIFETIMES_TABLE_H
#define HIGHWATER_REPORT_LIFETIMES_TABLE_H

#include "report/run_tables.h"

#define LIFETIMES_FORMAT "highwater-lifetimes-1"

/* Appends blocks "lanes", "windows", "spans", "held", "level0;"...; see RunTable.  view->module is
 * a group's name, or a module's path, which stands for all under it.  A step that is not given is
 * the last complete one.  Errors: no such module, or nothing of it in this time. */
gboolean lifetimes_table(const Recording *recording, const RunInfo *info, const TableView *view,
                         GString *out, GError **error);

#endif

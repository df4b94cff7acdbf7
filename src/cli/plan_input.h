/* plan_input.h - plans as the command line names them: ours, or other programs' configurations. */
#ifndef HIGHWATER_CLI_PLAN_INPUT_H
#define HIGHWATER_CLI_PLAN_INPUT_H

#include "simulate/scenario.h"

/* As input_text_read for a plan; what became of another program's configuration is printed on
 * standard error. */
gboolean plan_input_read(const char *preset_or_path, InputText *input, GError **error);

/* highwater import plan: writes the plan to a file (NULL: standard output) and prints the note (on
 * standard error where the plan is on standard output).  ranks: 0: as the file says. */
gboolean plan_import(const char *file, const char *output, int ranks, GError **error);

#endif

/* preset.h - where shipped files are found. */
#ifndef HIGHWATER_SPEC_PRESET_H
#define HIGHWATER_SPEC_PRESET_H

#include <glib.h>

/* Folder of one kind ("network", "program", "cluster", "plan", "device", "fabric"):
 * $HIGHWATER_MODELS/KIND if that is set, else the installed PKGDATADIR/KIND if it exists, else
 * models/KIND of the source tree the program was built from.  Caller frees. */
char *preset_folder(const char *kind);
/* FALSE and error when $HIGHWATER_MODELS is set and names no folder. */
gboolean preset_check_models(GError **error);
/* Path of a preset, or of the file itself when it has a '/', ends in ".json" or ".program", or is
 * "-", or when a file of that name is there and no preset.  NULL and an error that names the
 * nearest preset when there is neither.  Caller frees. */
char *preset_find(const char *kind, const char *preset_or_path, GError **error);
/* Names of all presets of a kind, sorted, NULL-terminated.  Free with g_strfreev. */
char **preset_names(const char *kind);
gboolean preset_exists(const char *kind, const char *name);
/* "llama-3-8b" of "models/network/llama-3-8b.json", "stdin" of "-".  Caller frees. */
char *preset_name_of(const char *path);

#endif

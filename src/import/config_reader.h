/* config_reader.h - what the readers of training configurations share: tables of keys, the walk
 * over a file by them, the plan and the note that come of it. */
#ifndef HIGHWATER_IMPORT_CONFIG_READER_H
#define HIGHWATER_IMPORT_CONFIG_READER_H

#include "import/config_tree.h"
#include "import/training_config.h"

typedef struct _ConfigReader ConfigReader;
typedef struct _ConfigRow ConfigRow;

/* What is done with a key; item is its value, never null. */
typedef void (*ConfigAction)(ConfigReader *r, const ConfigRow *row, const char *key,
                             const cJSON *item);

/* A key of theirs.  "optimizer.params.*" stands for all keys below; exact ones come before it. */
struct _ConfigRow {
  const char *key;
  ConfigAction action;
  const char *ours; /* key of the plan, of actions that set one */
  const char *note; /* why, or what about it; may be NULL */
};

/* What all files of one configuration lead to. */
typedef struct {
  cJSON *plan;
  GPtrArray *notes;   /* ConfigNote * */
  GHashTable *origin; /* key of the plan -> "key 'theirs'" */
  const TrainingConfigSettings *settings;
  GError *error; /* the first one */
} ConfigResult;

/* Reads one object of a file. */
struct _ConfigReader {
  const ConfigTree *tree;
  const cJSON *root;
  const char *prefix;    /* the path to root, with its dot; "" */
  const char *strip;     /* a prefix that keys may have or lack ("fsdp_"); NULL */
  const ConfigRow *rows; /* ends with a NULL key */
  ConfigResult *result;
  GHashTable *left; /* cJSON * of root that no note says anything about yet */
};

/* A reader of a part of r's file: root, an object of it, lies under the key.  The same of another
 * file. */
ConfigReader config_reader_part(const ConfigReader *r, const char *prefix, const cJSON *root,
                                const ConfigRow *rows);
/* Applies the rows to every key.  Keys that no row has are refused when they look like one that a
 * row has, and else ignored; those whose action is config_later wait for the reader. */
void config_reader_walk(ConfigReader *r);
/* Says of keys that still wait that they have no effect; frees what the walk made. */
void config_reader_end(ConfigReader *r);

/* ---- actions ---- */

void config_later(ConfigReader *r, const ConfigRow *row, const char *key, const cJSON *item);
void config_ignore(ConfigReader *r, const ConfigRow *row, const char *key, const cJSON *item);
/* Refused where it is on: true, a number above 1, a text but "no", "none" and "disabled". */
void config_refuse_on(ConfigReader *r, const ConfigRow *row, const char *key, const cJSON *item);
/* Refused above zero: of keys that are an amount. */
void config_refuse_positive(ConfigReader *r, const ConfigRow *row, const char *key,
                            const cJSON *item);
/* The same for a section with a key "enabled" or "enable". */
void config_refuse_enabled(ConfigReader *r, const ConfigRow *row, const char *key,
                           const cJSON *item);
/* The plan's key gets the value. */
void config_copy(ConfigReader *r, const ConfigRow *row, const char *key, const cJSON *item);
void config_copy_bool(ConfigReader *r, const ConfigRow *row, const char *key, const cJSON *item);

/* ---- values, by key below root; null counts as absent ---- */

const cJSON *config_get(const ConfigReader *r, const char *key);
gboolean config_has(const ConfigReader *r, const char *key);
gboolean config_is_auto(const ConfigReader *r, const char *key);
/* Also texts that Python's readers take: "true", "5e8".  What is neither is an error; absent and
 * "auto" give the fallback. */
gboolean config_bool(ConfigReader *r, const char *key, gboolean fallback);
double config_number(ConfigReader *r, const char *key, double fallback);
/* Whole, in min..max. */
int config_int(ConfigReader *r, const char *key, int fallback, int min, int max);
/* A number's digits too; the fallback may be NULL.  Valid until the configuration is freed. */
const char *config_text(ConfigReader *r, const char *key, const char *fallback);

/* ---- what becomes of them ---- */

/* The plan's key gets the value, which is taken, because of a key of theirs; format, which may be
 * NULL, is a remark.  Two that disagree are an error. */
void config_use(ConfigReader *r, const char *key, const char *ours, cJSON *value,
                const char *format, ...) G_GNUC_PRINTF(5, 6);
/* Because they leave it open; nothing happens if the plan has the key. */
void config_default(ConfigReader *r, const char *ours, cJSON *value, const char *reason);
/* Sets a key without a word of its own. */
void config_set(ConfigReader *r, const char *ours, cJSON *value);
gboolean config_is_set(const ConfigReader *r, const char *ours);
/* A note without a key of the plan. */
void config_note(ConfigReader *r, ConfigNoteKind kind, const char *key, const char *format, ...)
    G_GNUC_PRINTF(4, 5);
/* "FILE: line L: key 'KEY': MESSAGE"; the first one stays. */
void config_fail(ConfigReader *r, const char *key, const char *format, ...) G_GNUC_PRINTF(3, 4);
gboolean config_failed(const ConfigReader *r);

/* ---- kinds ---- */

typedef struct {
  const char *title;
  const char *const *marks; /* keys at the top that no other kind has */
  void (*read)(ConfigReader *r);
} ConfigKind;

extern const ConfigKind config_kind_accelerate, config_kind_arguments, config_kind_deepspeed,
    config_kind_torchtitan;

#endif

/* training_config.h - the training configurations that people have, read as plans: DeepSpeed's
 * JSON, Hugging Face's TrainingArguments, accelerate's YAML, torchtitan's TOML. */
#ifndef HIGHWATER_IMPORT_TRAINING_CONFIG_H
#define HIGHWATER_IMPORT_TRAINING_CONFIG_H

#include <cjson/cJSON.h>
#include <glib.h>

typedef enum { CONFIG_USED, CONFIG_DEFAULTED, CONFIG_IGNORED } ConfigNoteKind;

/* What became of one key of theirs, or where a key of the plan comes from that they leave open. */
typedef struct {
  ConfigNoteKind kind;
  char *file; /* it stands in */
  guint line; /* 0: not in a file */
  char *key;  /* theirs; ours where it was defaulted */
  char *value;
  char *text; /* what became of it, or why not */
} ConfigNote;

typedef struct {
  const char *title; /* "accelerate", "DeepSpeed" */
  char *name;        /* the file */
  cJSON *plan;
  GPtrArray *notes; /* ConfigNote * */
} TrainingConfig;

/* What the file does not say. */
typedef struct {
  int ranks;            /* 0: not known */
  gboolean reads_files; /* follows the names of other files ("deepspeed_config_file") */
} TrainingConfigSettings;

/* Is the text a training configuration of another program?  FALSE for a plan of ours, and for JSON
 * that is malformed. */
gboolean training_config_is_foreign(const char *text, gsize length);
/* NULL and an error that names file, line and key when it is malformed, contradicts itself, or asks
 * for what is not simulated and changes memory or time. */
TrainingConfig *training_config_read(const char *name, const char *text, gsize length,
                                     const TrainingConfigSettings *settings, GError **error);
void training_config_free(TrainingConfig *config);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(TrainingConfig, training_config_free)

/* The plan as JSON; the note as lines of text.  Caller frees. */
char *training_config_plan(const TrainingConfig *config);
char *training_config_note(const TrainingConfig *config);

/* Begins the line of a comment, and names the key of JSON, in which an exported plan says what the
 * training script gives. */
#define CONFIG_SCRIPT_COMMENT "# highwater: "
#define CONFIG_SCRIPT_KEY "_highwater"

#endif

/* fuzz_training_config.c - any bytes as a training configuration of DeepSpeed, accelerate,
 * torchtitan or TrainingArguments: a plan with a note, or one line that says what is wrong. */
#include "fuzz.h"
#include "import/training_config.h"
#include <string.h>

int
LLVMFuzzerTestOneInput(const guint8 *data, gsize size)
{
  const char *text = size > 0 ? (const char *) data : "";
  const TrainingConfigSettings settings = {.ranks = size % 3 == 0 ? 4 : 0};
  training_config_is_foreign(text, size);
  g_autoptr(GError) error = NULL;
  g_autoptr(TrainingConfig) config = training_config_read("input", text, size, &settings, &error);
  g_assert((config == NULL) == (error != NULL));
  g_assert(config != NULL || strchr(error->message, '\n') == NULL);
  if (config == NULL)
    return 0;
  g_autofree char *plan = training_config_plan(config), *note = training_config_note(config);
  g_assert(plan[0] == '{' && strlen(note) > 0);
  return 0;
}

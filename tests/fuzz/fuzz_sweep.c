/* fuzz_sweep.c - any bytes as the results of a sweep; what follows a zero byte is what is varied
 * (--vary). */
#include <string.h>

#include "fuzz.h"
#include "search/sweep_results.h"

/* Four variants with nothing known of them. */
static Sweep *
sweep_of_four(void)
{
  char *texts[] = {(char *) (gsize) "k=1,2,4,8", NULL};
  Sweep *sweep = g_new0(Sweep, 1);
  sweep->fastest = -1;
  sweep->vary = vary_parse(texts, NULL);
  sweep->variants = g_array_new(FALSE, TRUE, sizeof(SweepVariant));
  for (guint i = 0; i < sweep->vary->count; i++) {
    const SweepVariant variant = {.label = vary_label(sweep->vary, i)};
    g_array_append_val(sweep->variants, variant);
  }
  return sweep;
}

static void
sweep_of_four_free(Sweep *sweep)
{
  for (guint i = 0; i < sweep->variants->len; i++) {
    g_free(sweep_variant(sweep, i)->label);
    outcome_clear(&sweep_variant(sweep, i)->outcome);
  }
  g_array_unref(sweep->variants);
  vary_free(sweep->vary);
  g_free(sweep);
}

/* What was read can be written, and what was written be read. */
static void
check_results(Sweep *sweep, const char *text, gsize length)
{
  gsize whole;
  g_autoptr(GError) error = NULL;
  g_autoptr(GString) lines = g_string_new(NULL);
  gboolean is_read = sweep_results_read(sweep, "input", text, length, &whole, &error);
  g_assert(is_read == (error == NULL));
  g_assert(whole <= length);
  if (!is_read)
    return;
  sweep_judge(sweep);
  sweep_results_json(sweep, lines);
  g_assert(sweep_results_read(sweep, "again", lines->str, lines->len, &whole, NULL));
  g_assert(whole == lines->len);
}

static void
check_vary(const char *text)
{
  char *texts[] = {(char *) (gsize) text, NULL};
  g_autoptr(GError) error = NULL;
  g_autoptr(Vary) vary = vary_parse(texts, &error);
  g_assert((vary == NULL) == (error != NULL));
  for (guint i = 0; vary != NULL && i < MIN(vary->count, 8); i++) {
    g_autofree char *label = vary_label(vary, i);
    g_assert(*label != '\0' && *label != '.' && strcspn(label, " /\n") == strlen(label));
  }
}

int
LLVMFuzzerTestOneInput(const guint8 *data, gsize size)
{
  const guint8 *zero = size > 0 ? memchr(data, 0, size) : NULL;
  gsize length = zero ? (gsize) (zero - data) : size;
  Sweep *sweep = sweep_of_four();
  check_results(sweep, size > 0 ? (const char *) data : "", length);
  sweep_of_four_free(sweep);
  if (zero != NULL) {
    g_autofree char *text = g_strndup((const char *) zero + 1, size - length - 1);
    check_vary(text);
  }
  return 0;
}

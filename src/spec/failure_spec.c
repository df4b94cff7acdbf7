/* failure_spec.c - reads the moment at which a worker fails. */
#include "spec/failure_spec.h"

#include <string.h>

#define STEP_MAX 10000 /* as many as a run may have */

static const char *const phase_names[] = {"zero_grad", "forward",   "backward",
                                          "clip",      "optimizer", NULL};

G_STATIC_ASSERT(G_N_ELEMENTS(phase_names) == FAILURE_PHASES + 1);

const char *
failure_phase_name(FailurePhase phase)
{
  return phase_names[phase];
}

/* A whole number in 0..max. */
static gboolean
read_number(const char *text, int max, int *number)
{
  guint64 value;
  if (!g_ascii_string_to_unsigned(text, 10, 0, (guint64) max, &value, NULL))
    return FALSE;
  *number = (int) value;
  return TRUE;
}

static gboolean
read_fraction(const char *text, double *fraction)
{
  char *end = NULL;
  if (strspn(text, "0123456789.") != strlen(text))
    return FALSE; /* no sign, exponent or name of a number */
  *fraction = g_ascii_strtod(text, &end);
  return end != text && *end == '\0' && *fraction <= 1;
}

/* Names are few and fixed, so a table of the three numbers would be longer than the reading. */
static void
read_moment(JsonReader *failure, const char *text, int micro_batches, FailureSpec *spec)
{
  g_auto(GStrv) words = g_strsplit(text, " ", -1);
  guint n = g_strv_length(words);
  gboolean has_micro_batch = n == 6 && g_str_equal(words[2], "micro_batch");
  if (!(n == 4 || has_micro_batch) || !g_str_equal(words[0], "step")) {
    json_reader_fail(failure, "at",
                     "'%s' is not \"step N PHASE FRACTION\" or \"step N micro_batch M PHASE "
                     "FRACTION\", as in \"step 2 backward 0.4\"",
                     text);
    return;
  }
  const char *phase = words[n - 2], *fraction = words[n - 1];
  if (!read_number(words[1], STEP_MAX, &spec->step) || spec->step == 0)
    json_reader_fail(failure, "at", "step '%s' is not in 1..%d", words[1], STEP_MAX);
  if (has_micro_batch && !read_number(words[3], micro_batches - 1, &spec->micro_batch))
    json_reader_fail(failure, "at", "micro-batch '%s' is not in 0..%d", words[3],
                     micro_batches - 1);
  int found = 0;
  while (found < FAILURE_PHASES && !g_str_equal(phase, phase_names[found]))
    found++;
  g_autofree char *allowed = g_strjoinv(", ", (char **) (gsize) phase_names);
  if (found == FAILURE_PHASES)
    json_reader_fail(failure, "at", "phase '%s' is not one of %s", phase, allowed);
  else if (has_micro_batch && found != FAILURE_FORWARD && found != FAILURE_BACKWARD)
    json_reader_fail(failure, "at", "only forward and backward have micro-batches, not %s", phase);
  else if (!read_fraction(fraction, &spec->fraction))
    json_reader_fail(failure, "at", "'%s' is not a fraction from 0 to 1", fraction);
  spec->phase = (FailurePhase) MIN(found, FAILURE_OPTIMIZER);
}

void
failure_spec_read(JsonReader *plan, int ranks, int micro_batches, FailureSpec *spec)
{
  *spec = (FailureSpec){.given = json_reader_has(plan, "failure")};
  g_autoptr(JsonReader) failure = json_reader_section(plan, "failure");
  if (spec->given) {
    spec->rank = (int) json_reader_required_int(failure, "rank", 0, ranks - 1);
    read_moment(failure, json_reader_required_string(failure, "at"), micro_batches, spec);
    spec->last_save_given = json_reader_has(failure, "last_save");
    spec->last_save = (int) json_reader_int(failure, "last_save", 0, 0, MAX(spec->step - 1, 0));
  }
  json_reader_finish(failure, NULL);
}

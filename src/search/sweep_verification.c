/* sweep_verification.c - variants executed on numbers. */
#include "search/sweep_verification.h"

#include <string.h>

#include "base/units.h"
#include "search/workers.h"
#include "simulate/scaled_network.h"
#include "simulate/verification.h"

/* Losses in another order of summation; what is larger is another computation (verification.h). */
#define TOLERANCE 1e-9

/* ---- what is executed ---- */

/* A plan that one variant or several have. */
typedef struct {
  const SweepVariant *variant; /* the first of them */
  char **assignments;          /* all of its; the strings are borrowed */
  SweepVerification answer;
} Execution;

typedef struct {
  Sweep *sweep;
  GArray *executions;      /* Execution */
  GHashTable *by_key;      /* of plan and network: index into executions + 1 */
  GHashTable *of_variants; /* variant's position: the same */
  int layers;
  gboolean (*stops)(gpointer user);
  gpointer user;
} Verifier;

void
sweep_verification_clear(SweepVerification *v)
{
  g_clear_pointer(&v->reason, g_free);
  g_clear_pointer(&v->training, g_free);
  g_clear_pointer(&v->scaled, g_free);
  g_clear_pointer(&v->json, g_free);
  g_clear_pointer(&v->losses, g_array_unref);
  v->answer = SWEEP_NOT_ASKED;
}

static void
execution_clear(gpointer data)
{
  Execution *e = data;
  g_free(e->assignments);
  sweep_verification_clear(&e->answer);
}

/* Blocks that a layer of the network makes in a step of all ranks; 0 and a reason: the plan cannot
 * be read. */
static gint64
blocks_of(const Execution *e, char **reason)
{
  g_autofree PlanStrategy *table = strategy_plan_table();
  g_autoptr(GError) error = NULL;
  const InputText *text = &e->variant->request.inputs.plan;
  g_autoptr(PlanSpec) plan = plan_spec_parse(text->name, text->text, text->length,
                                             (const char *const *) e->assignments, table, &error);
  if (plan == NULL) {
    *reason = g_strdup(error->message);
    return 0;
  }
  return (gint64) plan->shard * plan->replicate * plan->accumulation.steps;
}

/* Networks, plans and what changes them; clusters and limits are none of numbers' business. */
static char *
key_of(const Execution *e)
{
  g_autofree char *changes = g_strjoinv("\n", e->assignments);
  return g_strdup_printf("%p\n%s", (gconstpointer) e->variant->request.inputs.network.text,
                         changes);
}

static void
add_variant(Verifier *v, guint i)
{
  const SweepVariant *variant = sweep_variant(v->sweep, i);
  Execution e = {.variant = variant};
  e.assignments = run_request_assignments(&variant->request, (char **) variant->owned->pdata);
  char *key = key_of(&e);
  guint known = GPOINTER_TO_UINT(g_hash_table_lookup(v->by_key, key));
  if (known > 0) {
    execution_clear(&e);
    g_free(key);
  } else {
    g_array_append_val(v->executions, e);
    known = v->executions->len;
    g_hash_table_insert(v->by_key, key, GUINT_TO_POINTER(known));
  }
  g_hash_table_insert(v->of_variants, GUINT_TO_POINTER(i), GUINT_TO_POINTER(known));
}

static void
refuse(Execution *e, char *reason)
{
  e->answer.answer = SWEEP_NOT_EXECUTED;
  e->answer.reason = reason;
}

/* One size for all: as many blocks as the one with the most work may have. */
static void
choose_layers(Verifier *v)
{
  enum { LEAST_LAYERS = 2 };
  gint64 most = 1;
  for (guint i = 0; i < v->executions->len; i++) {
    Execution *e = &g_array_index(v->executions, Execution, i);
    char *reason = NULL;
    gint64 blocks = blocks_of(e, &reason);
    if (blocks * LEAST_LAYERS > SWEEP_BLOCKS_MOST)
      reason = g_strdup_printf("%" G_GINT64_FORMAT " micro-batches of all ranks in a step are more "
                               "than the %d that are tried",
                               blocks, SWEEP_BLOCKS_MOST / LEAST_LAYERS);
    if (reason != NULL)
      refuse(e, reason);
    else
      most = MAX(most, blocks);
  }
  v->layers = (int) (SWEEP_BLOCKS_MOST / most);
}

/* ---- execution ---- */

static void
take(SweepVerification *answer, VerificationReport *report)
{
  g_autoptr(GString) json = g_string_new(NULL);
  verification_json(report, json);
  answer->answer = verification_holds(report) ? SWEEP_EQUAL : SWEEP_DIFFERS;
  answer->reason = g_strdup(report->fault);
  answer->training = g_steal_pointer(&report->training);
  answer->scaled = g_steal_pointer(&report->scaled);
  answer->json = g_strdup(json->str);
  answer->losses = g_array_new(FALSE, FALSE, sizeof(double));
  for (guint i = 0; i < report->steps->len; i++)
    g_array_append_val(answer->losses, g_array_index(report->steps, VerifiedStep, i).loss);
}

static void
execute(guint i, gpointer user)
{
  const Verifier *v = user;
  Execution *e = &g_array_index(v->executions, Execution, i);
  g_autoptr(GError) error = NULL;
  VerificationRequest request = {.inputs = e->variant->request.inputs,
                                 .steps = SWEEP_VERIFIED_STEPS,
                                 .scale = SCALE_MOST,
                                 .layers = v->layers,
                                 .seed = 1,
                                 .tolerance = TOLERANCE};
  VerificationReport report = {0};
  request.inputs.assignments = e->assignments;
  if (e->answer.answer != SWEEP_NOT_ASKED)
    return;
  if (verify(&request, &report, &error))
    take(&e->answer, &report);
  else
    refuse(e, g_strdup(error->message));
  verification_report_clear(&report);
}

static gboolean
must_stop(gpointer user)
{
  const Verifier *v = user;
  return v->stops != NULL && v->stops(v->user);
}

static SweepVerification
copy(const SweepVerification *from)
{
  return (SweepVerification){.answer = from->answer,
                             .reason = g_strdup(from->reason),
                             .training = g_strdup(from->training),
                             .scaled = g_strdup(from->scaled),
                             .json = g_strdup(from->json),
                             .losses = from->losses != NULL ? g_array_ref(from->losses) : NULL};
}

static void
hand_out(const Verifier *v)
{
  for (guint i = 0; i < v->sweep->variants->len; i++) {
    guint known = GPOINTER_TO_UINT(g_hash_table_lookup(v->of_variants, GUINT_TO_POINTER(i)));
    SweepVerification *to = &sweep_variant(v->sweep, i)->verification;
    sweep_verification_clear(to);
    if (known > 0)
      *to = copy(&g_array_index(v->executions, Execution, known - 1).answer);
  }
}

gboolean
sweep_verify(Sweep *sweep, int workers, gboolean (*stops)(gpointer user), gpointer user)
{
  Verifier v = {.sweep = sweep,
                .executions = g_array_new(FALSE, TRUE, sizeof(Execution)),
                .by_key = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL),
                .of_variants = g_hash_table_new(NULL, NULL),
                .stops = stops,
                .user = user};
  g_array_set_clear_func(v.executions, execution_clear);
  for (guint i = 0; i < sweep->variants->len; i++)
    if (sweep_variant(sweep, i)->outcome.refusal == NULL)
      add_variant(&v, i);
  choose_layers(&v);
  const Workers all = {.workers = workers, .work = execute, .stops = must_stop, .user = &v};
  gboolean is_complete = workers_run(v.executions->len, &all) == v.executions->len;
  hand_out(&v);
  sweep->is_verified = TRUE;
  g_hash_table_unref(v.by_key);
  g_hash_table_unref(v.of_variants);
  g_array_unref(v.executions);
  return is_complete;
}

/* ---- the answer ---- */

const char *
sweep_verification_word(const SweepVerification *v)
{
  static const char *const words[] = {[SWEEP_NOT_ASKED] = NULL,
                                      [SWEEP_EQUAL] = "equal",
                                      [SWEEP_DIFFERS] = "differs",
                                      [SWEEP_NOT_EXECUTED] = "not executed"};
  return words[v->answer];
}

static gboolean
was_executed(const SweepVerification *v)
{
  return v->losses != NULL;
}

/* Variants that train the same, the first of which this one is. */
typedef struct {
  guint variants;
  double difference; /* the largest of their losses, relative */
} SameTraining;

static double
difference_of(const SweepVerification *a, const SweepVerification *b)
{
  double most = 0;
  for (guint i = 0; i < MIN(a->losses->len, b->losses->len); i++)
    most = MAX(most, verification_losses_apart(g_array_index(a->losses, double, i),
                                               g_array_index(b->losses, double, i)));
  return most;
}

/* FALSE: it is not the first, or was not executed. */
static gboolean
same_as(const Sweep *sweep, guint first, SameTraining *same)
{
  const SweepVerification *v = &sweep_variant(sweep, first)->verification;
  *same = (SameTraining){0};
  for (guint i = 0; was_executed(v) && i < sweep->variants->len; i++) {
    const SweepVerification *other = &sweep_variant(sweep, i)->verification;
    if (!was_executed(other) || !g_str_equal(v->training, other->training))
      continue;
    if (i < first)
      return FALSE;
    same->variants++;
    same->difference = MAX(same->difference, difference_of(v, other));
  }
  return same->variants > 0;
}

gboolean
sweep_verification_fails(const Sweep *sweep)
{
  for (guint i = 0; i < sweep->variants->len; i++) {
    SameTraining same;
    if (sweep_variant(sweep, i)->verification.answer == SWEEP_DIFFERS ||
        (same_as(sweep, i, &same) && same.difference > TOLERANCE))
      return TRUE;
  }
  return FALSE;
}

void
sweep_verification_text(const Sweep *sweep, GString *out)
{
  gboolean has_heading = FALSE;
  for (guint i = 0; i < sweep->variants->len; i++) {
    const SweepVerification *v = &sweep_variant(sweep, i)->verification;
    SameTraining same;
    if (!same_as(sweep, i, &same))
      continue;
    if (!has_heading)
      g_string_append_printf(out,
                             "Executed on numbers, %d steps, beside unsharded runs; scaled: %s\n",
                             SWEEP_VERIFIED_STEPS, v->scaled != NULL ? v->scaled : "nothing");
    has_heading = TRUE;
    if (same.variants > 1 && same.difference <= TOLERANCE)
      g_string_append_printf(out, "The %u variants with %s come to equal losses, within %g\n",
                             same.variants, v->training, TOLERANCE);
    else if (same.variants > 1)
      g_string_append_printf(out,
                             "The %u variants with %s come to other losses: they differ by %.2g\n",
                             same.variants, v->training, same.difference);
  }
  for (guint i = 0; i < sweep->variants->len; i++) {
    const SweepVariant *variant = sweep_variant(sweep, i);
    const SweepVerification *v = &variant->verification;
    if (v->reason != NULL)
      g_string_append_printf(out, "%s: %s: %s\n", variant->label, sweep_verification_word(v),
                             v->reason);
  }
}

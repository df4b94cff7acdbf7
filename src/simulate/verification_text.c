/* verification_text.c - a verification as text and as JSON. */
#include <math.h>

#include "base/json_output.h"
#include "simulate/verification.h"

static const char *const keys[COMPARED] = {"gradient", "value", "first_state", "second_state"};

static double
largest(const ParameterDifference *d)
{
  double most = 0;
  for (int k = 0; k < COMPARED; k++)
    most = MAX(most, d->difference[k]);
  return most;
}

static void
print_steps(const VerificationReport *r, GString *out)
{
  g_string_append_printf(out, "%6s  %16s  %16s  %14s  %14s  %10s\n", "step", "loss", "unsharded",
                         "gradient norm", "unsharded", "difference");
  for (guint i = 0; i < r->steps->len; i++) {
    const VerifiedStep *s = &g_array_index(r->steps, VerifiedStep, i);
    g_string_append_printf(out, "%6u  %16.12f  %16.12f  %14.10f  %14.10f  %10.2g\n", i + 1, s->loss,
                           s->reference_loss, s->norm, s->reference_norm, largest(&s->worst));
  }
}

/* In the plan's dtypes: how far from fp64, how far from the ranks alone, and what explains that. */
static void
print_rounded_steps(const VerificationReport *r, GString *out)
{
  g_string_append_printf(out, "%6s  %13s  %13s  %13s  %12s  %12s  %10s  %8s\n", "step", "loss",
                         "ranks alone", "fp64", "from fp64", "from alone", "explained", "used");
  for (guint i = 0; i < r->steps->len; i++) {
    const VerifiedStep *s = &g_array_index(r->steps, VerifiedStep, i);
    g_string_append_printf(out, "%6u  %13.9f  %13.9f  %13.9f  %12.2g  %12.2g  %10.2g  %6.1f %%\n",
                           i + 1, s->loss, s->rounding.loss, s->reference_loss,
                           s->worst.difference[COMPARED_GRADIENT], s->rounding.difference,
                           s->rounding.bound, 100 * s->rounding.used);
  }
}

/* "0: 0-175, 1: 176-351": who updates which elements. */
static void
print_shards(const VerifiedParameter *p, GString *out)
{
  for (guint i = 0; i < p->shards->len; i++) {
    const VerifiedShard *s = &g_array_index(p->shards, VerifiedShard, i);
    g_string_append_printf(out, "%s%d: %" G_GINT64_FORMAT "-%" G_GINT64_FORMAT, i > 0 ? ", " : "",
                           s->rank, s->first, s->first + s->elements - 1);
  }
  g_string_append_c(out, '\n');
}

static void
print_parameters(const VerificationReport *r, GString *out)
{
  g_string_append_printf(out, "\n%-44s %10s %7s %10s %10s %10s  %s\n", "parameter", "elements",
                         "owners", "gradient", "value", "states", "elements by rank");
  for (guint i = 0; i < r->parameters->len; i++) {
    const VerifiedParameter *p = &g_array_index(r->parameters, VerifiedParameter, i);
    const double *d = p->worst.difference;
    g_string_append_printf(out, "%-44s %10" G_GINT64_FORMAT " %7d %10.2g %10.2g %10.2g  ", p->name,
                           p->elements, p->owners, d[COMPARED_GRADIENT], d[COMPARED_VALUE],
                           MAX(d[COMPARED_FIRST], d[COMPARED_SECOND]));
    print_shards(p, out);
  }
}

static void
print_failure(const VerifiedFailure *f, const VerifiedRestart *restart, GString *out)
{
  g_string_append_printf(out, "rank %d fails in step %d, %.4g %% into %s; ", f->rank, f->step,
                         100 * f->fraction, f->phase);
  if (f->from_others)
    g_string_append_printf(out, "the other ranks have all of step %d", f->last_step);
  else if (f->last_step > 0)
    g_string_append_printf(out, "step %d was saved", f->last_step);
  else
    g_string_append(out, "nothing was saved");
  g_string_append_printf(out, ": from there on %s over %d ranks, %d micro-batches a rank\n",
                         restart->strategy, restart->ranks, restart->micro_batches);
}

static void
print_trial(const VerifiedTrial *t, gboolean rounded, GString *out)
{
  if (t->step > 0 && isnan(t->loss))
    g_string_append_printf(out, "the loss of step %d is no number\n", t->step);
  else if (t->step > 0)
    g_string_append_printf(out, "the loss of step %d is %.12f, not %.12f\n", t->step, t->loss,
                           t->right_loss);
  else if (t->gradient != NULL)
    g_string_append_printf(out, "the gradient of %s in step %d is more than rounding explains\n",
                           t->gradient, t->gradient_step);
  else
    g_string_append(out, rounded ? "not told apart: rounding explains what differs\n"
                                 : "no loss is another\n");
}

/* What goes on from invalid states. */
static void
print_trials(const VerificationReport *r, GString *out)
{
  const VerifiedFailure *f = &r->failure;
  if (!f->happened)
    return;
  g_string_append(out, "going on with what the failure makes invalid:\n");
  for (guint i = 0; i < f->trials->len; i++) {
    const VerifiedTrial *t = &g_array_index(f->trials, VerifiedTrial, i);
    g_string_append_printf(out, "  %s: ", t->what);
    print_trial(t, r->rounded, out);
  }
}

static void
print_heading(const VerificationReport *r, GString *out)
{
  g_string_append_printf(out, "%s · %s over %d ranks · %" G_GINT64_FORMAT " samples a step",
                         r->network, r->strategy, r->ranks, r->samples);
  g_string_append_printf(out, ", %d micro-batches a rank\n", r->micro_batches);
  if (r->failure.happened)
    print_failure(&r->failure, &r->restart, out);
  else if (r->restart.strategy != NULL)
    g_string_append_printf(
        out, "saved after step %d, from there on %s over %d ranks, %d micro-batches a rank\n",
        r->restart.after, r->restart.strategy, r->restart.ranks, r->restart.micro_batches);
  if (r->scaled != NULL)
    g_string_append_printf(out, "scaled: %s\n", r->scaled);
}

static void
print_answer(const VerificationReport *r, GString *out)
{
  if (r->fault != NULL && r->rounded)
    g_string_append_printf(out, "more than rounding explains: %s\n", r->fault);
  else if (r->rounded)
    g_string_append_printf(out,
                           "gradients differ from those of the ranks alone by what rounding "
                           "explains, in the order of issue and %d others%s\n",
                           r->orders,
                           r->restart.in_bits
                               ? "; what goes on equals, bit by bit, the run without interruption"
                               : "");
  else if (r->fault != NULL)
    g_string_append_printf(out, "not equal to an unsharded run: %s\n", r->fault);
  else
    g_string_append_printf(out,
                           "equal to an unsharded run within %g, in the order of issue and %d "
                           "others\n",
                           r->tolerance, r->orders);
}

void
verification_text(const VerificationReport *r, gboolean details, GString *out)
{
  print_heading(r, out);
  if (r->rounded)
    print_rounded_steps(r, out);
  else
    print_steps(r, out);
  if (details)
    print_parameters(r, out);
  print_answer(r, out);
  print_trials(r, out);
  if (r->other == NULL)
    return;
  g_string_append_c(out, '\n');
  verification_text(r->other, details, out);
  if (r->rounded)
    return;
  if (r->loss_difference <= r->tolerance)
    g_string_append_printf(out, "\nthe losses of both plans are equal at every step, within %g\n",
                           r->tolerance);
  else
    g_string_append_printf(out, "\nthe losses of both plans are not equal: they differ by %.2g\n",
                           r->loss_difference);
}

/* ---- JSON ---- */

static void
add_difference(cJSON *object, const ParameterDifference *d)
{
  cJSON *differences = json_section(object, "difference");
  for (int k = 0; k < COMPARED; k++)
    json_add_known_number(differences, keys[k], isfinite(d->difference[k]) != 0, d->difference[k]);
}

static void
add_rounding(cJSON *object, const RoundingDifference *d)
{
  cJSON *rounding = json_section(object, "rounding");
  json_add_known_number(rounding, "alone_loss", isfinite(d->loss) != 0, d->loss);
  json_add_known_number(rounding, "difference", isfinite(d->difference) != 0, d->difference);
  json_add_known_number(rounding, "bound", isfinite(d->bound) != 0, d->bound);
  json_add_known_number(rounding, "used", isfinite(d->used) != 0, d->used);
}

static cJSON *
steps_json(const VerificationReport *r)
{
  cJSON *steps = cJSON_CreateArray();
  for (guint i = 0; i < r->steps->len; i++) {
    const VerifiedStep *s = &g_array_index(r->steps, VerifiedStep, i);
    cJSON *step = cJSON_CreateObject();
    json_add_int(step, "step", (gint64) i + 1);
    json_add_known_number(step, "loss", isfinite(s->loss) != 0, s->loss);
    json_add_known_number(step, "unsharded_loss", isfinite(s->reference_loss) != 0,
                          s->reference_loss);
    json_add_known_number(step, "gradient_norm", isfinite(s->norm) != 0, s->norm);
    json_add_known_number(step, "unsharded_gradient_norm", isfinite(s->reference_norm) != 0,
                          s->reference_norm);
    add_difference(step, &s->worst);
    if (r->rounded)
      add_rounding(step, &s->rounding);
    cJSON_AddItemToArray(steps, step);
  }
  return steps;
}

static cJSON *
shards_json(const VerifiedParameter *p)
{
  cJSON *shards = cJSON_CreateArray();
  for (guint i = 0; i < p->shards->len; i++) {
    const VerifiedShard *s = &g_array_index(p->shards, VerifiedShard, i);
    cJSON *shard = cJSON_CreateObject();
    json_add_int(shard, "rank", s->rank);
    json_add_int(shard, "first", s->first);
    json_add_int(shard, "elements", s->elements);
    cJSON_AddItemToArray(shards, shard);
  }
  return shards;
}

static cJSON *
parameters_json(const VerificationReport *r)
{
  cJSON *parameters = cJSON_CreateArray();
  for (guint i = 0; i < r->parameters->len; i++) {
    const VerifiedParameter *p = &g_array_index(r->parameters, VerifiedParameter, i);
    cJSON *parameter = cJSON_CreateObject();
    json_add_text(parameter, "name", p->name);
    json_add_int(parameter, "elements", p->elements);
    json_add_int(parameter, "owners", p->owners);
    cJSON_AddItemToObject(parameter, "shards", shards_json(p));
    add_difference(parameter, &p->worst);
    cJSON_AddItemToArray(parameters, parameter);
  }
  return parameters;
}

static cJSON *
peaks_json(const gint64 *peaks, int ranks)
{
  cJSON *array = cJSON_CreateArray();
  for (int i = 0; i < ranks; i++)
    cJSON_AddItemToArray(array, cJSON_CreateNumber((double) peaks[i]));
  return array;
}

static void
add_restart(cJSON *root, const VerificationReport *r)
{
  const VerifiedRestart *restart = &r->restart;
  if (restart->strategy == NULL)
    return;
  cJSON *object = json_section(root, "restart");
  json_add_int(object, "after_step", restart->after);
  json_add_text(object, "strategy", restart->strategy);
  json_add_int(object, "ranks", restart->ranks);
  json_add_int(object, "micro_batches", restart->micro_batches);
  if (r->rounded)
    cJSON_AddBoolToObject(object, "equal_bits", restart->in_bits);
  cJSON_AddItemToObject(object, "peak_allocated_bytes", peaks_json(restart->peaks, restart->ranks));
}

static void
add_gradient(cJSON *object, const VerifiedTrial *t)
{
  json_add_text(object, "gradient", t->gradient);
  json_add_known_number(object, "gradient_step", t->gradient != NULL, t->gradient_step);
}

static void
add_failure(cJSON *root, const VerificationReport *r)
{
  const VerifiedFailure *f = &r->failure;
  if (!f->happened)
    return;
  cJSON *object = json_section(root, "failure");
  json_add_int(object, "rank", f->rank);
  json_add_int(object, "step", f->step);
  json_add_text(object, "phase", f->phase);
  json_add_known_number(object, "fraction", TRUE, f->fraction);
  json_add_int(object, "last_consistent_step", f->last_step);
  cJSON_AddBoolToObject(object, "from_other_ranks", f->from_others);
  cJSON *trials = cJSON_CreateArray();
  for (guint i = 0; i < f->trials->len; i++) {
    const VerifiedTrial *t = &g_array_index(f->trials, VerifiedTrial, i);
    cJSON *trial = cJSON_CreateObject();
    json_add_text(trial, "what", t->what);
    cJSON_AddBoolToObject(trial, "equal", t->step == 0 && t->gradient == NULL);
    json_add_known_number(trial, "step", t->step > 0, t->step);
    json_add_known_number(trial, "loss", t->step > 0 && isfinite(t->loss), t->loss);
    json_add_known_number(trial, "unsharded_loss", t->step > 0, t->right_loss);
    if (r->rounded)
      add_gradient(trial, t);
    cJSON_AddItemToArray(trials, trial);
  }
  cJSON_AddItemToObject(object, "invalid", trials);
}

static cJSON *
report_json(const VerificationReport *r)
{
  cJSON *root = cJSON_CreateObject();
  json_add_text(root, "network", r->network);
  json_add_text(root, "strategy", r->strategy);
  json_add_text(root, "scaled", r->scaled);
  json_add_int(root, "ranks", r->ranks);
  json_add_int(root, "micro_batches", r->micro_batches);
  json_add_int(root, "samples", r->samples);
  json_add_int(root, "orders", r->orders);
  json_add_text(root, "precision", r->rounded ? "plan" : "fp64");
  json_add_known_number(root, "tolerance", TRUE, r->tolerance);
  cJSON_AddBoolToObject(root, "equal", r->fault == NULL);
  json_add_text(root, "fault", r->fault);
  cJSON_AddItemToObject(root, "peak_allocated_bytes", peaks_json(r->peaks, r->ranks));
  add_restart(root, r);
  add_failure(root, r);
  cJSON_AddItemToObject(root, "steps", steps_json(r));
  cJSON_AddItemToObject(root, "parameters", parameters_json(r));
  return root;
}

void
verification_json(const VerificationReport *r, GString *out)
{
  cJSON *root = report_json(r);
  if (r->other != NULL) {
    cJSON_AddItemToObject(root, "other", report_json(r->other));
    if (r->rounded) /* they need not be */
      cJSON_AddNullToObject(root, "equal_losses");
    else
      cJSON_AddBoolToObject(root, "equal_losses", r->loss_difference <= r->tolerance);
    json_add_known_number(root, "loss_difference", isfinite(r->loss_difference) != 0,
                          r->loss_difference);
  }
  g_autofree char *text = json_finish(root);
  g_string_append(out, text);
}

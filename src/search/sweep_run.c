/* sweep_run.c - tries the variants of a sweep that are not done yet, and keeps what comes of them.
 */
#include "search/sweep_run.h"

#include <math.h>

#include "search/sweep_evidence.h"
#include "search/sweep_verification.h"

typedef struct {
  Sweep *sweep;
  const SweepRequest *request;
  const SweepWatch *watch;
  GArray *trials;    /* Trial */
  GArray *positions; /* guint: of their variants */
  SweepProgress progress;
  double best_cost;
  GMutex lock;
  GError *error; /* first that could not be written; under the lock */
} SweepRun;

static guint
position_of(const SweepRun *run, const Trial *trial)
{
  guint i = (guint) (trial - (const Trial *) (gpointer) run->trials->data);
  return g_array_index(run->positions, guint, i);
}

static void
keep_error(SweepRun *run, GError *error)
{
  g_mutex_lock(&run->lock);
  if (run->error == NULL)
    run->error = error;
  else
    g_error_free(error);
  g_mutex_unlock(&run->lock);
}

static gboolean
has_failed(SweepRun *run)
{
  g_mutex_lock(&run->lock);
  gboolean failed = run->error != NULL;
  g_mutex_unlock(&run->lock);
  return failed;
}

/* ---- while it goes on ---- */

static void
write_evidence(Trial *trial, const RunResult *result, gpointer user)
{
  SweepRun *run = user;
  const SweepVariant *variant = sweep_variant(run->sweep, position_of(run, trial));
  g_autofree char *folder = sweep_directory_variant(run->watch->directory, variant);
  GError *error = NULL;
  if (!sweep_evidence_write(folder, trial, result, &error))
    keep_error(run, error);
}

static void
keep_result(SweepRun *run, guint position)
{
  SweepVariant *variant = sweep_variant(run->sweep, position);
  GError *error = NULL;
  if (run->watch->directory == NULL || variant->is_kept || has_failed(run))
    return;
  variant->is_kept = sweep_directory_add(run->watch->directory, run->sweep, position, &error);
  if (!variant->is_kept)
    keep_error(run, error);
}

static void
note_progress(SweepRun *run, const SweepVariant *variant)
{
  double cost = outcome_fits(&variant->outcome) ? sweep_cost(run->sweep, variant) : NAN;
  run->progress.done++;
  if (!isnan(cost) && cost < run->best_cost) {
    run->best_cost = cost;
    run->progress.best = variant;
  }
  if (run->watch->progress != NULL)
    run->watch->progress(&run->progress, run->watch->user);
}

static void
finish_trial(Trial *trial, gpointer user)
{
  SweepRun *run = user;
  guint position = position_of(run, trial);
  SweepVariant *variant = sweep_variant(run->sweep, position);
  variant->outcome = trial->outcome;
  trial->outcome = (Outcome){0};
  variant->is_done = TRUE;
  keep_result(run, position);
  note_progress(run, variant);
}

static gboolean
must_stop(gpointer user)
{
  SweepRun *run = user;
  const SweepWatch *watch = run->watch;
  return has_failed(run) || (watch->stops != NULL && watch->stops(watch->user));
}

/* ---- before and after ---- */

/* Has it all that is asked for?  A refused variant has no evidence. */
static gboolean
is_finished(const SweepRun *run, const SweepVariant *variant)
{
  if (!variant->is_done || !run->watch->has_evidence || variant->outcome.refusal != NULL)
    return variant->is_done;
  g_autofree char *folder = sweep_directory_variant(run->watch->directory, variant);
  return sweep_evidence_is_there(folder);
}

static void
collect_trials(SweepRun *run)
{
  for (guint i = 0; i < run->sweep->variants->len; i++) {
    SweepVariant *variant = sweep_variant(run->sweep, i);
    run->progress.all++;
    if (is_finished(run, variant)) {
      keep_result(run, i);
      note_progress(run, variant);
      continue;
    }
    outcome_clear(&variant->outcome);
    variant->is_done = FALSE;
    variant->request.keep_spans = run->watch->has_evidence;
    Trial trial = {.assignments = (char **) variant->owned->pdata, .request = &variant->request};
    g_array_append_val(run->trials, trial);
    g_array_append_val(run->positions, i);
  }
  run->progress.before = run->progress.done;
}

static void
try_all(SweepRun *run)
{
  const TrialWatch watch = {
      .workers = run->watch->workers,
      .ran = run->watch->has_evidence ? write_evidence : NULL,
      .done = finish_trial,
      .stops = must_stop,
      .user = run,
  };
  trials_run_watched(run->request->base, (Trial *) (gpointer) run->trials->data, run->trials->len,
                     &watch);
}

/* ---- numbers ---- */

static void
write_verifications(SweepRun *run)
{
  for (guint i = 0; i < run->sweep->variants->len; i++) {
    const SweepVariant *variant = sweep_variant(run->sweep, i);
    GError *error = NULL;
    if (variant->verification.json == NULL)
      continue;
    g_autofree char *folder = sweep_directory_variant(run->watch->directory, variant);
    if (!sweep_evidence_write_verification(folder, variant->verification.json, &error))
      keep_error(run, error);
  }
}

/* FALSE: it was stopped. */
static gboolean
verify_all(SweepRun *run)
{
  if (!sweep_verify(run->sweep, run->watch->workers, must_stop, run))
    return FALSE;
  if (run->watch->has_evidence)
    write_verifications(run);
  return TRUE;
}

gboolean
sweep_run(Sweep *sweep, const SweepRequest *request, const SweepWatch *watch, gboolean *is_complete,
          GError **error)
{
  SweepRun run = {
      .sweep = sweep,
      .request = request,
      .watch = watch,
      .trials = g_array_new(FALSE, TRUE, sizeof(Trial)),
      .positions = g_array_new(FALSE, FALSE, sizeof(guint)),
      .best_cost = INFINITY,
  };
  g_mutex_init(&run.lock);
  collect_trials(&run);
  try_all(&run);
  *is_complete = run.progress.done == run.progress.all;
  sweep_judge(sweep);
  if (*is_complete && watch->verifies)
    *is_complete = verify_all(&run);
  gboolean is_written = run.error == NULL;
  if (!is_written)
    g_propagate_error(error, run.error);
  else if (watch->directory != NULL)
    is_written = sweep_directory_finish(watch->directory, sweep, error);
  g_array_unref(run.trials);
  g_array_unref(run.positions);
  g_mutex_clear(&run.lock);
  return is_written;
}

/* score.c - published measurements beside what we predict: errors of each source, order of pairs,
 * ratios; TAP, or with --markdown the tables of doc/validation.md, with --detail what steps are
 * made of.
 *
 * The measurements are reference data ($HIGHWATER_SHARED, or ../shared beside the tree); without
 * them everything is skipped. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "published/rows.h"
#include "quick.h"
#include "report/summary.h"
#include "simulate/run_simulation.h"

typedef struct {
  const PublishedRow *row;
  double predicted;              /* tokens per second and GPU; 0: refused, see note */
  gboolean does_not_fit;         /* in the device's memory as simulated: predicted as if it did */
  double compute, exposed, host; /* parts of the step */
  char *note;                    /* why it was refused, or NULL */
} Prediction;

typedef struct {
  GArray *predictions; /* Prediction, parallel to the rows */
  int tests, failures;
  gboolean markdown, detail;
} Score;

/* Signed, of the measured: time per token is what is predicted. */
static double
time_error(const Prediction *p)
{
  return p->row->measured / p->predicted - 1;
}

static gboolean
is_known(const Prediction *p)
{
  return p->predicted > 0;
}

/* ---- simulation ---- */

static InputText
text_input(const char *name, const char *text)
{
  return (InputText){g_strdup(name), g_strdup(text), strlen(text), NULL};
}

/* What the compute stream did in the last step, by kernel. */
static void
print_kernels(const Recording *recording, int step)
{
  g_autoptr(GHashTable) sums = g_hash_table_new_full(g_str_hash, g_str_equal, NULL, g_free);
  for (guint i = 0; i < recording->spans->len; i++) {
    const Span *span = &g_array_index(recording->spans, Span, i);
    if (span->step != step || span->kind > SPAN_COLLECTIVE)
      continue;
    char *name = (char *) (gsize) report_text(recording, span->name, "");
    double *sum = g_hash_table_lookup(sums, name);
    if (sum == NULL)
      g_hash_table_insert(sums, name, sum = g_new0(double, 1));
    *sum += (double) (span->end - span->start) * 1e-6;
  }
  g_autoptr(GList) names = g_list_sort(g_hash_table_get_keys(sums), (GCompareFunc) strcmp);
  for (const GList *name = names; name; name = name->next)
    printf("#     %-32s %9.2f ms\n", (const char *) name->data,
           *(const double *) g_hash_table_lookup(sums, name->data));
}

static void
read_result(const RunResult *result, Prediction *p, gboolean detail)
{
  g_autoptr(ReportModel) model = report_model_new(result->recording, result->info);
  if (!model->time.known)
    return;
  p->predicted = model->time.tokens_per_s;
  p->compute = (double) model->time.compute * 1e-9;
  p->exposed = (double) model->time.exposed * 1e-9;
  p->host = (double) model->time.host_bound * 1e-9;
  if (detail)
    print_kernels(result->recording, report_model_last_step(model)->index);
}

/* Eight steps: where memory is nearly full, the allocator finds its segments only in the fifth or
 * sixth. */
static void
predict(const PublishedRow *row, gint64 memory_limit, Prediction *p, gboolean detail)
{
  RunRequest request = {
      .inputs = {.network = text_input("network.json", row->network),
                 .plan = text_input("plan.json", row->plan),
                 .cluster = text_input("cluster.json", row->cluster)},
      .steps = 8,
      .memory_limit = memory_limit,
  };
  RunResult result = {0};
  g_autoptr(GError) error = NULL;
  if (!run_simulation(&request, &result, &error))
    p->note = g_strdup(error->message);
  else if (memory_limit == 0 && result.recording->out_of_memory.happened)
    p->does_not_fit = TRUE;
  else
    read_result(&result, p, detail);
  recording_free(result.recording);
  run_info_free(result.info);
  input_text_clear(&request.inputs.network);
  input_text_clear(&request.inputs.plan);
  input_text_clear(&request.inputs.cluster);
}

static gboolean
same_inputs(const PublishedRow *a, const PublishedRow *b)
{
  return g_str_equal(a->network, b->network) && g_str_equal(a->plan, b->plan) &&
         g_str_equal(a->cluster, b->cluster);
}

/* Rows that were published twice are simulated once. */
static Prediction
predict_row(const Score *score, const PublishedRow *row)
{
  enum { NO_LIMIT_BITS = 50 };
  for (guint i = score->predictions->len; i-- > 0;) {
    Prediction known = g_array_index(score->predictions, Prediction, i);
    if (!same_inputs(known.row, row))
      continue;
    known.row = row;
    known.note = g_strdup(known.note);
    return known;
  }
  Prediction p = {.row = row};
  predict(row, 0, &p, score->detail);
  if (p.does_not_fit)
    predict(row, (gint64) 1 << NO_LIMIT_BITS, &p, score->detail);
  return p;
}

/* ---- figures ---- */

static int
compare_doubles(gconstpointer a, gconstpointer b)
{
  double x = *(const double *) a, y = *(const double *) b;
  return x < y ? -1 : x > y;
}

/* Of sorted numbers, interpolated between neighbours. */
static double
quantile(const GArray *sorted, double share)
{
  if (sorted->len == 0)
    return 0;
  double place = share * (sorted->len - 1);
  guint low = (guint) place, high = MIN(low + 1, sorted->len - 1);
  double below = g_array_index(sorted, double, low), above = g_array_index(sorted, double, high);
  return below + (place - low) * (above - below);
}

typedef struct {
  guint rows, unknown;
  double median, p90, worst, bias; /* percent; bias: median of signed errors of time */
  double within_15;                /* share of the rows */
} Errors;

/* source: NULL for all. */
static Errors
errors_of(const Score *score, const char *source)
{
  g_autoptr(GArray) sizes = g_array_new(FALSE, FALSE, sizeof(double));
  g_autoptr(GArray) signs = g_array_new(FALSE, FALSE, sizeof(double));
  Errors e = {0};
  guint near = 0;
  for (guint i = 0; i < score->predictions->len; i++) {
    const Prediction *p = &g_array_index(score->predictions, Prediction, i);
    if (source != NULL && !g_str_equal(p->row->source, source))
      continue;
    e.rows++;
    if (!is_known(p)) {
      e.unknown++;
      continue;
    }
    double error = 100 * time_error(p), size = fabs(error);
    near += size <= 15;
    g_array_append_val(signs, error);
    g_array_append_val(sizes, size);
  }
  g_array_sort(sizes, compare_doubles);
  g_array_sort(signs, compare_doubles);
  e.median = quantile(sizes, 0.5);
  e.p90 = quantile(sizes, 0.9);
  e.worst = quantile(sizes, 1);
  e.bias = quantile(signs, 0.5);
  e.within_15 = e.rows > 0 ? (double) near / e.rows : 0;
  return e;
}

typedef struct {
  guint pairs, right;
} Order;

/* Pairs of one source (of five rows or more) whose measurements differ by over 5 %. */
static Order
order_of(const Score *score)
{
  Order order = {0};
  for (guint i = 0; i < score->predictions->len; i++) {
    const Prediction *a = &g_array_index(score->predictions, Prediction, i);
    if (!is_known(a) || errors_of(score, a->row->source).rows < 5)
      continue;
    for (guint k = i + 1; k < score->predictions->len; k++) {
      const Prediction *b = &g_array_index(score->predictions, Prediction, k);
      if (!is_known(b) || !g_str_equal(a->row->source, b->row->source))
        continue;
      double measured = a->row->measured / b->row->measured;
      if (fmax(measured, 1 / measured) <= 1.05)
        continue;
      order.pairs++;
      order.right += (measured > 1) == (a->predicted > b->predicted);
    }
  }
  return order;
}

/* ---- ratios ---- */

/* In ratios a factor common to a source's rows cancels. */
typedef struct {
  const char *what, *source;
  const char *above, *below; /* what the labels contain */
  double tolerance;
} Ratio;

static const Ratio ratios[] = {
    {"compiled over eager, 8 GPUs", "torchtitan", "8B, 8 GPUs, compiled", "8B, 8 GPUs, eager",
     0.04},
    {"compiled over eager, 128 GPUs", "torchtitan", "8B, 128 GPUs, compiled", "8B, 128 GPUs, eager",
     0.04},
    {"no checkpointing over selective layer, 13B", "torchtitan 2024", "llama2-13b, batch 2, none",
     "llama2-13b, batch 2, selective layer", 0.04},
    {"no checkpointing over selective op, 13B", "torchtitan 2024", "llama2-13b, batch 2, none",
     "llama2-13b, batch 2, selective op", 0.04},
    {"1024 over 8 GPUs, zero1 8", "InternEvo", "1024 GPUs, zero1 8, batch 2 x 4",
     "8 GPUs, zero1 8, batch 2 x 4", 0.08},
    {"7B of 65,536 over 1,024 tokens", "llm-foundry H100", "7b, 8 GPUs, 65536 tokens",
     "7b, 8 GPUs, 1024 tokens", 0.03},
};

static const Prediction *
find_row(const Score *score, const char *source, const char *label)
{
  for (guint i = 0; i < score->predictions->len; i++) {
    const Prediction *p = &g_array_index(score->predictions, Prediction, i);
    if (g_str_equal(p->row->source, source) && g_str_has_prefix(p->row->label, label))
      return p;
  }
  return NULL;
}

/* FALSE: a row is missing or was refused. */
static gboolean
ratio_of(const Score *score, const Ratio *ratio, double *measured, double *predicted)
{
  const Prediction *above = find_row(score, ratio->source, ratio->above);
  const Prediction *below = find_row(score, ratio->source, ratio->below);
  if (above == NULL || below == NULL || !is_known(above) || !is_known(below))
    return FALSE;
  *measured = above->row->measured / below->row->measured;
  *predicted = above->predicted / below->predicted;
  return TRUE;
}

/* ---- TAP ---- */

static void say(Score *score, gboolean right, const char *format, ...) G_GNUC_PRINTF(3, 4);

static void
say(Score *score, gboolean right, const char *format, ...)
{
  va_list arguments;
  va_start(arguments, format);
  g_autofree char *text = g_strdup_vprintf(format, arguments);
  va_end(arguments);
  score->tests++;
  score->failures += !right;
  printf("%sok %d - %s\n", right ? "" : "not ", score->tests, text);
}

static void
judge_source(Score *score, const PublishedSource *source)
{
  Errors e = errors_of(score, source->name);
  say(score, e.rows > 0 && e.unknown == 0, "%s: all of %u rows are predicted", source->name,
      e.rows);
  printf("# %s: %u rows, median %.1f, p90 %.1f, worst %.1f, bias %+.1f %%\n", source->name, e.rows,
         e.median, e.p90, e.worst, e.bias);
  say(score, e.median <= source->median, "%s: median error %.1f %% of at most %.0f", source->name,
      e.median, source->median);
  if (source->p90 > 0)
    say(score, e.p90 <= source->p90, "%s: p90 %.1f %% of at most %.0f", source->name, e.p90,
        source->p90);
  if (source->worst > 0)
    say(score, e.worst <= source->worst, "%s: worst row %.1f %% of at most %.0f", source->name,
        e.worst, source->worst);
}

static void
judge_all(Score *score)
{
  for (guint i = 0; published_sources[i].name; i++)
    judge_source(score, &published_sources[i]);
  Errors e = errors_of(score, NULL);
  say(score, e.median <= 8, "all %u rows: median error %.1f %% of at most 8", e.rows, e.median);
  say(score, e.within_15 >= 0.85, "%.0f %% of all rows are within 15 %%", 100 * e.within_15);
  Order order = order_of(score);
  double share = order.pairs > 0 ? (double) order.right / order.pairs : 0;
  say(score, share >= 0.92, "%.1f %% of %u pairs are in the right order", 100 * share, order.pairs);
  for (guint i = 0; i < G_N_ELEMENTS(ratios); i++) {
    double measured = 0, predicted = 0;
    gboolean known = ratio_of(score, &ratios[i], &measured, &predicted);
    say(score, known && fabs(predicted - measured) <= ratios[i].tolerance,
        "%s: %.3f measured, %.3f predicted", ratios[i].what, measured, predicted);
  }
  printf("1..%d\n", score->tests);
}

static void
print_row(const Prediction *p)
{
  if (!is_known(p)) {
    printf("# %-18s %-52s %8.0f refused: %s\n", p->row->source, p->row->label, p->row->measured,
           p->note ? p->note : "");
    return;
  }
  printf("# %-18s %-52s %8.0f %8.0f %+6.1f %%  compute %.3f exposed %.3f host %.3f s%s\n",
         p->row->source, p->row->label, p->row->measured, p->predicted, 100 * time_error(p),
         p->compute, p->exposed, p->host, p->does_not_fit ? ", does not fit" : "");
}

/* ---- tables of doc/validation.md ---- */

static void
print_markdown(const Score *score)
{
  printf("| source | rows | median | p90 | worst | bias | assumed |\n"
         "| --- | --- | --- | --- | --- | --- | --- |\n");
  for (guint i = 0; published_sources[i].name; i++) {
    Errors e = errors_of(score, published_sources[i].name);
    printf("| %s | %u | %.1f | %.1f | %.1f | %+.1f | %s |\n", published_sources[i].name, e.rows,
           e.median, e.p90, e.worst, e.bias, published_sources[i].assumed);
  }
  Errors all = errors_of(score, NULL);
  printf("| all | %u | %.1f | %.1f | %.1f | %+.1f | %.0f %% within 15 %% |\n\n", all.rows,
         all.median, all.p90, all.worst, all.bias, 100 * all.within_15);
  Order order = order_of(score);
  printf("Pairs of a source that differ by over 5 %%: %u of %u in the right order.\n\n"
         "| ratio of tokens/s | measured | predicted |\n| --- | --- | --- |\n",
         order.right, order.pairs);
  for (guint i = 0; i < G_N_ELEMENTS(ratios); i++) {
    double measured, predicted;
    if (ratio_of(score, &ratios[i], &measured, &predicted))
      printf("| %s | %.3f | %.3f |\n", ratios[i].what, measured, predicted);
  }
  printf("\n| source | row | measured | predicted | error of time |\n"
         "| --- | --- | --- | --- | --- |\n");
  for (guint i = 0; i < score->predictions->len; i++) {
    const Prediction *p = &g_array_index(score->predictions, Prediction, i);
    if (!is_known(p))
      printf("| %s | %s | %.0f | refused | |\n", p->row->source, p->row->label, p->row->measured);
    else
      printf("| %s | %s | %.0f | %.0f%s | %+.1f %% |\n", p->row->source, p->row->label,
             p->row->measured, p->predicted, p->does_not_fit ? " (does not fit)" : "",
             100 * time_error(p));
  }
}

static char *
tables_folder(void)
{
  const char *shared = g_getenv("HIGHWATER_SHARED"), *top = g_getenv("top_srcdir");
  g_autofree char *beside = g_build_filename(top ? top : SOURCE_DIR, "..", "shared", NULL);
  char *folder = g_build_filename(shared ? shared : beside, "reference", "published", NULL);
  if (g_file_test(folder, G_FILE_TEST_IS_DIR))
    return folder;
  g_free(folder);
  return NULL;
}

static void
clear_prediction(gpointer data)
{
  g_free(((Prediction *) data)->note);
}

/* Words after the options: only rows whose source or label has one of them. */
static gboolean
is_asked_for(char **words, const PublishedRow *row)
{
  gboolean any = FALSE;
  for (; *words; words++) {
    if (g_str_has_prefix(*words, "--"))
      continue;
    any = TRUE;
    if (strstr(row->source, *words) != NULL || strstr(row->label, *words) != NULL)
      return TRUE;
  }
  return !any;
}

int
main(G_GNUC_UNUSED int argc, char **argv)
{
  Score score = {
      .predictions = g_array_new(FALSE, TRUE, sizeof(Prediction)),
      .markdown = g_strv_contains((const char *const *) argv, "--markdown"),
      .detail = g_strv_contains((const char *const *) argv, "--detail"),
  };
  g_autoptr(GError) error = NULL;
  g_autofree char *folder = tables_folder();
  if (quick()) {
    printf("1..0 # SKIP HIGHWATER_QUICK is set\n");
    return 0;
  }
  if (folder == NULL) {
    printf("1..0 # SKIP the reference data are not here: set HIGHWATER_SHARED\n");
    return 0;
  }
  g_array_set_clear_func(score.predictions, clear_prediction);
  g_autoptr(GArray) rows = published_rows(folder, &error);
  if (rows == NULL) {
    printf("Bail out! %s\n", error->message);
    return 1;
  }
  for (guint i = 0; i < rows->len; i++) {
    const PublishedRow *row = &g_array_index(rows, PublishedRow, i);
    if (!is_asked_for(argv + 1, row))
      continue;
    Prediction p = predict_row(&score, row);
    g_array_append_val(score.predictions, p);
    if (!score.markdown)
      print_row(&p);
  }
  if (score.markdown)
    print_markdown(&score);
  else
    judge_all(&score);
  g_array_unref(score.predictions);
  return 0;
}

/* comparison.c - peaks, times and categories of two runs side by side. */
#include "report/comparison.h"
#include "report/comparison_parts.h"
#include <math.h>
#include <string.h>

/* ---- figures ---- */

/* A field of ReportModel, known where another one says so; or what a function gives. */
typedef struct {
  const char *key;
  FigureUnit unit;
  gsize value, known;                                       /* offsets: gint64, gboolean */
  gboolean (*get)(const ReportModel *model, gint64 *value); /* FALSE: not known */
} FigureKind;

static gboolean
construction(const ReportModel *model, gint64 *value)
{
  *value = model->recording->construction_allocated;
  return *value > 0;
}

static gboolean
at_rest(const ReportModel *model, gint64 *value)
{
  *value = model->recording->at_rest_bytes;
  return *value > 0;
}

static gboolean
retries(const ReportModel *model, gint64 *value)
{
  *value = model->allocator_retries;
  return model->has_memory && model->steps->len > 0;
}

static gboolean
collectives(const ReportModel *model, gint64 *value)
{
  for (guint i = 0; i < model->communication->len; i++)
    *value += g_array_index(model->communication, CommunicationSummary, i).count;
  return model->time.is_split;
}

static gboolean
collective_bytes(const ReportModel *model, gint64 *value)
{
  for (guint i = 0; i < model->communication->len; i++)
    *value += g_array_index(model->communication, CommunicationSummary, i).bytes;
  return *value > 0;
}

static gboolean
kernels(const ReportModel *model, gint64 *value)
{
  const StepSummary *step = report_model_last_step(model);
  const GArray *spans = model->recording->spans;
  for (guint i = 0; step && i < spans->len; i++) {
    const Span *span = &g_array_index(spans, Span, i);
    *value += span->kind == SPAN_KERNEL && span->step == step->index &&
              !recording_is_beyond(model->recording, span->phase - 1);
  }
  return model->time.is_split;
}

#define FIELD(key, unit, value, known)                                                             \
  {                                                                                                \
    key, unit, G_STRUCT_OFFSET(ReportModel, value), G_STRUCT_OFFSET(ReportModel, known), NULL      \
  }

static const FigureKind figure_kinds[] = {
    FIELD("peak_allocated", FIGURE_BYTES, peak_allocated, has_memory),
    FIELD("peak_reserved", FIGURE_BYTES, peak_reserved, has_memory),
    {"construction_allocated", FIGURE_BYTES, 0, 0, construction},
    {"at_rest", FIGURE_BYTES, 0, 0, at_rest},
    {"allocator_retries", FIGURE_COUNT, 0, 0, retries},
    FIELD("step_time", FIGURE_TIME, time.step, time.known),
    FIELD("compute", FIGURE_TIME, time.compute, time.is_split),
    FIELD("communication", FIGURE_TIME, time.communication, time.is_split),
    FIELD("exposed_communication", FIGURE_TIME, time.exposed, time.is_split),
    FIELD("rank_wait", FIGURE_TIME, time.rank_wait, time.is_split),
    FIELD("host_bound", FIGURE_TIME, time.host_bound, time.is_split),
    {"collectives", FIGURE_COUNT, 0, 0, collectives},
    {"collective_bytes", FIGURE_BYTES, 0, 0, collective_bytes},
    {"kernels", FIGURE_COUNT, 0, 0, kernels},
};

G_STATIC_ASSERT(G_N_ELEMENTS(figure_kinds) == COMPARISON_FIGURES);

static gboolean
get_figure(const FigureKind *kind, const ReportModel *model, gint64 *value)
{
  const char *base = (const char *) model;
  if (kind->get)
    return kind->get(model, value);
  *value = *(const gint64 *) (gconstpointer) (base + kind->value);
  return *(const gboolean *) (gconstpointer) (base + kind->known);
}

static void
compare_figures(Comparison *c)
{
  for (int i = 0; i < COMPARISON_FIGURES; i++) {
    FigureComparison *figure = &c->figures[i];
    figure->key = figure_kinds[i].key;
    figure->unit = figure_kinds[i].unit;
    for (int side = 0; side < SIDES; side++) {
      gint64 value = 0;
      figure->known[side] = get_figure(&figure_kinds[i], c->models[side], &value);
      figure->value[side] = figure->known[side] ? value : 0;
    }
  }
}

const char *
comparison_figure_key(int i, FigureUnit *unit)
{
  *unit = figure_kinds[i].unit;
  return figure_kinds[i].key;
}

const FigureComparison *
comparison_figure(const Comparison *c, const char *key)
{
  for (int i = 0; i < COMPARISON_FIGURES; i++)
    if (g_str_equal(c->figures[i].key, key))
      return &c->figures[i];
  return NULL;
}

gboolean
figure_is_known(const FigureComparison *figure)
{
  return figure->known[SIDE_A] && figure->known[SIDE_B];
}

double
figure_error(const FigureComparison *figure)
{
  gint64 a = figure->value[SIDE_A], b = figure->value[SIDE_B];
  return a == b ? 0 : a == 0 ? INFINITY : fabs((double) b - (double) a) / (double) a;
}

/* ---- categories ---- */

/* A measured run may know the sizes of what was alive, but not what for. */
static gboolean
knows_categories(const PeakRecord *peak)
{
  return peak->allocated > peak->categories[CATEGORY_OTHER];
}

static void
compare_categories(Comparison *c)
{
  c->has_categories = TRUE;
  for (int side = 0; side < SIDES; side++) {
    const PeakRecord *peak = &c->models[side]->recording->peak;
    c->has_categories = c->has_categories && knows_categories(peak);
    memcpy(c->categories[side], peak->categories, sizeof peak->categories);
  }
}

/* ---- all ---- */

gint32 *
comparison_string_map(const Recording *a, const Recording *b)
{
  gint32 *map = g_new(gint32, a->strings->len + 1);
  for (guint i = 0; i < a->strings->len; i++)
    map[i] = recording_find_string(b, g_ptr_array_index(a->strings, i));
  return map;
}

gboolean
comparison_counts(const Comparison *c, int side, const Span *span)
{
  return c->step[side] > 0 && span->step == c->step[side] &&
         !recording_is_beyond(c->models[side]->recording, span->phase - 1);
}

static gboolean
step_differs(const Comparison *c, const StepSummary *x, const StepSummary *y)
{
  const ReportModel *a = c->models[SIDE_A], *b = c->models[SIDE_B];
  if (x->complete != y->complete)
    return TRUE;
  if (a->time.known && b->time.known && x->duration != y->duration)
    return TRUE;
  return a->has_memory && b->has_memory &&
         (x->peak_allocated != y->peak_allocated || x->peak_reserved != y->peak_reserved);
}

static void
compare_steps(Comparison *c)
{
  const GArray *a = c->models[SIDE_A]->steps, *b = c->models[SIDE_B]->steps;
  c->step_differs = -1;
  for (guint i = 0; c->memory.all_steps && i < MIN(a->len, b->len) && c->step_differs < 0; i++)
    if (step_differs(c, &g_array_index(a, StepSummary, i), &g_array_index(b, StepSummary, i)))
      c->step_differs = (int) i;
}

static gboolean
times_are_same(const GArray *kernels)
{
  for (guint i = 0; i < kernels->len; i++) {
    const KernelComparison *k = &g_array_index(kernels, KernelComparison, i);
    if (k->time[SIDE_A] != k->time[SIDE_B] || k->count[SIDE_A] != k->count[SIDE_B])
      return FALSE;
  }
  return TRUE;
}

static gboolean
all_is_same(const Comparison *c)
{
  for (int i = 0; i < COMPARISON_FIGURES; i++)
    if (figure_is_known(&c->figures[i]) && figure_error(&c->figures[i]) > 0)
      return FALSE;
  gboolean same_categories =
      memcmp(c->categories[SIDE_A], c->categories[SIDE_B], sizeof c->categories[SIDE_A]) == 0;
  return (same_categories || !c->has_categories) && c->memory.verdict == MEMORY_SAME &&
         c->first_differs.lane < 0 && c->slowest.lane < 0 && times_are_same(c->kernels) &&
         times_are_same(c->modules) && c->step_differs < 0;
}

static void
lane_clear(gpointer data)
{
  g_free(((LaneComparison *) data)->communicator);
}

static void
kernel_clear(gpointer data)
{
  g_free(((KernelComparison *) data)->name);
}

Comparison *
comparison_new(const ReportModel *a, const ReportModel *b, ComparedSteps steps)
{
  Comparison *c = g_new0(Comparison, 1);
  c->models[SIDE_A] = a;
  c->models[SIDE_B] = b;
  for (int side = 0; side < SIDES; side++) {
    const StepSummary *step = report_model_last_step(c->models[side]);
    c->step[side] = step ? step->index : 0;
  }
  c->has_spans = a->time.is_split && b->time.is_split;
  c->lanes = g_array_new(FALSE, TRUE, sizeof(LaneComparison));
  g_array_set_clear_func(c->lanes, lane_clear);
  c->kernels = g_array_new(FALSE, TRUE, sizeof(KernelComparison));
  g_array_set_clear_func(c->kernels, kernel_clear);
  c->modules = g_array_new(FALSE, TRUE, sizeof(KernelComparison));
  g_array_set_clear_func(c->modules, kernel_clear);
  compare_figures(c);
  compare_categories(c);
  comparison_memory(c, steps);
  comparison_collectives(c);
  comparison_kernels(c);
  compare_steps(c);
  c->comparable = figure_is_known(comparison_figure(c, "peak_allocated")) ||
                  figure_is_known(comparison_figure(c, "step_time"));
  c->same = c->comparable && all_is_same(c);
  return c;
}

void
comparison_free(Comparison *c)
{
  if (!c)
    return;
  g_array_unref(c->lanes);
  g_array_unref(c->kernels);
  g_array_unref(c->modules);
  g_free(c);
}

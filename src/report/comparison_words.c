/* comparison_words.c - what a Comparison found, in words. */
#include "report/comparison_words.h"
#include "report/summary_text_parts.h"
#include <math.h>

/* ---- figures ---- */

char *
figure_label(const char *key)
{
  return g_strdelimit(g_strdup(key), "_", ' ');
}

char *
figure_format(FigureUnit unit, gint64 value)
{
  return unit == FIGURE_BYTES  ? format_bytes(value)
         : unit == FIGURE_TIME ? format_duration(value)
                               : format_grouped(value);
}

char *
figure_format_signed(FigureUnit unit, gint64 value)
{
  g_autofree char *size = figure_format(unit, ABS(value));
  return g_strconcat(value < 0 ? "-" : value > 0 ? "+" : "", size, NULL);
}

/* "peak allocated is 12.0 MiB (6.3 %) more in B: 204 MiB, in A 192 MiB". */
static char *
describe_figure(const FigureComparison *figure)
{
  gint64 a = figure->value[SIDE_A], b = figure->value[SIDE_B];
  g_autofree char *label = figure_label(figure->key);
  g_autofree char *in_a = figure_format(figure->unit, a);
  g_autofree char *in_b = figure_format(figure->unit, b);
  g_autofree char *by = figure_format(figure->unit, ABS(b - a));
  double error = figure_error(figure);
  g_autofree char *share = error < 0.0005 ? g_strdup("less than 0.1 %") : format_percent(error);
  g_autofree char *relative = isinf(error) ? g_strdup("") : g_strdup_printf(" (%s)", share);
  return g_strdup_printf("%s is %s%s %s in B: %s, in A %s", label, by, relative,
                         b > a ? "more" : "less", in_b, in_a);
}

/* Of the figures from first to last the one that differs most; NULL when none does. */
static const FigureComparison *
largest_difference(const Comparison *c, const char *const *keys)
{
  const FigureComparison *largest = NULL;
  for (; *keys; keys++) {
    const FigureComparison *figure = comparison_figure(c, *keys);
    if (figure_is_known(figure) && figure_error(figure) > 0 &&
        (!largest || figure_error(figure) > figure_error(largest)))
      largest = figure;
  }
  return largest;
}

/* ---- memory ---- */

/* The phase in which the host was: string id, -1 when it is not recorded. */
static gint32
phase_at(const Recording *recording, const MemoryEvent *event)
{
  gint32 name = -1;
  for (guint i = 0; i < recording->ranges->len; i++) {
    const Range *range = &g_array_index(recording->ranges, Range, i);
    if (range->kind == RECORDED_PHASE && range->step == event->step &&
        range->start <= event->time && event->time <= range->end)
      name = range->name;
  }
  return name;
}

static const MemoryEvent *
event_of(const Comparison *c, int side)
{
  gint64 i = c->memory.event[side];
  const GArray *memory = c->models[side]->recording->memory;
  return i < 0 ? NULL : &g_array_index(memory, MemoryEvent, (guint) i);
}

char *
comparison_memory_place(const Comparison *c, int side)
{
  const Recording *recording = c->models[side]->recording;
  const MemoryEvent *event = event_of(c, side);
  if (!event)
    return NULL;
  GString *place = g_string_new(NULL);
  report_append_place(recording, event->step, phase_at(recording, event), event->module, place);
  return g_string_free(place, FALSE);
}

char *
comparison_memory_event(const Comparison *c, int side)
{
  const MemoryEvent *event = event_of(c, side);
  if (!event)
    return g_strdup("does nothing more in this step");
  const Recording *recording = c->models[side]->recording;
  g_autofree char *size = format_bytes(ABS(event->block_bytes));
  g_autofree char *what = text_what_of_module(recording, event->what, event->module);
  GString *text = g_string_new(event->block_bytes > 0 ? "allocates " : "frees ");
  g_string_append_printf(text, "%s", size);
  if (what)
    g_string_append_printf(text, " %s %s", event->block_bytes > 0 ? "for" : "of", what);
  if (event->category != CATEGORY_OTHER || c->memory.by_category)
    g_string_append_printf(text, " (%s)", category_name(event->category));
  return g_string_free(text, FALSE);
}

char *
comparison_memory_verdict(const Comparison *c)
{
  guint n = c->memory.count;
  const char *plural = n == 1 ? "" : "s";
  switch (c->memory.verdict) {
  case MEMORY_SAME:
    return g_strdup("they are the same");
  case MEMORY_CHANGED:
    return n == 1 ? g_strdup("the next ones are the same")
                  : g_strdup_printf("%u events differ, the next ones are the same", n);
  case MEMORY_ONLY_A:
    return g_strdup_printf("%u event%s of A %s missing in B, the next ones are the same", n, plural,
                           n == 1 ? "is" : "are");
  case MEMORY_ONLY_B:
    return g_strdup_printf("%u event%s of B %s missing in A, the next ones are the same", n, plural,
                           n == 1 ? "is" : "are");
  default:
    return g_strdup("what follows differs, too");
  }
}

/* ---- collectives ---- */

char *
comparison_collective(const Comparison *c, const CollectivePair *pair, int side)
{
  const Recording *recording = c->models[side]->recording;
  if (pair->span[side] < 0)
    return g_strdup("none");
  const Span *span = &g_array_index(recording->spans, Span, (guint) pair->span[side]);
  g_autofree char *time = format_duration(span->end - span->start);
  g_autofree char *bytes = format_bytes(span->bytes);
  const char *module = report_text(recording, span->module, NULL);
  return g_strdup_printf("%s%s%s%s%s", span->bytes > 0 ? bytes : "one", module ? " of " : "",
                         module ? module : "", " in ", time);
}

char *
comparison_collective_name(const Comparison *c, const CollectivePair *pair)
{
  const LaneComparison *lane = &g_array_index(c->lanes, LaneComparison, (guint) pair->lane);
  gboolean named = lane->communicator && *lane->communicator;
  return g_strdup_printf("%s %u%s%s", lane->kind, pair->position + 1, named ? " of " : "",
                         named ? lane->communicator : "");
}

/* ---- the line ---- */

/* "", "; B has no memory", "; A has no steps". */
static char *
describe_missing(const Comparison *c, const char *key, const char *what)
{
  const FigureComparison *figure = comparison_figure(c, key);
  if (figure->known[SIDE_A] == figure->known[SIDE_B])
    return g_strdup("");
  return g_strdup_printf("; %c has no %s", figure->known[SIDE_A] ? 'B' : 'A', what);
}

/* Steps that one has beyond those of the other. */
static char *
describe_more_steps(const Comparison *c)
{
  guint a = c->models[SIDE_A]->steps->len, b = c->models[SIDE_B]->steps->len;
  return a == b || a == 0 || b == 0 ? g_strdup("")
                                    : g_strdup_printf("; A has %u steps, B %u", a, b);
}

static char *
describe_same(const Comparison *c)
{
  gboolean has_memory = figure_is_known(comparison_figure(c, "peak_allocated"));
  gboolean has_time = figure_is_known(comparison_figure(c, "step_time"));
  g_autofree char *no_memory = describe_missing(c, "peak_allocated", "memory");
  g_autofree char *no_steps = describe_missing(c, "step_time", "steps");
  g_autofree char *more = describe_more_steps(c);
  return g_strdup_printf("%s%s%s%s%s%s%s",
                         has_memory && !c->memory.known ? "the same peaks" : "the same",
                         has_memory ? " to the byte" : "", has_memory && has_time ? " and" : "",
                         has_time ? " to the nanosecond" : "", no_memory, no_steps, more);
}

/* The category whose bytes at the peak differ most, or -1. */
static int
largest_category(const Comparison *c)
{
  int largest = -1;
  gint64 most = 0;
  for (int i = 0; i < CATEGORY_COUNT && c->has_categories; i++) {
    gint64 difference = ABS(c->categories[SIDE_B][i] - c->categories[SIDE_A][i]);
    if (difference > most) {
      largest = i;
      most = difference;
    }
  }
  return largest;
}

static char *
describe_category(const Comparison *c, int category)
{
  g_autofree char *label = figure_label(category_name((Category) category));
  g_autofree char *a = format_bytes(c->categories[SIDE_A][category]);
  g_autofree char *b = format_bytes(c->categories[SIDE_B][category]);
  return g_strdup_printf("the peaks are the same, but %s at it: %s in A, %s in B", label, a, b);
}

/* A step before the one whose times are compared. */
static char *
describe_step(const Comparison *c)
{
  const StepSummary *a =
      &g_array_index(c->models[SIDE_A]->steps, StepSummary, (guint) c->step_differs);
  const StepSummary *b =
      &g_array_index(c->models[SIDE_B]->steps, StepSummary, (guint) c->step_differs);
  g_autofree char *in_a = format_duration(a->duration), *in_b = format_duration(b->duration);
  if (a->duration != b->duration)
    return g_strdup_printf("the peaks are the same, but step %d takes %s in A, %s in B", a->index,
                           in_a, in_b);
  return g_strdup_printf("step %d has other peaks, or is complete on one side only", a->index);
}

/* What differs when peaks and step times do not. */
static char *
describe_detail(const Comparison *c)
{
  static const char *const others[] = {"construction_allocated",
                                       "at_rest",
                                       "allocator_retries",
                                       "compute",
                                       "communication",
                                       "exposed_communication",
                                       "rank_wait",
                                       "host_bound",
                                       "collectives",
                                       "collective_bytes",
                                       "kernels",
                                       NULL};
  int category = largest_category(c);
  if (category >= 0)
    return describe_category(c, category);
  if (c->memory.verdict != MEMORY_SAME) {
    int side = c->memory.event[SIDE_A] >= 0 ? SIDE_A : SIDE_B;
    g_autofree char *place = comparison_memory_place(c, side);
    return g_strdup_printf("the peaks are the same, but not all allocations: first in %s", place);
  }
  if (c->step_differs >= 0)
    return describe_step(c);
  if (c->first_differs.lane >= 0) {
    g_autofree char *name = comparison_collective_name(c, &c->first_differs);
    return g_strdup_printf("peaks and step times are the same, but not all collectives: first %s",
                           name);
  }
  const FigureComparison *figure = largest_difference(c, others);
  return figure ? describe_figure(figure)
                : g_strdup("peaks and step times are the same, what goes on inside is not");
}

char *
comparison_headline(const Comparison *c)
{
  static const char *const main_keys[] = {"peak_allocated", "peak_reserved", "step_time", NULL};
  const FigureComparison *figure = largest_difference(c, main_keys);
  if (!c->comparable)
    return g_strdup("there is nothing that both record: neither memory nor steps");
  if (c->same)
    return describe_same(c);
  if (!figure)
    return describe_detail(c);
  char *line = describe_figure(figure);
  if (figure->unit == FIGURE_TIME && c->memory.known && c->memory.verdict == MEMORY_SAME) {
    char *whole = g_strconcat(line, "; memory is the same to the byte", NULL);
    g_free(line);
    return whole;
  }
  return line;
}

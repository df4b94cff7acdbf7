/* summary_text.c - the answer: does it fit, where is the peak, how long is a step. */
#include "report/summary_text_parts.h"
#include <string.h>

enum { LABEL_WIDTH = 8 };

static const Glyphs utf8_glyphs = {" · ", " × ", "█"};
static const Glyphs ascii_glyphs = {" - ", " x ", "#"};

const TextUnit *
text_unit_for(gint64 largest)
{
  static const TextUnit units[] = {{"GiB", GIB}, {"MiB", MIB}, {"KiB", KIB}};
  for (guint i = 0; i < G_N_ELEMENTS(units); i++)
    if (largest >= units[i].bytes)
      return &units[i];
  return &units[G_N_ELEMENTS(units) - 1];
}

char *
text_unit_format(const TextUnit *unit, gint64 bytes)
{
  return g_strdup_printf("%.2f", (double) bytes / (double) unit->bytes);
}

char *
text_what_of_module(const Recording *recording, gint32 what, gint32 module)
{
  const char *name = report_text(recording, what, NULL);
  const char *path = report_text(recording, module, NULL);
  /* Parameters are named by their path already. */
  if (name && path && !strstr(name, path))
    return g_strdup_printf("%s of %s", name, path);
  return g_strdup(name ? name : path);
}

void
text_take_row(TextTable *table, char **cells, guint count)
{
  text_table_row_array(table, (const char *const *) cells);
  for (guint i = 0; i < count; i++)
    g_free(cells[i]);
}

static void
print_heading(const Screen *screen)
{
  const RunInfo *info = screen->model->info;
  const Glyphs *glyphs = screen->glyphs;
  if (!info->model) {
    g_string_append_printf(screen->out, "%s\n\n", screen->model->recording->title);
    return;
  }
  g_string_append(screen->out, info->model);
  if (info->parameters > 0) {
    g_autofree char *parameters = format_count(info->parameters);
    g_string_append_printf(screen->out, "%s%s parameters", glyphs->separator, parameters);
  }
  if (info->trainable_parameters < info->parameters) {
    g_autofree char *trainable = format_count(info->trainable_parameters);
    g_string_append_printf(screen->out, " (%s train)", trainable);
  }
  g_string_append_printf(screen->out, "%s%s over %d%s%s", glyphs->separator,
                         info->strategy ? info->strategy : "no plan",
                         MAX(info->shard * info->replicate, 1), glyphs->times,
                         info->device ? info->device : "an unknown device");
  if (info->nodes > 0)
    g_string_append_printf(screen->out, " (%d node%s)", info->nodes, info->nodes > 1 ? "s" : "");
  if (info->micro_batch > 0) {
    g_string_append(screen->out, glyphs->separator);
    if (info->accumulation_steps > 1)
      g_string_append_printf(screen->out, "%d%s", info->accumulation_steps, glyphs->times);
    g_string_append_printf(screen->out, "%d%s%d tokens per rank", info->micro_batch, glyphs->times,
                           info->sequence_length);
  }
  if (info->checkpointing)
    g_string_append_printf(screen->out, "%s%s checkpointing", glyphs->separator,
                           g_str_equal(info->checkpointing, "none") ? "no" : info->checkpointing);
  if (info->compile && g_str_equal(info->compile, "per_block"))
    g_string_append_printf(screen->out, "%scompiled blocks", glyphs->separator);
  g_string_append(screen->out, "\n\n");
}

/* The word that answers, padded so that what follows it lines up. */
static void
print_label(const Screen *screen, const char *label, const char *colour)
{
  if (screen->style->colour && colour)
    g_string_append_printf(screen->out, "\033[1;%sm%s\033[0m", colour, label);
  else
    g_string_append(screen->out, label);
  int padding = MAX(LABEL_WIDTH - (int) strlen(label), 2);
  g_string_append_printf(screen->out, "%*s", padding, "");
}

static void
print_retries(const Screen *screen)
{
  gint64 retries = screen->model->allocator_retries;
  const StepSummary *last = report_model_last_step(screen->model);
  if (retries == 0)
    g_string_append(screen->out, "; no allocator retries");
  else
    g_string_append_printf(screen->out,
                           "; %" G_GINT64_FORMAT " allocator retr%s, %" G_GINT64_FORMAT
                           " in the last step, and each stops the device",
                           retries, retries == 1 ? "y" : "ies", last ? last->allocator_retries : 0);
}

static void
print_verdict(const Screen *screen)
{
  static const struct {
    const char *label, *colour;
  } verdicts[] = {
      [VERDICT_FITS] = {"FITS", "32"},
      [VERDICT_FITS_WITH_RETRIES] = {"FITS, SLOWLY", "33"},
      [VERDICT_DOES_NOT_FIT] = {"DOES NOT FIT", "31"},
  };
  const ReportModel *model = screen->model;
  gboolean is_asked = model->is_simulated || model->recording->capacity_bytes < G_MAXINT64 ||
                      model->verdict == VERDICT_DOES_NOT_FIT;
  print_label(screen, is_asked ? verdicts[model->verdict].label : "MEMORY",
              is_asked ? verdicts[model->verdict].colour : NULL);
  if (!model->has_memory) {
    g_string_append(screen->out, "not recorded\n");
    return;
  }
  g_autofree char *failure = report_model_out_of_memory(model);
  if (failure) {
    g_string_append_printf(screen->out, "%s\n", failure);
    return;
  }
  g_autofree char *reserved = format_bytes(model->peak_reserved);
  g_autofree char *capacity = format_bytes(model->recording->capacity_bytes);
  g_autofree char *room = format_bytes(model->headroom);
  if (model->recording->capacity_bytes < G_MAXINT64)
    g_string_append_printf(screen->out, "%s reserved of %s, %s to spare", reserved, capacity, room);
  else
    g_string_append_printf(screen->out, "%s reserved%s", reserved,
                           model->is_simulated ? ", of memory without limit" : "");
  if (model->info->rank_without_room >= 0)
    g_string_append_printf(screen->out, " on rank %d, but rank %d runs out of memory",
                           model->info->rank, model->info->rank_without_room);
  if (model->is_simulated || model->allocator_retries > 0)
    print_retries(screen);
  const StepSummary *last = report_model_last_step(model);
  const StepSummary *first =
      model->steps->len > 0 ? &g_array_index(model->steps, StepSummary, 0) : NULL;
  if (last && first != last && first->peak_reserved != last->peak_reserved) {
    g_autofree char *at_first = format_bytes(first->peak_reserved);
    if (!g_str_equal(at_first, reserved))
      g_string_append_printf(screen->out, "; first step %s", at_first);
  }
  g_string_append_c(screen->out, '\n');
}

static void
print_peak(const Screen *screen)
{
  const Recording *recording = screen->model->recording;
  const PeakRecord *peak = &recording->peak;
  g_autofree char *allocated = format_bytes(peak->allocated);
  if (!screen->model->has_memory)
    return;
  print_label(screen, "PEAK", NULL);
  g_string_append_printf(screen->out, "%s allocated", allocated);
  if (report_model_knows_place(screen->model)) {
    g_string_append(screen->out, " in ");
    report_append_place(recording, peak->step, peak->phase, peak->module, screen->out);
  } else {
    g_autofree char *time = format_duration(peak->time);
    g_string_append_printf(screen->out, " %s after the beginning", time);
  }
  if (screen->model->info->accumulation_steps > 1 && peak->step > 0)
    g_string_append_printf(screen->out, ", micro-batch %d", peak->micro_batch);
  g_string_append_c(screen->out, '\n');
}

static void
print_bound(const Screen *screen)
{
  const TimeSummary *time = &screen->model->time;
  SimTime shares[] = {[BOUND_COMPUTE] = time->compute,
                      [BOUND_COMMUNICATION] = time->exposed,
                      [BOUND_RANKS] = time->rank_wait,
                      [BOUND_HOST] = time->host_bound};
  g_string_append_printf(screen->out, "%sbound by %s (%.0f %%), ", screen->glyphs->separator,
                         report_bound_name(time->bound),
                         100.0 * (double) shares[time->bound] / (double) MAX(time->step, 1));
  if (time->exposed > 0) {
    g_autofree char *exposed = format_duration(time->exposed);
    g_string_append_printf(screen->out, "%s of communication exposed", exposed);
  } else {
    g_string_append(screen->out,
                    time->communication > 0 ? "no communication exposed" : "no communication");
  }
}

/* What made the step longer than its parts. */
static void
print_losses(const Screen *screen)
{
  const TimeSummary *time = &screen->model->time;
  const struct {
    SimTime time;
    const char *what;
  } losses[] = {{time->rank_wait, "of waiting for other ranks"},
                {time->contention, "lost to contention"},
                {time->rate_limited, "of gaps made by the rate limiter"},
                {time->allocator, "lost to cudaMalloc and cudaFree"}};
  for (guint i = 0; i < G_N_ELEMENTS(losses); i++) {
    if (losses[i].time == 0)
      continue;
    g_autofree char *lost = format_duration(losses[i].time);
    g_string_append_printf(screen->out, "%s%s %s", screen->glyphs->separator, lost, losses[i].what);
  }
}

static void
print_step(const Screen *screen)
{
  const TimeSummary *time = &screen->model->time;
  const char *separator = screen->glyphs->separator;
  print_label(screen, "STEP", NULL);
  if (!time->known) {
    gboolean has_steps = screen->model->is_simulated || screen->model->steps->len > 0;
    g_string_append(screen->out, has_steps ? "no step was completed\n" : "not recorded\n");
    return;
  }
  g_autofree char *step = format_duration(time->step);
  g_string_append(screen->out, step);
  if (time->tokens_per_s > 0) {
    g_autofree char *tokens = format_grouped((gint64) (time->tokens_per_s + 0.5));
    g_string_append_printf(screen->out, "%s%s tokens/s per GPU", separator, tokens);
  }
  if (time->mfu > 0)
    g_string_append_printf(screen->out, "%sMFU %.0f %%", separator, 100 * time->mfu);
  if (time->is_split) {
    print_bound(screen);
    print_losses(screen);
  }
  g_string_append_c(screen->out, '\n');
}

/* Which ranks were simulated, and for whom the others wait. */
static void
print_ranks(const Screen *screen)
{
  const RunInfo *info = screen->model->info;
  const RanksInfo *ranks = &info->ranks;
  const char *separator = screen->glyphs->separator;
  if (ranks->ranks == 0)
    return;
  print_label(screen, "RANKS", NULL);
  g_autofree char *waited = format_duration(ranks->waited);
  g_string_append_printf(screen->out, "%d of %d simulated%sthis is rank %d", ranks->simulated,
                         ranks->ranks, separator, info->rank);
  if (ranks->described_class > 1)
    g_string_append_printf(screen->out, " and %d like it", ranks->described_class - 1);
  if (ranks->step_of_equals == 0) {
    g_string_append_printf(screen->out, "%sall are equally fast\n", separator);
    return;
  }
  if (ranks->simulated > 1)
    g_string_append_printf(screen->out, "%sslowest is rank %d", separator, ranks->slowest);
  if (ranks->slowest_compute != 1)
    g_string_append_printf(screen->out, " (compute %g times as long)", ranks->slowest_compute);
  g_string_append_printf(screen->out, "%sits collectives wait %s a step for others", separator,
                         waited);
  SimTime cost = screen->model->time.step - ranks->step_of_equals;
  if (ranks->step_of_equals > 0 && screen->model->time.known && cost > 0) {
    g_autofree char *longer = format_duration(cost);
    g_string_append_printf(screen->out, "%s%s longer than with equal ranks", separator, longer);
  }
  g_string_append_c(screen->out, '\n');
}

static Screen
screen_of(const ReportModel *model, const TextStyle *style, GString *out)
{
  return (Screen){
      .model = model,
      .style = style,
      .glyphs = style->ascii ? &ascii_glyphs : &utf8_glyphs,
      .out = out,
  };
}

void
summary_text_answer(const ReportModel *model, const TextStyle *style, GString *out)
{
  const Screen screen = screen_of(model, style, out);
  print_heading(&screen);
  print_verdict(&screen);
  print_peak(&screen);
  print_step(&screen);
  print_ranks(&screen);
}

void
summary_text(const ReportModel *model, const TextStyle *style, GString *out)
{
  const Screen screen = screen_of(model, style, out);
  summary_text_answer(model, style, out);
  text_explain(&screen);
  if (style->verbose)
    text_tables(&screen);
  if (model->info->failure != NULL)
    text_failure(&screen, model->info->failure);
  text_footer(&screen);
}

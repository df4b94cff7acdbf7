/* check_fit.c - lines through measured times: known ones are found again in noise and among
 * outliers, the simplest that explains unseen samples is chosen, predictions are monotone,
 * percentiles and errors by hand. */
#include "base/units.h"
#include "calibrate/fit.h"
#include "tap_main.h"
#include <math.h>

/* Noise of a fixed sequence (Lehmer's generator), uniform in [-1, 1]. */
static double
noise(guint32 *state)
{
  *state = (guint32) ((guint64) *state * 48271 % 2147483647);
  return 2.0 * *state / 2147483647 - 1;
}

#define SIZES 28 /* 8 B to 1 GiB */

static void
sample_fit(const Fit *truth, double amount, FitSample samples[SIZES])
{
  guint32 state = 12345;
  for (int i = 0; i < SIZES; i++) {
    gint64 bytes = (gint64) 8 << i;
    samples[i] = (FitSample){bytes, fit_time_us(truth, bytes) * (1 + amount * noise(&state))};
  }
}

/* 100 GB/s are 1e-5 us a byte. */
static const Fit truths[FIT_MODEL_COUNT] = {
    [FIT_AB] = {FIT_AB, 1, {{20, 1e-5}}},
    [FIT_MIN2] = {FIT_MIN2, 2, {{10, 2e-4}, {40, 1e-5}}},
    [FIT_MIN3] = {FIT_MIN3, 3, {{10, 1e-3}, {25, 1e-4}, {120, 5e-6}}},
    [FIT_MIN4] = {FIT_MIN4, 4, {{5, 2e-2}, {15, 1e-3}, {60, 1e-4}, {400, 1e-5}}},
};

START_TEST(known_lines_are_found_in_noise)
{
  const Fit *truth = &truths[_i];
  FitSample samples[SIZES];
  sample_fit(truth, 0.01, samples);
  Fit fit = fit_model(truth->model, samples, SIZES);
  ck_assert_int_eq(fit.n_lines, truth->n_lines);
  for (int i = 0; i < fit.n_lines; i++) {
    ck_assert_double_eq_tol(fit.lines[i].alpha_us / truth->lines[i].alpha_us, 1, 0.03);
    ck_assert_double_eq_tol(fit.lines[i].slope / truth->lines[i].slope, 1, 0.03);
  }
  ck_assert_double_le(fit_errors(&fit, samples, SIZES).worst, 0.02);
}
END_TEST

START_TEST(outliers_do_not_move_a_line)
{
  FitSample samples[SIZES];
  sample_fit(&truths[FIT_MIN2], 0, samples);
  samples[0].time_us *= 50; /* the first size carries the set-up of connections */
  samples[9].time_us *= 3;
  samples[20].time_us *= 2;
  Fit fit = fit_model(FIT_MIN2, samples, SIZES);
  for (int i = 0; i < 2; i++) {
    ck_assert_double_eq_tol(fit.lines[i].alpha_us / truths[FIT_MIN2].lines[i].alpha_us, 1, 0.03);
    ck_assert_double_eq_tol(fit.lines[i].slope / truths[FIT_MIN2].lines[i].slope, 1, 0.03);
  }
  FitErrors errors = fit_errors(&fit, samples, SIZES);
  ck_assert_double_le(errors.median, 0.01);
  ck_assert_int_eq(errors.worst_bytes, 8);
  ck_assert_double_eq_tol(errors.worst, 1 - 1 / 50.0, 0.01);
}
END_TEST

START_TEST(the_order_of_samples_plays_no_role)
{
  FitSample samples[SIZES], reversed[SIZES];
  sample_fit(&truths[FIT_MIN3], 0.02, samples);
  for (int i = 0; i < SIZES; i++)
    reversed[i] = samples[SIZES - 1 - i];
  double a_holdout, b_holdout;
  Fit a = fit_choose(samples, SIZES, &a_holdout), b = fit_choose(reversed, SIZES, &b_holdout);
  ck_assert_mem_eq(&a, &b, sizeof a);
  ck_assert_double_eq(a_holdout, b_holdout);
}
END_TEST

START_TEST(what_is_chosen_predicts_what_it_has_not_seen)
{
  FitSample samples[SIZES];
  double holdout;
  sample_fit(&truths[_i], 0.01, samples);
  fit_choose(samples, SIZES, &holdout);
  ck_assert_double_le(holdout, 0.02);
}
END_TEST

START_TEST(one_line_does_not_explain_three)
{
  FitSample samples[SIZES];
  sample_fit(&truths[FIT_MIN3], 0.01, samples);
  ck_assert_int_eq(fit_choose(samples, SIZES, NULL).model, FIT_MIN3);
  Fit one = fit_model(FIT_AB, samples, SIZES);
  ck_assert_double_ge(fit_errors(&one, samples, SIZES).median, 0.1);
}
END_TEST

START_TEST(predictions_are_monotone)
{
  FitSample samples[SIZES];
  sample_fit(&truths[FIT_MIN3], 0.4, samples);
  Fit fit = fit_model((FitModel) _i, samples, SIZES);
  double before = 0;
  for (double bytes = 1; bytes < 1e13; bytes *= 1.1) {
    double time = fit_time_us(&fit, (gint64) bytes);
    ck_assert_double_ge(time, before);
    before = time;
  }
}
END_TEST

START_TEST(a_few_samples_are_enough)
{
  const FitSample samples[] = {{1000000, 30}, {2000000, 40}, {1000000, 30}, {4000000, 60}};
  for (guint n = 1; n <= G_N_ELEMENTS(samples); n++) {
    double holdout;
    Fit fit = fit_choose(samples, n, &holdout);
    ck_assert_double_le(fit_errors(&fit, samples, n).worst, 0.01);
    ck_assert(isnan(holdout) == (n < 4));
  }
}
END_TEST

/* 1/|x| of the line must stay finite: bandwidths are printed. */
START_TEST(flat_times_have_a_slope)
{
  const FitSample samples[] = {{1000, 50}, {2000, 50}, {4000, 50}, {8000, 50}, {16000, 50}};
  Fit fit = fit_choose(samples, G_N_ELEMENTS(samples), NULL);
  ck_assert_double_gt(fit.lines[0].slope, 0);
  ck_assert_double_eq_tol(fit_time_us(&fit, 4000), 50, 0.1);
}
END_TEST

START_TEST(percentiles_lie_between_values)
{
  double values[] = {4, 1, 3, 2};
  ck_assert_double_eq(fit_percentile(values, 4, 0.5), 2.5);
  ck_assert_double_eq(fit_percentile(values, 4, 0), 1);
  ck_assert_double_eq(fit_percentile(values, 4, 1), 4);
  ck_assert_double_eq_tol(fit_percentile(values, 4, 0.9), 3.7, 1e-12);
  ck_assert_double_eq(fit_percentile(values, 1, 0.9), 1);
  ck_assert(isnan(fit_percentile(values, 0, 0.5)));
}
END_TEST

START_TEST(errors_are_fractions_of_what_was_measured)
{
  const Fit fit = {FIT_AB, 1, {{10, 1}}};
  const FitSample samples[] = {{10, 20}, {10, 25}, {10, 10}}; /* all predicted as 20 */
  FitErrors errors = fit_errors(&fit, samples, G_N_ELEMENTS(samples));
  ck_assert_double_eq_tol(errors.median, 0.2, 1e-12);
  ck_assert_double_eq_tol(errors.worst, 1, 1e-12);
  ck_assert_int_eq(errors.worst_bytes, 10);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("fit");
  TCase *tcase = tcase_create("fit");

  suite_add_tcase(suite, tcase);
  tcase_add_loop_test(tcase, known_lines_are_found_in_noise, 0, FIT_MODEL_COUNT);
  tcase_add_test(tcase, outliers_do_not_move_a_line);
  tcase_add_test(tcase, the_order_of_samples_plays_no_role);
  tcase_add_loop_test(tcase, what_is_chosen_predicts_what_it_has_not_seen, 0, FIT_MODEL_COUNT);
  tcase_add_test(tcase, one_line_does_not_explain_three);
  tcase_add_loop_test(tcase, predictions_are_monotone, 0, FIT_MODEL_COUNT);
  tcase_add_test(tcase, a_few_samples_are_enough);
  tcase_add_test(tcase, flat_times_have_a_slope);
  tcase_add_test(tcase, percentiles_lie_between_values);
  tcase_add_test(tcase, errors_are_fractions_of_what_was_measured);
  return suite;
}

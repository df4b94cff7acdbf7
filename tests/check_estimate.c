/* check_estimate.c - model states by formulas: ZeRO's accounting against its paper, DeepSpeed's
 * estimators against figures that they print, and strategies' own states against both. */
#include "base/units.h"
#include "cli/estimate.h"
#include "tap_main.h"
#include <string.h>

static double
gib(gint64 bytes)
{
  return (double) bytes / (double) GIB;
}

/* ---- ZeRO's accounting */

/* 7.5 billion parameters on 64 devices, arXiv 1910.02054, figure 1: 120, 31.4, 16.6 and 1.9 GB. */
START_TEST(the_paper_s_example_comes_out)
{
  static const double gigabytes[ZERO_STAGES] = {120, 31.4, 16.6, 1.9};
  ZeroStates s = zero_states(_i, G_GINT64_CONSTANT(7500000000), 64);
  ck_assert_double_eq_tol((s.parameters + s.gradients + s.optimizer) / 1e9, gigabytes[_i], 0.05);
}
END_TEST

/* On many devices the stages save 4, 8 and d times; only the last sends more, half as much again.
 */
START_TEST(stages_save_4_8_and_d_times)
{
  const int d = 1 << 14;
  double bytes[ZERO_STAGES], sent[ZERO_STAGES];
  for (int stage = 0; stage < ZERO_STAGES; stage++) {
    ZeroStates s = zero_states(stage, 1 << 30, d);
    bytes[stage] = s.parameters + s.gradients + s.optimizer;
    sent[stage] = s.sent;
  }
  ck_assert_double_eq_tol(bytes[0] / bytes[1], 4, 0.01);
  ck_assert_double_eq_tol(bytes[0] / bytes[2], 8, 0.01);
  ck_assert_double_eq(bytes[0] / bytes[3], d);
  ck_assert(sent[0] == 2 && sent[1] == 2 && sent[2] == 2 && sent[3] == 3);
}
END_TEST

/* ---- DeepSpeed's estimators */

/* t5-3b on eight devices of a node: what the estimators print, in GiB. */
static const EstimatedModel t5_3b = {2851598336, 32899072, 8, 1};
static const struct {
  EstimatedOffload offload;
  double device, host;
} printed[] = {
    {{2, FALSE, FALSE, FALSE}, 11.29, 127.48}, {{2, TRUE, FALSE, FALSE}, 5.31, 127.48},
    {{3, FALSE, FALSE, TRUE}, 6.10, 1.47},     {{3, FALSE, FALSE, FALSE}, 6.10, 127.48},
    {{3, TRUE, FALSE, TRUE}, 0.79, 63.74},     {{3, TRUE, FALSE, FALSE}, 0.79, 127.48},
    {{3, TRUE, TRUE, TRUE}, 0.12, 71.71},      {{3, TRUE, TRUE, FALSE}, 0.12, 127.48},
};

START_TEST(the_estimators_figures_for_t5_3b_come_out)
{
  StateEstimate s = deepspeed_estimate(&t5_3b, &printed[_i].offload);
  ck_assert_double_eq_tol(gib(s.device), printed[_i].device, 0.005);
  ck_assert_double_eq_tol(gib(s.host), printed[_i].host, 0.005);
}
END_TEST

/* Older documentation says 4 N + 16 N / d for ZeRO-2, 15.93 GiB here, not 2 N + 18 N / d. */
START_TEST(the_older_formula_of_zero_2_is_not_used)
{
  double n = (double) t5_3b.parameters, older = 4 * n + 16 * n / 8;
  StateEstimate s = deepspeed_estimate(&t5_3b, &printed[0].offload);
  ck_assert_double_eq_tol(older / (double) GIB, 15.93, 0.005);
  ck_assert_double_eq_tol((double) s.device, 2 * n + 18 * n / 8, 1);
}
END_TEST

/* More nodes divide what each keeps; ZeRO-2's host memory grows with all devices. */
START_TEST(nodes_divide_what_is_offloaded)
{
  const EstimatedModel two = {1000, 10, 8, 2};
  const EstimatedOffload all = {3, TRUE, TRUE, TRUE}, stage2 = {2, TRUE, FALSE, FALSE};
  ck_assert_int_eq(deepspeed_estimate(&two, &all).host, 1000 * 18 * 3 / 2 / 2);
  ck_assert_int_eq(deepspeed_estimate(&two, &all).device, 40);
  ck_assert_int_eq(deepspeed_estimate(&two, &stage2).host, 1000 * 64 * 3 / 2);
}
END_TEST

/* ---- strategies, lowered */

static const StrategyStates *
strategy_of(const Estimate *e, const char *name)
{
  for (guint i = 0; i < e->strategies->len; i++) {
    const StrategyStates *s = &g_array_index(e->strategies, StrategyStates, i);
    if (strcmp(s->strategy, name) == 0)
      return s;
  }
  ck_abort_msg("no row of %s", name);
}

/* Master weights and Adam are 12 bytes a parameter, whole or of a rank. */
START_TEST(strategies_keep_what_the_accounting_divides)
{
  g_autofree char *models = test_source_path("models");
  g_setenv("HIGHWATER_MODELS", models, FALSE);
  const EstimateRequest request = {.ranks = 8, .gpus_per_node = 8};
  g_autoptr(Estimate) e = estimate_new(&request, "llama-2-7b", NULL);
  double n = (double) e->size.parameters;
  ck_assert_int_eq(e->size.largest_layer, (gint64) 32000 * 4096); /* embedding or output */
  const struct {
    const char *name;
    double parameters, optimizer, sent;
  } expected[] = {
      {"ddp", 4, 8, 2},
      {"zero0", 2, 12, 2},
      {"zero1", 2, 1.5, 3},
      {"zero2", 2, 1.5, 3},
  };
  for (guint i = 0; i < G_N_ELEMENTS(expected); i++) {
    const StrategyStates *s = strategy_of(e, expected[i].name);
    ck_assert_double_eq_tol((double) s->bytes[CATEGORY_PARAMETER] / n, expected[i].parameters,
                            1e-6);
    ck_assert_double_eq_tol((double) s->bytes[CATEGORY_OPTIMIZER_STATE] / n, expected[i].optimizer,
                            1e-3);
    ck_assert_double_eq_tol(s->sent, expected[i].sent, 1e-3);
    ck_assert_int_eq(s->bytes[CATEGORY_ACTIVATION], 0);
  }
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("estimate");
  TCase *formulas = tcase_create("formulas"), *lowered = tcase_create("strategies");
  tcase_set_timeout(lowered, 60);
  tcase_add_loop_test(formulas, the_paper_s_example_comes_out, 0, ZERO_STAGES);
  tcase_add_test(formulas, stages_save_4_8_and_d_times);
  tcase_add_loop_test(formulas, the_estimators_figures_for_t5_3b_come_out, 0,
                      G_N_ELEMENTS(printed));
  tcase_add_test(formulas, the_older_formula_of_zero_2_is_not_used);
  tcase_add_test(formulas, nodes_divide_what_is_offloaded);
  tcase_add_test(lowered, strategies_keep_what_the_accounting_divides);
  suite_add_tcase(suite, formulas);
  suite_add_tcase(suite, lowered);
  return suite;
}

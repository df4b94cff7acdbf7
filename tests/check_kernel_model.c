/* check_kernel_model.c - durations of kernels on a made-up device with round numbers: the
 * roofline's limits, floors and gaps, tiles and waves worked out on paper, monotone in everything.
 */
#include "compute/kernel_model.h"

#include <math.h>

#include "compute/straggler.h"
#include "history.h"
#include "tap_main.h"

/* 100 SMs, 400 TFLOP/s in bf16 of which products reach 320, 40 in fp32, 1 TB/s of which 800 GB/s
 * are reached: 1 us is 320 MFLOP of products, or 800 kB. */
static const DeviceProfile device = {
    .sms = 100,
    .peak_bf16_flops = 400e12,
    .peak_fp16_flops = 400e12,
    .peak_fp32_flops = 40e12,
    .gemm_efficiency = 0.8,
    .gemm_in_step = 1,
    .gemm_prologue = 128,
    .gemm_split_k = 1,
    .gemm_tiles = 4,
    .gemm_tile = {{256, 128, 1}, {128, 128, 0.93}, {128, 64, 0.8}, {64, 64, 0.62}},
    .attention_rates = 4,
    .attention = {{FUSED_FLASH2, 128, 60e12, 50e12, 350, 700},
                  {FUSED_FLASH2, 64, 40e12, 30e12, 350, 700},
                  {FUSED_CUDNN, 128, 120e12, 100e12, 350, 350},
                  {FUSED_EFFICIENT, 64, 20e12, 10e12, 0, 0}},
    .power_limit = 400,
    .power_reference = 400,
    .power_idle = 100,
    .power_exponent = 0.5,
    .clock_spread = 0.02,
    .memory_bandwidth = 1e12,
    .memory_efficiency = 0.8,
    .host_copy_bandwidth = 20e9,
    .kernel_floor_ns = 3000,
    .kernel_gap_ns = 1500,
};

static Kernel
gemm(gint64 m, gint64 n, gint64 k)
{
  return (Kernel){.kind = KERNEL_GEMM,
                  .dtype = DTYPE_BF16,
                  .launches = 1,
                  .m = m,
                  .n = n,
                  .k = k,
                  .flops = 2.0 * (double) m * (double) n * (double) k,
                  .bytes = 2.0 * (double) (m * n + m * k + n * k)};
}

static Kernel
attention(KernelKind kind, gint64 length)
{
  /* 32 heads of 128: 4 s^2 d flops each. */
  double flops = 32 * 4.0 * (double) length * (double) length * 128;

  return (Kernel){.kind = (guint8) kind,
                  .dtype = DTYPE_BF16,
                  .launches = 1,
                  .m = 32,
                  .n = length,
                  .k = 128,
                  .flops = flops,
                  .bytes = 32 * 4.0 * (double) length * 128 * 2};
}

static double
duration_on(const DeviceProfile *profile, int ranks, Kernel kernel)
{
  KernelModel model = kernel_model(profile, &(KernelRun){.ranks = ranks});

  return (double) kernel_model_duration(&model, &kernel);
}

static double
duration(Kernel kernel)
{
  return duration_on(&device, 1, kernel);
}

/* Without the gap after it. */
static double
busy(Kernel kernel)
{
  return duration(kernel) - 1500.0 * kernel.launches;
}

/* ---- memory ---- */

START_TEST(a_kernel_without_arithmetic_takes_its_bytes_over_the_reached_bandwidth)
{
  Kernel kernel = {.kind = (guint8) _i, .dtype = DTYPE_BF16, .launches = 1, .bytes = 8e9};

  if (kernel.kind == KERNEL_COPY) /* which is bound by the link to the host: 20 GB/s */
    ck_assert_double_eq(duration(kernel), 400e6 + 1500);
  else
    ck_assert_double_eq(duration(kernel), 10e6 + 1500);
}
END_TEST

START_TEST(a_small_kernel_takes_the_floor_and_the_gap)
{
  Kernel kernel = {.kind = (guint8) _i, .launches = 1, .n = 1, .bytes = 100, .flops = 100};

  ck_assert_double_eq(duration(kernel), 3000 + 1500);
}
END_TEST

START_TEST(each_launch_has_its_floor_and_its_gap)
{
  Kernel small = {.kind = KERNEL_MEMORY, .launches = 7, .bytes = 100};
  Kernel large = {.kind = KERNEL_OPTIMIZER, .launches = 7, .bytes = 8e9};

  ck_assert_double_eq(duration(small), 7 * 4500);
  ck_assert_double_eq(duration(large), 10e6 + 7 * 1500);
}
END_TEST

START_TEST(arithmetic_outside_products_runs_at_the_fp32_peak)
{
  Kernel kernel = {.kind = KERNEL_MEMORY, .launches = 1, .bytes = 100, .flops = 1e9};

  ck_assert_double_eq(duration(kernel), 25e3 + 1500);
}
END_TEST

/* ---- products ---- */

/* 10 x 10 tiles of 256 x 128 are one wave on 100 SMs.  One tile of depth 8192 + 128 at 3.2 TFLOP/s:
 * 2 * 256 * 128 * 8320 / 3.2e12 s = 170,393.6 ns. */
#define ONE_TILE_NS 170393.6

START_TEST(a_product_of_one_full_wave_takes_the_time_of_one_tile)
{
  ck_assert_double_eq_tol(busy(gemm(2560, 1280, 8192)), ONE_TILE_NS, 1);
}
END_TEST

/* One column of tiles more is 110 tiles: a second wave of the large ones.  Tiles of 128 x 128 are
 * 220, three waves of half the work at 0.93 of the speed: 3 / 2 / 0.93 = 1.613 times as long. Those
 * of 128 x 64 are 20 x 21 = 420, five waves of a quarter at 0.8: 1.5625.  Those of 64 x 64 are 40 x
 * 21 = 840, nine waves of an eighth at 0.62: 1.8145.  So it is 1.5625. */
START_TEST(one_column_more_than_a_full_wave_is_worked_on_in_smaller_tiles)
{
  ck_assert_double_eq_tol(busy(gemm(2560, 1281, 8192)), ONE_TILE_NS * 1.5625, 1);
}
END_TEST

/* A quarter of the SMs would do with large tiles, so small ones are faster: 5 x 5 tiles of 256 x
 * 128 are 10 x 10 of 128 x 64, a quarter of the work each at 0.8 of the speed. */
START_TEST(a_product_too_small_for_all_multiprocessors_takes_smaller_tiles)
{
  ck_assert_double_eq_tol(busy(gemm(1280, 640, 8192)), ONE_TILE_NS / 4 / 0.8, 1);
}
END_TEST

START_TEST(a_large_product_comes_close_to_the_reached_peak)
{
  Kernel kernel = gemm(16384, 16384, 16384);
  double ideal = kernel.flops / 320e12 * 1e9;

  ck_assert_double_ge(busy(kernel), ideal);
  ck_assert_double_le(busy(kernel), ideal * 1.03);
}
END_TEST

/* 100 products of one large tile each are one wave, as one product of 100 tiles is. */
START_TEST(a_batch_of_products_shares_the_waves)
{
  Kernel kernel = gemm(256, 128, 8192);

  kernel.flops *= 100;
  kernel.bytes = 0; /* only the arithmetic is looked at */
  ck_assert_double_eq_tol(busy(kernel), ONE_TILE_NS, 1);
}
END_TEST

START_TEST(a_product_in_fp32_is_as_much_slower_as_the_peaks_differ)
{
  Kernel half = gemm(8192, 8192, 8192), single = half;

  single.dtype = DTYPE_FP32;
  ck_assert_double_eq_tol(busy(single), 10 * busy(half), 10);
  half.dtype = DTYPE_FP16;
  ck_assert_double_eq_tol(busy(single), 10 * busy(half), 10);
}
END_TEST

/* A row times a matrix: 2 bytes for each element of the matrix, 0.8 TB/s. */
START_TEST(a_product_with_a_vector_is_bound_by_memory)
{
  Kernel kernel = gemm(1, 65536, 8192);

  ck_assert_double_eq_tol(busy(kernel), kernel.bytes / 0.8e12 * 1e9, 1);
  ck_assert_double_ge(busy(kernel), 1.3e6);
}
END_TEST

/* ---- attention ---- */

START_TEST(attention_runs_at_half_its_rate_at_350_tokens)
{
  Kernel kernel = attention(KERNEL_ATTENTION_FORWARD, 350);

  kernel.flops *= 1000; /* well above the floor */
  ck_assert_double_eq_tol(busy(kernel), kernel.flops / 30e12 * 1e9, 1);
}
END_TEST

START_TEST(attention_between_two_head_dims_has_a_rate_in_between)
{
  Kernel kernel = attention(KERNEL_ATTENTION_FORWARD, 350);
  static const struct {
    gint64 head_dim;
    double flops;
  } cases[] = {{32, 20e12}, {64, 20e12}, {96, 25e12}, {128, 30e12}, {256, 30e12}};

  kernel.flops *= 1000;
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    kernel.k = cases[i].head_dim;
    ck_assert_double_eq_tol(busy(kernel), kernel.flops / cases[i].flops * 1e9, 1);
  }
}
END_TEST

START_TEST(each_generation_of_attention_has_its_own_rates)
{
  Kernel kernel = attention(KERNEL_ATTENTION_BACKWARD, 700);

  kernel.flops *= 1000;
  ck_assert_double_eq_tol(busy(kernel), kernel.flops / 25e12 * 1e9, 1);
  kernel.variant = FUSED_CUDNN;
  ck_assert_double_eq_tol(busy(kernel), kernel.flops / (100e12 * 700 / 1050) * 1e9, 1);
  kernel.variant = FUSED_EFFICIENT;
  ck_assert_double_eq_tol(busy(kernel), kernel.flops / 10e12 * 1e9, 1);
}
END_TEST

START_TEST(attention_over_long_sequences_comes_close_to_its_rate)
{
  Kernel forward = attention(KERNEL_ATTENTION_FORWARD, 131072);
  Kernel backward = attention(KERNEL_ATTENTION_BACKWARD, 131072);

  ck_assert_double_ge(busy(forward), forward.flops / 60e12 * 1e9);
  ck_assert_double_le(busy(forward), forward.flops / 60e12 * 1e9 * 1.003);
  ck_assert_double_eq_tol(busy(backward), busy(forward) * 60 / 50 * (131072 + 700) / (131072 + 350),
                          2);
}
END_TEST

START_TEST(attention_in_fp32_is_as_much_slower_as_the_peaks_differ)
{
  Kernel half = attention(KERNEL_ATTENTION_FORWARD, 8192), single = half;

  single.dtype = DTYPE_FP32;
  ck_assert_double_eq_tol(busy(single), 10 * busy(half), 10);
}
END_TEST

/* ---- splitting the depth ---- */

/* One tile on 100 SMs.  In eight parts its depth is 8192 / 8 + 128 = 1152 instead of 8320; eight
 * partial results of 256 x 128 fp32 numbers, written and read, are 2.1 MB, 2.6 us, less than the
 * floor of 3 us of the kernel that adds them.  Smaller tiles are still one wave: 64 x 64 are 64
 * items, an eighth of the work at 0.62. */
START_TEST(a_product_of_few_tiles_is_split_along_its_depth)
{
  DeviceProfile splits = device;
  Kernel kernel = gemm(256, 128, 8192);
  double part = ONE_TILE_NS * 1152 / 8320;

  kernel.bytes = 0; /* only the arithmetic is looked at */
  splits.gemm_split_k = 8;
  ck_assert_double_eq_tol(duration_on(&splits, 1, kernel) - 1500, part / 8 / 0.62 + 3000, 1);
  splits.gemm_tiles = 1;
  ck_assert_double_eq_tol(duration_on(&splits, 1, kernel) - 1500, part + 3000, 1);
  splits.gemm_split_k = 7; /* two and four parts are tried */
  ck_assert_double_eq_tol(duration_on(&splits, 1, kernel) - 1500,
                          ONE_TILE_NS * (2048 + 128) / 8320 + 3000, 1);
}
END_TEST

/* ---- clocks ---- */

/* (300 - 100) / (400 - 100) to the power of one half. */
START_TEST(a_lower_power_limit_slows_products_and_attention_but_not_memory)
{
  DeviceProfile capped = device;
  Kernel product = gemm(2560, 1280, 8192), flash = attention(KERNEL_ATTENTION_FORWARD, 8192);
  Kernel copy = {.kind = KERNEL_MEMORY, .launches = 1, .bytes = 8e9};

  capped.power_limit = 300;
  ck_assert_double_eq_tol(duration_on(&capped, 1, product) - 1500, busy(product) / sqrt(2.0 / 3),
                          2);
  ck_assert_double_eq_tol(duration_on(&capped, 1, flash) - 1500, busy(flash) / sqrt(2.0 / 3), 2);
  ck_assert_double_eq(duration_on(&capped, 1, copy), duration(copy));
}
END_TEST

/* Expected maxima of normal numbers: Harter, "Expected Values of Normal Order Statistics",
 * Biometrika 48 (1961), table 1, which Blom's formula follows within 0.01. */
START_TEST(the_slowest_of_many_gpus_sets_the_pace)
{
  static const struct {
    int ranks;
    double deviations;
  } harter[] = {{1, 0}, {2, 0.56419}, {4, 1.02938}, {8, 1.42360}, {16, 1.76599}, {100, 2.50759}};
  Kernel product = gemm(2560, 1280, 8192);

  for (guint i = 0; i < G_N_ELEMENTS(harter); i++) {
    ck_assert_double_eq_tol(straggler_deviations(harter[i].ranks), harter[i].deviations, 0.03);
    ck_assert_double_eq_tol(duration_on(&device, harter[i].ranks, product) - 1500,
                            busy(product) / (1 - 0.02 * harter[i].deviations),
                            0.001 * busy(product));
  }
  ck_assert_double_eq(straggler_deviations(0), 0);
  ck_assert_double_ge(straggler_deviations(1000000), 4.8);
  ck_assert_double_le(straggler_deviations(1000000), 4.9);
}
END_TEST

START_TEST(what_bytes_take_has_the_memorys_latency_on_top)
{
  DeviceProfile late = device;
  Kernel kernel = {.kind = KERNEL_MEMORY, .launches = 1, .bytes = 8e6};

  late.memory_latency_ns = 10000; /* as long as 8 MB at 800 GB/s */
  ck_assert_double_eq(duration_on(&late, 1, kernel), 2 * busy(kernel) + 1500);
}
END_TEST

/* ---- what people measured ---- */

static double
tflops(const DeviceProfile *profile, Kernel kernel)
{
  return kernel.flops / (duration_on(profile, 1, kernel) - profile->kernel_gap_ns) / 1e3;
}

/* Causal attention of 16k tokens in all, 2048 wide, as the measurements below had it. */
static Kernel
attention_of_16k(KernelKind kind, FusedAttention variant, gint64 length, gint64 head_dim)
{
  double batch = 16384.0 / (double) length, heads = 2048.0 / (double) head_dim;
  double flops = 2 * batch * heads * (double) length * (double) length * (double) head_dim;

  return (Kernel){.kind = (guint8) kind,
                  .dtype = DTYPE_FP16,
                  .variant = (guint16) variant,
                  .launches = 1,
                  .n = length,
                  .k = head_dim,
                  .flops = kind == KERNEL_ATTENTION_FORWARD ? flops : 2.5 * flops};
}

typedef struct {
  const char *device;
  KernelKind kind;
  FusedAttention variant;
  int head_dim;
  int first_length;   /* then twice that, ... */
  double measured[6]; /* TFLOP/s; 0 ends */
  double tolerance;
} Curve;

static const Curve curves[] = {
    /* Shah et al., "FlashAttention-3", arXiv 2407.08608, figure 5, head dim 128, causal */
    {"h100-sxm-80gb",
     KERNEL_ATTENTION_FORWARD,
     FUSED_FLASH2,
     128,
     512,
     {191, 260, 298, 319, 333, 335},
     0.07},
    {"h100-sxm-80gb",
     KERNEL_ATTENTION_FORWARD,
     FUSED_CUDNN,
     128,
     512,
     {315, 410, 484, 518, 529, 539},
     0.07},
    /* triton issue 1917, July 2023, head dim 64, causal */
    {"a100-sxm-80gb",
     KERNEL_ATTENTION_FORWARD,
     FUSED_TRITON,
     64,
     1024,
     {84, 102, 113, 119, 122},
     0.05},
    {"a100-sxm-80gb",
     KERNEL_ATTENTION_BACKWARD,
     FUSED_TRITON,
     64,
     1024,
     {49, 62, 72, 77, 81},
     0.05},
};

START_TEST(attention_follows_published_measurements_over_lengths)
{
  const Curve *curve = &curves[_i];
  g_autoptr(DeviceProfile) profile = device_profile_load(curve->device, NULL);

  ck_assert_ptr_nonnull(profile);
  for (int i = 0; i < 6 && curve->measured[i] > 0; i++) {
    Kernel kernel = attention_of_16k(curve->kind, curve->variant, (gint64) curve->first_length << i,
                                     curve->head_dim);
    ck_assert_double_eq_tol(tflops(profile, kernel) / curve->measured[i], 1, curve->tolerance);
  }
}
END_TEST

/* 8192^3 in bf16 on random numbers: 720 TFLOP/s on H100 (pytorch issue 100850), 257 on A100
 * (thonking.ai, on predictable data).  The profile's factor for a step is left out; the last wave
 * and prologues are the model's own. */
START_TEST(a_large_product_alone_is_about_as_fast_as_measured)
{
  static const struct {
    const char *device;
    double measured;
  } cases[] = {{"h100-sxm-80gb", 720}, {"a100-sxm-80gb", 257}};

  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autoptr(DeviceProfile) profile = device_profile_load(cases[i].device, NULL);
    ck_assert_ptr_nonnull(profile);
    profile->gemm_in_step = 1;
    ck_assert_double_eq_tol(tflops(profile, gemm(8192, 8192, 8192)) / cases[i].measured, 1, 0.06);
  }
}
END_TEST

/* ---- laws ---- */

static gint64
random_size(guint64 *random)
{
  /* Spread over sizes from 1 to 2^15. */
  return 1 + (gint64) (history_random(random) % (1u << (1 + history_random(random) % 15)));
}

START_TEST(no_product_is_faster_than_flops_or_bytes_allow_nor_slower_when_smaller)
{
  guint64 random = 3;

  for (int i = 0; i < 20000; i++) {
    gint64 m = random_size(&random), n = random_size(&random), k = random_size(&random);
    Kernel kernel = gemm(m, n, k);
    double ns = busy(kernel);

    ck_assert_double_ge(ns, kernel.flops / 320e12 * 1e9 - 0.5);
    ck_assert_double_ge(ns, kernel.bytes / 0.8e12 * 1e9 - 0.5);
    ck_assert_double_ge(ns, 3000);
    ck_assert_double_ge(busy(gemm(m + random_size(&random), n, k)), ns);
    ck_assert_double_ge(busy(gemm(m, n + random_size(&random), k)), ns);
    ck_assert_double_ge(busy(gemm(m, n, k + random_size(&random))), ns);
  }
}
END_TEST

START_TEST(every_kind_is_monotone_in_flops_bytes_and_launches)
{
  guint64 random = 4;

  for (int i = 0; i < 1000; i++) {
    double size = (double) random_size(&random) * (double) random_size(&random);
    Kernel kernel = {.kind = (guint8) _i,
                     .dtype = (guint8) (i % DTYPE_COUNT),
                     .launches = 1 + i % 5,
                     .m = 64,
                     .n = 64,
                     .k = 64,
                     .flops = size * 1000,
                     .bytes = size};
    double ns = duration(kernel);
    Kernel more = kernel;

    more.flops *= 3;
    ck_assert_double_ge(duration(more), ns);
    more = kernel;
    more.bytes *= 3;
    ck_assert_double_ge(duration(more), ns);
    more = kernel;
    more.launches++;
    ck_assert_double_ge(duration(more), ns + 1500);
  }
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("kernel_model");
  TCase *tcase = tcase_create("kernel_model");

  suite_add_tcase(suite, tcase);
  tcase_add_loop_test(tcase, a_kernel_without_arithmetic_takes_its_bytes_over_the_reached_bandwidth,
                      0, KERNEL_KIND_COUNT);
  tcase_add_loop_test(tcase, a_small_kernel_takes_the_floor_and_the_gap, 0, KERNEL_KIND_COUNT);
  tcase_add_test(tcase, each_launch_has_its_floor_and_its_gap);
  tcase_add_test(tcase, arithmetic_outside_products_runs_at_the_fp32_peak);
  tcase_add_test(tcase, a_product_of_one_full_wave_takes_the_time_of_one_tile);
  tcase_add_test(tcase, one_column_more_than_a_full_wave_is_worked_on_in_smaller_tiles);
  tcase_add_test(tcase, a_product_too_small_for_all_multiprocessors_takes_smaller_tiles);
  tcase_add_test(tcase, a_large_product_comes_close_to_the_reached_peak);
  tcase_add_test(tcase, a_batch_of_products_shares_the_waves);
  tcase_add_test(tcase, a_product_in_fp32_is_as_much_slower_as_the_peaks_differ);
  tcase_add_test(tcase, a_product_with_a_vector_is_bound_by_memory);
  tcase_add_test(tcase, attention_runs_at_half_its_rate_at_350_tokens);
  tcase_add_test(tcase, attention_between_two_head_dims_has_a_rate_in_between);
  tcase_add_test(tcase, each_generation_of_attention_has_its_own_rates);
  tcase_add_test(tcase, attention_over_long_sequences_comes_close_to_its_rate);
  tcase_add_test(tcase, attention_in_fp32_is_as_much_slower_as_the_peaks_differ);
  tcase_add_test(tcase, a_product_of_few_tiles_is_split_along_its_depth);
  tcase_add_test(tcase, a_lower_power_limit_slows_products_and_attention_but_not_memory);
  tcase_add_test(tcase, the_slowest_of_many_gpus_sets_the_pace);
  tcase_add_test(tcase, what_bytes_take_has_the_memorys_latency_on_top);
  tcase_add_loop_test(tcase, attention_follows_published_measurements_over_lengths, 0,
                      G_N_ELEMENTS(curves));
  tcase_add_test(tcase, a_large_product_alone_is_about_as_fast_as_measured);
  tcase_add_test(tcase, no_product_is_faster_than_flops_or_bytes_allow_nor_slower_when_smaller);
  tcase_add_loop_test(tcase, every_kind_is_monotone_in_flops_bytes_and_launches, 0,
                      KERNEL_KIND_COUNT);
  return suite;
}

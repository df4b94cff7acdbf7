/* check_kineto_trace.c - traces of PyTorch's profiler: spellings of versions, whose kernels they
 * are, shapes, collectives, what ran beside what, the host's time, what is refused and what is used
 * of a trace that was cut; then ops as experiments, and constants found again from kernels that
 * took what the model says. */
#include "import/kineto_trace.h"

#include <math.h>
#include <string.h>

#include "calibrate/fit_device.h"
#include "calibrate/traced_ops.h"
#include "compute/kernel_model.h"
#include "spec/dtype.h"
#include "tap_main.h"

/* ---- small traces ---- */

static KinetoTrace *
read_text(const char *text, GError **error)
{
  g_autoptr(KinetoTrace) trace = kineto_trace_new();
  g_autoptr(ByteSource) source = byte_source_from_memory("step.json", text, strlen(text));
  return kineto_trace_read(trace, source, error) ? g_steal_pointer(&trace) : NULL;
}

static KinetoTrace *
read_events(const char *events)
{
  g_autofree char *text = g_strdup_printf("{\"schemaVersion\": 1, \"traceEvents\": [%s]}", events);
  g_autoptr(GError) error = NULL;
  KinetoTrace *trace = read_text(text, &error);
  ck_assert_msg(trace != NULL, "%s", error ? error->message : "");
  return trace;
}

/* Events, as text; times in microseconds on thread 7. */
#define EVENT(cat, name, tid, ts, dur, args)                                                       \
  "{\"ph\": \"X\", \"cat\": \"" cat "\", \"name\": \"" name "\", \"pid\": 41, \"tid\": " #tid      \
  ", \"ts\": " #ts ", \"dur\": " #dur ", \"args\": {" args "}}"
#define OP(name, id, ts, dur, dims, types)                                                         \
  EVENT("cpu_op", name, 7, ts, dur,                                                                \
        "\"External id\": " #id ", \"Input type\": " types ", \"Input Dims\": " dims)
#define LAUNCH(correlation, ts)                                                                    \
  EVENT("cuda_runtime", "cudaLaunchKernel", 7, ts, 2, "\"correlation\": " #correlation)
#define DEVICE(cat, name, ts, dur, args)                                                           \
  "{\"ph\": \"X\", \"cat\": \"" cat "\", \"name\": \"" name                                        \
  "\", \"pid\": 0, \"tid\": 20, \"ts\": " #ts ", \"dur\": " #dur ", \"args\": {" args "}}"
#define KERNEL(name, id, ts, dur) DEVICE("kernel", name, ts, dur, "\"External id\": " #id)
#define HALF "\"c10::BFloat16\""
#define MM(id, ts) OP("aten::mm", id, ts, 20, "[[64, 128], [128, 32]]", "[" HALF ", " HALF "]")

/* The row of that name that has runs, or NULL. */
static const KinetoRow *
find_row(const KinetoTrace *trace, const char *name)
{
  for (guint i = 0; i < trace->rows->len; i++) {
    const KinetoRow *row = g_ptr_array_index(trace->rows, i);
    if (row->runs->len > 0 && g_str_equal(row->name, name))
      return row;
  }
  return NULL;
}

static KinetoRun
run_at(const GArray *runs, guint i)
{
  ck_assert_uint_lt(i, runs->len);
  return g_array_index(runs, KinetoRun, i);
}

static guint
rows_with_runs(const KinetoTrace *trace)
{
  guint n = 0;
  for (guint i = 0; i < trace->rows->len; i++)
    n += ((const KinetoRow *) g_ptr_array_index(trace->rows, i))->runs->len > 0;
  return n;
}

/* ---- reading ---- */

START_TEST(a_kernel_belongs_to_its_op)
{
  g_autoptr(KinetoTrace) trace = read_events(MM(5, 100) "," KERNEL("gemm", 5, 110, 41.5));
  const KinetoRow *row = find_row(trace, "aten::mm");
  ck_assert_ptr_nonnull(row);
  ck_assert_str_eq(row->shapes, "[64,128] [128,32]");
  ck_assert_str_eq(row->types, "c10::BFloat16,c10::BFloat16");
  ck_assert_int_eq(row->kernels, 1);
  ck_assert_double_eq(run_at(row->runs, 0).ns, 41500);
  ck_assert_uint_eq(row->n_arguments, 2);
  ck_assert_int_eq(row->arguments[1].dims[0], 128);
  ck_assert_double_eq(row->arguments[0].elements, 64 * 128);
  ck_assert_int_eq(row->arguments[0].dtype, DTYPE_BF16);
  ck_assert_uint_eq(rows_with_runs(trace), 1);
}
END_TEST

/* The same three events as several versions wrote them. */
static const char *const spellings[] = {
    "[{\"ph\": \"X\", \"cat\": \"Operator\", \"name\": \"aten::mm\", \"pid\": 41, \"tid\": \"7\", "
    "\"ts\": 100, \"dur\": 20, \"args\": {\"Device\": 41, \"External id\": 5, \"Trace iteration\": "
    "0, \"Input dims\": [[64, 128], [128, 32]], \"Input type\": [" HALF ", " HALF "]}},"
    "{\"ph\": \"X\", \"cat\": \"Runtime\", \"name\": \"cudaLaunchKernel\", \"pid\": 41, \"tid\": "
    "\"7\", \"ts\": 105, \"dur\": 2, \"args\": {\"correlation\": 9, \"external id\": 5}},"
    "{\"ph\": \"X\", \"cat\": \"Kernel\", \"name\": \"gemm\", \"pid\": 0, \"tid\": \"stream 7\", "
    "\"ts\": 110, \"dur\": 41, \"args\": {\"device\": 0, \"correlation\": 9, \"external id\": 5}}]",
    "{\"traceEvents\": [{\"args\": {\"Input Dims\": [[64, 128], [128, 32]], \"Input type\": [" HALF
    ", " HALF "], \"External id\": \"5\"}, \"ts\": \"100.000\", \"dur\": 20.0, \"cat\": "
    "\"cpu_op\", \"name\": \"aten::mm\", \"pid\": 41, \"tid\": 7, \"ph\": \"X\"},"
    "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"gemm\", \"pid\": 0, \"tid\": 7, \"ts\": "
    "1.1e2, \"dur\": 4.1e1, \"args\": {\"External id\": 5}}]}",
    "{\"traceEvents\": [" MM(5, 100) "," DEVICE(
        "kernel", "gemm", 110, 41,
        "\"correlation\": 9") "," EVENT("cuda_driver", "cuLaunchKernelEx", 7, 105, 2,
                                        "\"correlation\": 9, \"External id\": "
                                        "5") "], \"deviceProperties\": []}",
    "{\"traceEvents\": [" MM(5, 100) "," DEVICE("kernel", "gemm", 110, 41,
                                                "\"correlation\": 9") "," LAUNCH(9, 105) "]}",
};

START_TEST(all_spellings_mean_the_same)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(KinetoTrace) trace = read_text(spellings[_i], &error);
  ck_assert_msg(trace != NULL, "%s", error ? error->message : "");
  const KinetoRow *row = find_row(trace, "aten::mm");
  ck_assert_ptr_nonnull(row);
  ck_assert_str_eq(row->shapes, "[64,128] [128,32]");
  ck_assert_double_eq(run_at(row->runs, 0).ns, 41000);
  ck_assert_uint_eq(row->runs->len, 1);
  ck_assert_uint_eq(trace->unlinked, 0);
  ck_assert(kineto_trace_recognized(spellings[_i], strlen(spellings[_i])));
}
END_TEST

/* What profilers have really written: a bandwidth of infinity, a file name of Windows, a line end
 * within a name, a byte of Latin-1. */
START_TEST(what_writers_got_wrong_is_taken)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(KinetoTrace) trace = read_text(
      "{\"traceEvents\": [" DEVICE(
          "Memcpy", "Memcpy HtoD (Pageable -> Device)", 7, 0,
          "\"bytes\": 200, \"memory bandwidth (GB/s)\": inf") "," DEVICE("kernel",
                                                                         "caf\xe9\n\\Kernel", 8, 1,
                                                                         "\"a\": -nan, \"b\": "
                                                                         "NaN, \"c\": "
                                                                         "[-Infinity]") "], "
                                                                                        "\"trace"
                                                                                        "Name\":"
                                                                                        " \"D:"
                                                                                        "\\Trace"
                                                                                        "s\\x."
                                                                                        "json\""
                                                                                        "}",
      &error);
  ck_assert_msg(trace != NULL, "%s", error ? error->message : "");
  ck_assert_uint_eq(trace->kernels, 2);
  ck_assert_ptr_nonnull(find_row(trace, "caf\xef\xbf\xbd\n\\Kernel"));
}
END_TEST

START_TEST(other_texts_are_no_traces)
{
  const char *const others[] = {"", "[1,0]<stdout>: 65536 16384 float sum",
                                "{\"format\": \"highwater-measurements-1\"}",
                                "#  Rank 0 \"traceEvents\"", "  65536  16384  float  sum  -1"};
  for (guint i = 0; i < G_N_ELEMENTS(others); i++)
    ck_assert_msg(!kineto_trace_recognized(others[i], strlen(others[i])), "%s", others[i]);
}
END_TEST

/* An op within another one, both running when the kernel is launched; one that is over; one of
 * another thread. */
START_TEST(the_innermost_running_op_launched_it)
{
  g_autoptr(KinetoTrace) trace =
      read_events(OP("aten::linear", 1, 100, 50, "[]", "[]") "," MM(2, 110) "," OP(
          "aten::empty", 3, 112, 2, "[]",
          "[]") "," EVENT("cpu_op", "aten::add", 8, 100, 90,
                          "\"External id\": 4") "," LAUNCH(9,
                                                           116) "," DEVICE("kernel", "gemm", 120,
                                                                           10,
                                                                           "\"correlation\": 9"));
  ck_assert_uint_eq(rows_with_runs(trace), 1);
  ck_assert_ptr_nonnull(find_row(trace, "aten::mm"));
}
END_TEST

START_TEST(one_call_is_one_run_of_all_its_kernels)
{
  g_autoptr(KinetoTrace) trace =
      read_events(MM(1, 0) "," MM(2, 100) "," KERNEL("gemm", 1, 10, 8) "," KERNEL(
          "splitK_reduce", 1, 20,
          3) "," KERNEL("gemm", 2, 110, 9) "," DEVICE("gpu_memset", "Memset (Device)", 105, 1,
                                                      "\"External id\": 2, \"bytes\": 64"));
  const KinetoRow *row = find_row(trace, "aten::mm");
  ck_assert_uint_eq(row->runs->len, 2);
  ck_assert_int_eq(row->kernels, 4);
  ck_assert_double_eq(run_at(row->runs, 0).ns, 11000);
  ck_assert_double_eq(run_at(row->runs, 1).ns, 10000);
}
END_TEST

START_TEST(kernels_of_no_known_op_have_their_own_name)
{
  g_autoptr(KinetoTrace) trace = read_events(
      KERNEL("triton_poi_fused", 77, 10, 8) "," DEVICE("kernel", "triton_poi_fused", 30, 7, ""));
  const KinetoRow *row = find_row(trace, "triton_poi_fused");
  ck_assert_int_eq(row->kind, KINETO_KERNEL);
  ck_assert_uint_eq(row->runs->len, 2);
  ck_assert_uint_eq(trace->unlinked, 2);
  ck_assert_uint_eq(trace->kernels, 2);
}
END_TEST

/* 2026 in microseconds has 16 digits before the point: a double would lose the nanoseconds. */
START_TEST(times_are_exact_to_the_nanosecond)
{
  g_autoptr(KinetoTrace) trace =
      read_events(MM(1, 1780000000000000.000) "," MM(2, 1780000000000020.001) "," KERNEL(
          "a", 1, 1780000000000001.001, 0.001) "," KERNEL("b", 2, 1780000000000021, 1234567.891));
  const KinetoRow *row = find_row(trace, "aten::mm");
  ck_assert_double_eq(run_at(row->runs, 0).ns, 1);
  ck_assert_double_eq(run_at(row->runs, 1).ns, 1234567891);
  /* From one op's begin to the next one's. */
  ck_assert_uint_eq(trace->host[KINETO_FORWARD]->len, 1);
  ck_assert_double_eq(g_array_index(trace->host[KINETO_FORWARD], double, 0), 20001);
}
END_TEST

START_TEST(shapes_of_lists_are_counted)
{
  g_autoptr(KinetoTrace) trace = read_events(
      OP("aten::_fused_adamw_", 1, 0, 50, "[[[128, 64], [128]], [], [[128, 64], [128]], [5], []]",
         "[\"TensorList\", \"\", \"TensorList\", \"float\", \"Scalar\"]") "," KERNEL("adam", 1, 10,
                                                                                     5));
  const KinetoRow *row = find_row(trace, "aten::_fused_adamw_");
  ck_assert_str_eq(row->shapes, "[[128,64],[128]] [] [[128,64],[128]] [5]");
  ck_assert_double_eq(row->arguments[0].elements, 128 * 64 + 128);
  ck_assert(row->arguments[0].is_list);
  ck_assert_uint_eq(row->arguments[0].n_dims, 0);
  ck_assert(!row->arguments[3].is_list);
  ck_assert_uint_eq(row->arguments[3].n_dims, 1);
  ck_assert_int_eq(row->arguments[3].dtype, DTYPE_FP32);
  ck_assert_int_eq(row->arguments[0].dtype, -1);
}
END_TEST

/* Two lists of a hundred tensors that differ in the last one only. */
START_TEST(long_shapes_are_cut_and_stay_different)
{
  g_autoptr(GString) events = g_string_new(NULL);
  for (int id = 1; id <= 2; id++) {
    g_autoptr(GString) dims = g_string_new("[[");
    for (int i = 0; i < 100; i++)
      g_string_append_printf(dims, "[%d, 1024], ", 4096 + i);
    g_string_append_printf(dims, "[%d]]]", id);
    g_string_append_printf(
        events,
        "{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::_foreach_add_\", "
        "\"pid\": 41, \"tid\": 7, \"ts\": %d, \"dur\": 9, \"args\": {\"External "
        "id\": %d, \"Input Dims\": %s}},",
        id * 10, id, dims->str);
  }
  g_string_append(events, KERNEL("k", 1, 100, 1) "," KERNEL("k", 2, 102, 1));
  g_autoptr(KinetoTrace) trace = read_events(events->str);
  ck_assert_uint_eq(rows_with_runs(trace), 2);
  ck_assert_uint_lt(strlen(find_row(trace, "aten::_foreach_add_")->shapes), 200);
}
END_TEST

START_TEST(copies_to_the_host_are_rows_of_their_own)
{
  g_autoptr(KinetoTrace) trace = read_events(
      OP("aten::copy_", 1, 0, 90, "[[1024], [1024]]", "[\"float\", \"float\"]") "," DEVICE(
          "gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 5, 2,
          "\"External id\": 1, \"bytes\": 4096") "," DEVICE("gpu_memcpy",
                                                            "Memcpy DtoD (Device -> Device)", 9, 3,
                                                            "\"External id\": 1, \"bytes\": 4096"));
  const KinetoRow *copy = find_row(trace, "Memcpy HtoD (Pinned -> Device)");
  ck_assert_int_eq(copy->kind, KINETO_COPY);
  ck_assert_int_eq(copy->bytes, 4096);
  ck_assert_double_eq(run_at(copy->runs, 0).ns, 2000);
  ck_assert_double_eq(run_at(find_row(trace, "aten::copy_")->runs, 0).ns, 3000);
}
END_TEST

/* ---- collectives ---- */

#define NCCL_ARGS                                                                                  \
  "\"Collective name\": \"_allgather_base\", \"In msg nelems\": 256, \"Out msg nelems\": 2048, "   \
  "\"Group size\": 8, \"dtype\": \"BFloat16\", \"Process Group Ranks\": \"[3, 11, 19, ...]\""

START_TEST(a_collective_has_bytes_and_ranks)
{
  g_autoptr(KinetoTrace) trace =
      read_events(DEVICE("kernel", "ncclDevKernel_AllGather_RING_LL", 0, 40, NCCL_ARGS) "," DEVICE(
          "kernel", "ncclDevKernel_AllGather_RING_LL", 50, 30, NCCL_ARGS));
  ck_assert_uint_eq(trace->collectives->len, 1);
  const KinetoCollective *c = g_ptr_array_index(trace->collectives, 0);
  ck_assert_str_eq(c->name, "_allgather_base");
  ck_assert_int_eq(c->bytes, 4096);
  ck_assert_int_eq(c->ranks, 8);
  ck_assert_int_eq(c->stride, 8);
  ck_assert_uint_eq(c->runs->len, 2);
  ck_assert_uint_eq(rows_with_runs(trace), 0);
}
END_TEST

START_TEST(its_size_may_stand_at_the_op_alone)
{
  g_autoptr(KinetoTrace) trace = read_events(
      EVENT("cpu_op", "record_param_comms", 7, 0, 9,
            "\"External id\": 4, " NCCL_ARGS) "," KERNEL("ncclKernel_AllGather", 4, 5, 40));
  guint known = 0;
  for (guint i = 0; i < trace->collectives->len; i++) {
    const KinetoCollective *c = g_ptr_array_index(trace->collectives, i);
    known += c->bytes == 4096 && c->runs->len == 1;
    ck_assert(c->bytes > 0 || c->runs->len == 0);
  }
  ck_assert_uint_eq(known, 1);
}
END_TEST

/* The collective runs from 100 to 140 on device 0. */
static const struct {
  const char *kernel;
  gboolean beside;
} places[] = {
    {DEVICE("kernel", "k", 90, 10, ""), FALSE},
    {DEVICE("kernel", "k", 90, 11, ""), TRUE},
    {DEVICE("kernel", "k", 110, 5, ""), TRUE},
    {DEVICE("kernel", "k", 139, 50, ""), TRUE},
    {DEVICE("kernel", "k", 140, 50, ""), FALSE},
    {DEVICE("kernel", "k", 50, 200, ""), TRUE},
    {"{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"k\", \"pid\": 1, \"tid\": 20, \"ts\": 110, "
     "\"dur\": 5}",
     FALSE},
};

START_TEST(what_runs_during_a_collective_is_told)
{
  g_autofree char *events = g_strdup_printf("%s,%s", places[_i].kernel,
                                            DEVICE("kernel", "ncclDevKernel", 100, 40, NCCL_ARGS));
  g_autoptr(KinetoTrace) trace = read_events(events);
  ck_assert_int_eq(run_at(find_row(trace, "k")->runs, 0).beside, places[_i].beside);
}
END_TEST

/* ---- the host ---- */

/* Forward: two ops of which one launches within another, and one that launches nothing; backward:
 * nodes of another thread. */
START_TEST(the_host_is_timed_from_launch_to_launch)
{
#define NODE(id, ts)                                                                               \
  EVENT("cpu_op", "autograd::engine::evaluate_function: MmBackward0", 9, ts, 30,                   \
        "\"External id\": " #id)
#define INNER(id, ts) EVENT("cpu_op", "aten::mm", 9, ts, 5, "\"External id\": " #id)
  g_autoptr(KinetoTrace) trace = read_events(
      OP("aten::linear", 1, 100, 30, "[]", "[]") "," MM(2, 105) "," OP("aten::view", 3, 131, 2, "[]", "[]") "," MM(4, 140) "," NODE(5, 1000) "," INNER(
          6,
          1005) "," INNER(7,
                          1015) "," NODE(8,
                                         1040) "," INNER(9,
                                                         1045) "," KERNEL("a", 2, 2000,
                                                                          1) "," KERNEL("b", 4,
                                                                                        2002,
                                                                                        1) "," KERNEL("c",
                                                                                                      6,
                                                                                                      2004,
                                                                                                      1) "," KERNEL("d",
                                                                                                                    7,
                                                                                                                    2006,
                                                                                                                    1) "," KERNEL("e",
                                                                                                                                  9,
                                                                                                                                  2008,
                                                                                                                                  1));
  ck_assert_uint_eq(trace->host[KINETO_FORWARD]->len, 1);
  ck_assert_double_eq(g_array_index(trace->host[KINETO_FORWARD], double, 0), 40000);
  ck_assert_uint_eq(trace->host[KINETO_BACKWARD]->len, 1);
  ck_assert_double_eq(g_array_index(trace->host[KINETO_BACKWARD], double, 0), 40000);
}
END_TEST

START_TEST(the_machine_is_described)
{
  g_autoptr(KinetoTrace) trace = read_text(
      "{\"schemaVersion\": 1, \"deviceProperties\": [{\"id\": 0, \"name\": \"NVIDIA H200\", "
      "\"totalGlobalMem\": 150122790912, \"computeMajor\": 9, \"computeMinor\": 0, \"numSms\": "
      "132, "
      "\"maxThreadsPerMultiprocessor\": 2048}, {\"id\": 1, \"name\": \"NVIDIA H200\"}], "
      "\"cuda_runtime_version\": 12080, \"distributedInfo\": {\"backend\": \"nccl\", \"rank\": 3, "
      "\"world_size\": 16, \"pg_config\": [], \"nccl_version\": \"2.26.2\"}, \"traceEvents\": "
      "[{\"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": \"ProfilerStep#3\", \"ts\": 1, "
      "\"dur\": 2}]}",
      NULL);
  ck_assert_ptr_nonnull(trace);
  ck_assert_str_eq(trace->machine.device, "NVIDIA H200");
  ck_assert_str_eq(trace->machine.nccl, "2.26.2");
  ck_assert_str_eq(trace->machine.runtime, "12.8");
  ck_assert_int_eq(trace->machine.memory_bytes, 150122790912);
  ck_assert_int_eq(trace->machine.compute_capability, 90);
  ck_assert_int_eq(trace->machine.devices, 2);
  ck_assert_int_eq(trace->machine.world_size, 16);
  ck_assert_uint_eq(trace->steps, 1);
}
END_TEST

/* ---- what is wrong ---- */

static const struct {
  const char *text, *message;
} refusals[] = {
    {"{\"traceEvents\": {}}", "step.json: byte 16: '{' where an array is expected"},
    {"{\"schemaVersion\": 1}", "no key 'traceEvents': not a trace of PyTorch's profiler"},
    {"{\"traceEvents\": [{\"ph\": 1}]}", "'1' where a string is expected"},
    {"{\"traceEvents\": [{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"k\", \"dur\": 3}]}",
     "event 'k' has no time 'ts'"},
    {"{\"traceEvents\": [{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"k\", \"ts\": 1, \"dur\": "
     "-3}]}",
     "event 'k' has a negative duration"},
    {"{\"traceEvents\": [{\"ph\": \"X\", \"ts\": \"soon\"}]}", "'soon' is no time in microseconds"},
    {"{\"traceEvents\": [{\"ph\": \"X\", \"ts\": 1e300}]}", "is no time in microseconds"},
    {"{\"traceEvents\": [{\"a\": soon}]}", "'}' where a value is expected"},
    {"{\"traceEvents\": []} {", "'{' where the end of the input is expected"},
    /* Cut before any kernel was there. */
    {"{\"traceEvents\": [" MM(1, 2) ", {\"ph\"", "the input ends where ':' is expected"},
    /* Not cut, but broken, with a kernel before it. */
    {"{\"traceEvents\": [" KERNEL("k", 1, 2, 3) ", {\"ph\" 5}]}", "'5' where ':' is expected"},
};

START_TEST(what_is_no_trace_is_refused_with_its_place)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(KinetoTrace) trace = read_text(refusals[_i].text, &error);
  ck_assert_ptr_null(trace);
  ck_assert_msg(strstr(error->message, refusals[_i].message) != NULL, "%s", error->message);
  ck_assert_msg(g_str_has_prefix(error->message, "step.json: byte "), "%s", error->message);
}
END_TEST

/* Wherever it is cut behind the first kernel, what stood before is used. */
START_TEST(a_trace_that_was_cut_is_used_up_to_there)
{
  const char *begin = "{\"traceEvents\": [" MM(1, 2) "," KERNEL("k", 1, 2, 3);
  g_autofree char *text = g_strdup_printf("%s,%s], \"traceName\": \"x\"}", begin, MM(5, 6));
  for (gsize length = strlen(begin); length < strlen(text); length++) {
    g_autofree char *cut = g_strndup(text, length);
    g_autoptr(GError) error = NULL;
    g_autoptr(KinetoTrace) trace = read_text(cut, &error);
    ck_assert_msg(trace != NULL, "%s", error ? error->message : "");
    ck_assert_uint_eq(find_row(trace, "aten::mm")->runs->len, 1);
    ck_assert_uint_eq(trace->notes->len, 1);
    ck_assert_ptr_nonnull(strstr(g_ptr_array_index(trace->notes, 0), "step.json: cut short at"));
  }
  g_autoptr(KinetoTrace) whole = read_text(text, NULL);
  ck_assert_uint_eq(whole->notes->len, 0);
}
END_TEST

START_TEST(several_files_are_one_set_of_rows)
{
  const char *text = "[" MM(1, 2) "," KERNEL("k", 1, 2, 3) "]";
  g_autoptr(KinetoTrace) trace = kineto_trace_new();
  for (int i = 0; i < 2; i++) {
    g_autoptr(ByteSource) source = byte_source_from_memory("rank", text, strlen(text));
    ck_assert(kineto_trace_read(trace, source, NULL));
  }
  ck_assert_uint_eq(find_row(trace, "aten::mm")->runs->len, 2);
}
END_TEST

/* ---- experiments ---- */

/* bf16, so two bytes an element, unless it says otherwise. */
static const struct {
  const char *op, *dims, *types;
  const char *experiment; /* NULL: none */
} meanings[] = {
    {"aten::mm", "[[64, 128], [128, 32]]", HALF ", " HALF, "gemm bf16 64 x 32 x 128"},
    {"aten::addmm", "[[32], [64, 128], [128, 32], [], []]",
     HALF ", " HALF ", " HALF ", \"Scalar\", \"Scalar\"", "gemm bf16 64 x 32 x 128"},
    {"aten::bmm", "[[4, 64, 128], [4, 128, 32]]", HALF ", " HALF,
     "gemm bf16 64 x 32 x 128, 4 at once"},
    {"aten::baddbmm", "[[4, 64, 32], [4, 64, 128], [4, 128, 32]]", HALF ", " HALF ", " HALF,
     "gemm bf16 64 x 32 x 128, 4 at once"},
    {"aten::linear", "[[2, 64, 128], [32, 128], []]", HALF ", " HALF ", \"\"",
     "gemm bf16 128 x 32 x 128"},
    {"aten::mm", "[[64, 128], [64, 32]]", HALF ", " HALF, NULL},
    {"aten::mm", "[[64, 0], [0, 32]]", HALF ", " HALF, NULL},
    {"aten::mm", "[[64, 128], [128, 32]]", "\"float\", \"float\"", NULL}, /* TF32 or not? */
    {"aten::mm", "[[64, 128]]", HALF, NULL},
    {"aten::mm", "[]", "", NULL},
    {"aten::bmm", "[[4, 64, 128], [2, 128, 32]]", HALF ", " HALF, NULL},
    /* Reads 2 KiB twice and writes it. */
    {"aten::mul", "[[32, 32], [32, 32]]", HALF ", " HALF, "memory of 6.00 KiB"},
    /* 2 KiB, 64 bytes, 2 KiB. */
    {"aten::add", "[[32, 32], [32], []]", HALF ", " HALF ", \"Scalar\"", "memory of 4.06 KiB"},
    /* [32, 1] and [1, 32] make [32, 32]. */
    {"aten::add", "[[32, 1], [1, 32]]", HALF ", " HALF, "memory of 2.12 KiB"},
    {"aten::mul", "[[32, 32], []]", HALF ", \"Scalar\"", "memory of 4.00 KiB"},
    {"aten::mul", "[[32, 32], [32, 32]]", HALF ", \"float\"", "memory of 10.0 KiB"},
    {"aten::add_", "[[32, 32], [32, 32], []]", HALF ", " HALF ", \"Scalar\"", "memory of 6.00 KiB"},
    {"aten::silu", "[[32, 32]]", HALF, "memory of 4.00 KiB"},
    {"aten::silu_backward", "[[32, 32], [32, 32]]", HALF ", " HALF, "memory of 6.00 KiB"},
    {"aten::copy_", "[[32, 32], [32, 32], []]", HALF ", \"float\", \"Scalar\"",
     "memory of 6.00 KiB"},
    {"aten::copy_", "[[32, 32], [32, 32], []]", HALF ", " HALF ", \"Scalar\"", NULL},
    {"aten::fill_", "[[32, 32], []]", HALF ", \"Scalar\"", "memory of 2.00 KiB"},
    {"aten::sum", "[[32, 32]]", HALF, NULL},
    {"aten::silu", "[[32, 32]]", "\"c10::Float8_e4m3fn\"", NULL},
};

START_TEST(ops_are_experiments_by_name_and_shape)
{
  g_autofree char *events = g_strdup_printf(
      "{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"%s\", \"pid\": 41, \"tid\": 7, \"ts\": 1, "
      "\"dur\": 9, \"args\": {\"External id\": 1, \"Input type\": [%s], \"Input Dims\": %s}},%s",
      meanings[_i].op, meanings[_i].types, meanings[_i].dims, KERNEL("k", 1, 5, 3));
  g_autoptr(KinetoTrace) trace = read_events(events);
  Experiment experiment;
  gboolean found = traced_experiment(find_row(trace, meanings[_i].op), &experiment);
  g_autofree char *text = found ? experiment_text(&experiment) : NULL;
  ck_assert_msg(g_strcmp0(text, meanings[_i].experiment) == 0, "%s %s is %s, not %s",
                meanings[_i].op, meanings[_i].dims, text, meanings[_i].experiment);
}
END_TEST

static const struct {
  const char *name;
  int kind; /* -1: none */
} collective_names[] = {
    {"_allgather_base", COLLECTIVE_ALL_GATHER},
    {"all_gather_single", COLLECTIVE_ALL_GATHER},
    {"_reduce_scatter_base", COLLECTIVE_REDUCE_SCATTER},
    {"allreduce", COLLECTIVE_ALL_REDUCE},
    {"nccl:all_reduce", COLLECTIVE_ALL_REDUCE},
    {"broadcast", COLLECTIVE_BROADCAST},
    {"all_to_all", COLLECTIVE_ALL_TO_ALL},
    {"all_to_allv", -1},
    {"allreduce_coalesced", -1},
    {"barrier", -1},
};

START_TEST(collectives_are_known_by_all_their_names)
{
  Experiment experiment;
  KinetoCollective c = {
      .name = g_strdup(collective_names[_i].name), .bytes = 1024, .ranks = 8, .stride = 1};
  gboolean found = traced_collective(&c, &experiment);
  ck_assert_int_eq(found ? experiment.call.collective : -1, collective_names[_i].kind);
  c.bytes = 0;
  ck_assert(!traced_collective(&c, &experiment));
  g_free(c.name);
}
END_TEST

/* ---- constants ---- */

static double
modelled_us(const DeviceProfile *device, const Kernel *kernel)
{
  KernelModel model = kernel_model(device, &(KernelRun){.ranks = 1});
  double gap = kernel_model_parts(&model, kernel).gap_ns;
  return ((double) kernel_model_duration(&model, kernel) - gap) / 1e3;
}

static void
append_product(GString *events, const DeviceProfile *device, int id, gint64 m, gint64 n, gint64 k)
{
  const Kernel kernel = {.kind = KERNEL_GEMM,
                         .dtype = DTYPE_BF16,
                         .launches = 1,
                         .m = m,
                         .n = n,
                         .k = k,
                         .flops = 2.0 * (double) (m * n * k),
                         .bytes = 2.0 * (double) (m * k + n * k + m * n)};
  g_string_append_printf(
      events,
      "{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::mm\", \"pid\": 41, \"tid\": 7, "
      "\"ts\": "
      "%d, \"dur\": 9, \"args\": {\"External id\": %d, \"Input type\": [" HALF ", " HALF
      "], \"Input Dims\": [[%d, %d], [%d, %d]]}},{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": "
      "\"gemm\", \"pid\": 0, \"tid\": 20, \"ts\": %d, \"dur\": %.3f, \"args\": {\"External id\": "
      "%d}},",
      id * 10, id, (int) m, (int) k, (int) k, (int) n, id * 100000, modelled_us(device, &kernel),
      id);
}

static const FittedConstant *
find_constant(const GArray *constants, const char *key)
{
  for (guint i = 0; i < constants->len; i++)
    if (g_str_equal(g_array_index(constants, FittedConstant, i).key, key))
      return &g_array_index(constants, FittedConstant, i);
  return NULL;
}

/* A device that is otherwise than the profile in two constants; the kernels of its step take what
 * the model says, and a product beside a collective five times as long. */
START_TEST(a_step_gives_the_constants_that_made_it)
{
  g_autoptr(DeviceProfile) base = device_profile_load("h100-sxm-80gb", NULL);
  ck_assert_ptr_nonnull(base);
  DeviceProfile real = *base;
  real.gemm_efficiency = 0.61;
  real.memory_efficiency = 0.7;
  real.clock = CLOCK_RUNNING;
  g_autoptr(GString) events = g_string_new(NULL);
  append_product(events, &real, 1, 8192, 4096, 4096);
  append_product(events, &real, 2, 8192, 14336, 4096);
  append_product(events, &real, 3, 8192, 4096, 14336);
  const double bytes = 3.0 * 2 * 8192 * 14336;
  const Kernel silu = {.kind = KERNEL_MEMORY, .dtype = DTYPE_BF16, .launches = 1, .bytes = bytes};
  g_string_append_printf(events,
                         OP("aten::mul", 9, 900, 9, "[[8192, 14336], [8192, 14336]]",
                            "[" HALF ", " HALF
                            "]") ",{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"mul\", "
                                 "\"pid\": 0, \"tid\": 20, \"ts\": "
                                 "900000, \"dur\": %.3f, \"args\": {\"External id\": 9}},",
                         modelled_us(&real, &silu));
  g_string_append(
      events,
      OP("aten::mm", 10, 950, 9, "[[8192, 4096], [4096, 4096]]", "[" HALF ", " HALF "]") "," KERNEL(
          "gemm", 10, 2000000, 5000) "," DEVICE("kernel", "ncclDevKernel", 2000100, 40, NCCL_ARGS));
  g_autoptr(KinetoTrace) trace = read_events(events->str);
  g_autoptr(Measurements) measured = traced_measurements(trace, (TracedJob){0});
  g_autoptr(GArray) constants = fit_device(base, measured);
  const FittedConstant *gemm = find_constant(constants, "gemm_efficiency");
  const FittedConstant *memory = find_constant(constants, "memory_efficiency");
  ck_assert_int_eq(gemm->experiments, 3);
  ck_assert_double_eq_tol(gemm->value, 0.61, 0.61 * 0.005);
  ck_assert_double_eq_tol(memory->value, 0.7, 0.7 * 0.005);
  ck_assert_double_lt(gemm->worst_error, 0.005);
  ck_assert_int_eq(find_constant(constants, "cuda_malloc_us")->experiments, 0);
}
END_TEST

START_TEST(of_a_collective_the_shortest_run_counts)
{
  g_autoptr(KinetoTrace) trace =
      read_events(DEVICE("kernel", "ncclDevKernel", 0, 90, NCCL_ARGS) "," DEVICE(
          "kernel", "ncclDevKernel", 100, 40, NCCL_ARGS) "," DEVICE("kernel", "ncclDevKernel", 200,
                                                                    70, NCCL_ARGS));
  g_autoptr(Measurements) measured = traced_measurements(trace, (TracedJob){.nodes = 8});
  ck_assert_uint_eq(measured->measurements->len, 1);
  const Measurement *m = g_ptr_array_index(measured->measurements, 0);
  ck_assert_double_eq(m->median_ns, 40000);
  ck_assert_int_eq(m->experiment.call.bytes, 4096);
  ck_assert_int_eq(m->experiment.call.group.stride, 8);
  ck_assert_int_eq(measured->facts.ranks, 8);
  ck_assert_int_eq(measured->facts.ranks_of_node, 1);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("kineto_trace");
  TCase *reading = tcase_create("reading");
  tcase_add_test(reading, a_kernel_belongs_to_its_op);
  tcase_add_loop_test(reading, all_spellings_mean_the_same, 0, G_N_ELEMENTS(spellings));
  tcase_add_test(reading, what_writers_got_wrong_is_taken);
  tcase_add_test(reading, other_texts_are_no_traces);
  tcase_add_test(reading, the_innermost_running_op_launched_it);
  tcase_add_test(reading, one_call_is_one_run_of_all_its_kernels);
  tcase_add_test(reading, kernels_of_no_known_op_have_their_own_name);
  tcase_add_test(reading, times_are_exact_to_the_nanosecond);
  tcase_add_test(reading, shapes_of_lists_are_counted);
  tcase_add_test(reading, long_shapes_are_cut_and_stay_different);
  tcase_add_test(reading, copies_to_the_host_are_rows_of_their_own);
  tcase_add_test(reading, a_collective_has_bytes_and_ranks);
  tcase_add_test(reading, its_size_may_stand_at_the_op_alone);
  tcase_add_loop_test(reading, what_runs_during_a_collective_is_told, 0, G_N_ELEMENTS(places));
  tcase_add_test(reading, the_host_is_timed_from_launch_to_launch);
  tcase_add_test(reading, the_machine_is_described);
  tcase_add_loop_test(reading, what_is_no_trace_is_refused_with_its_place, 0,
                      G_N_ELEMENTS(refusals));
  tcase_add_test(reading, a_trace_that_was_cut_is_used_up_to_there);
  tcase_add_test(reading, several_files_are_one_set_of_rows);
  suite_add_tcase(suite, reading);
  TCase *meaning = tcase_create("meaning");
  tcase_add_loop_test(meaning, ops_are_experiments_by_name_and_shape, 0, G_N_ELEMENTS(meanings));
  tcase_add_loop_test(meaning, collectives_are_known_by_all_their_names, 0,
                      G_N_ELEMENTS(collective_names));
  tcase_add_test(meaning, a_step_gives_the_constants_that_made_it);
  tcase_add_test(meaning, of_a_collective_the_shortest_run_counts);
  suite_add_tcase(suite, meaning);
  return suite;
}

/* check_program_text.c - the Program's text form: printing what was parsed gives the same text, and
 * malformed text is refused with the line; the listings for people. */
#include "program/program.h"
#include "program/program_builder.h"
#include "program_text.h"
#include "tap_main.h"
#include <string.h>

static Program *
parse_or_abort(const char *text)
{
  g_autoptr(GError) error = NULL;
  Program *program = program_parse("text", text, &error);

  if (program == NULL)
    ck_abort_msg("%s", error->message);
  return program;
}

static char *
print(const Program *program)
{
  GString *out = g_string_new(NULL);

  program_print(program, out);
  return g_string_free(out, FALSE);
}

/* In the printer's own spacing and order, so that the text must come back as it is. */
static const char *const canonical[] = {
    PROGRAM_TABLES "list\nsteps\n",
    "highwater-program-1\nevents 0\nsteps\n",
    /* Every op. */
    PROGRAM_TABLES
    "list\nalloc compute 0\nlist\n"
    "range_push 0 phase 3\nrange_push 2 module -\nrange_push 1 hook -\n"
    "host_work op_forward 0\nhost_work op_backward 1\nhost_work hook 2\n"
    "host_work collective_call 3\nhost_work optimizer 4\nhost_work module 2147483647\n"
    "alloc compute 1\nalloc all_gather 2\n"
    "launch compute 0 @0 r0 w1\ncopy copy_in 0 a1\nlaunch compute 0\n"
    "collective all_gather 0 @0 r1 w2\ncollective reduce_scatter 0\n"
    "event_record compute 0\nstream_wait all_reduce 0\nevent_sync 0\n"
    "stream_sync all_gather\nrecord_stream host 2 @0\nfree all_gather 2\nfree compute 1\n"
    "empty_cache\nrange_pop\nrange_pop\nrange_pop\nsteps 1\n",
    /* Carries, and steps that share lists. */
    PROGRAM_TABLES "list\nlist\nlist\ncarry 1 3\ncarry 3 1\ncarry_event 0 1\nsteps 1 2 2 2 1\n",
    /* Layouts of no, one and five dimensions; the largest and smallest numbers. */
    "highwater-program-1\n"
    "layout 0 dtype=bool shape= stride=\n"
    "layout 1 dtype=int64 shape=9223372036854775807 stride=1\n"
    "layout 2 dtype=complex64 shape=1,2,3,4,5 stride=0,60,20,5,1\n"
    "events 4194304\nsteps\n",
    /* Numbers that need all digits. */
    "highwater-program-1\nname 0 \"k\"\n"
    "kernel 0 kind=attention_backward dtype=fp16 variant=65535 name=0 launches=2147483647 m=0 "
    "n=9223372036854775807 k=1 flops=0.1 bytes=0.3333333333333333\n"
    "kernel 1 kind=copy dtype=uint8 variant=0 name=0 launches=1 m=0 n=0 k=0 flops=1e+300 "
    "bytes=4.94065645841247e-324\n"
    "kernel 2 kind=memory dtype=int32 variant=0 name=0 launches=1 m=0 n=0 k=0 "
    "flops=1.2345678901234568e+17 bytes=5.123456789012345\n"
    "events 0\nsteps\n",
    /* Any text can be a name. */
    ("highwater-program-1\nname 0 \"\"\nname 1 \"a \\\"b\\\" \\\\ c\"\nname 2 \"\\x01\\x0a\\x7f\"\n"
     "name 3 \"\xc3\xa9\xff\"\nmodule 0 \"layers.0 # no comment\"\nevents 0\nsteps\n"),
};

START_TEST(printing_what_was_parsed_gives_the_same_text)
{
  g_autoptr(Program) program = parse_or_abort(canonical[_i]);
  g_autofree char *text = print(program);

  ck_assert_str_eq(text, canonical[_i]);
}
END_TEST

START_TEST(comments_blank_lines_and_spacing_do_not_matter)
{
  g_autoptr(Program) program = parse_or_abort("# made by hand\n\n  highwater-program-1  \n"
                                              "\tname   0\t\"a\"\n\n# table ends\nlist \n"
                                              "  range_push 0 phase -\n  range_pop\nsteps");
  g_autofree char *text = print(program);

  ck_assert_str_eq(text, "highwater-program-1\nname 0 \"a\"\nevents 0\nlist\nrange_push 0 phase -\n"
                         "range_pop\nsteps\n");
}
END_TEST

START_TEST(parsing_gives_the_values_that_stand_there)
{
  g_autoptr(Program) program =
      parse_or_abort(PROGRAM_TABLES "list\nlaunch copy_in 0 @0 r1 w6\nrange_push 0 hook -\n"
                                    "range_pop\nlist\nsteps 1 1\n");
  const Kernel *kernel = &g_array_index(program->kernels, Kernel, 0);
  const Storage *storage = &g_array_index(program->storages, Storage, 4);
  const Tensor *tensor = &g_array_index(program->tensors, Tensor, 6);
  const Layout *layout = &g_array_index(program->layouts, Layout, tensor->layout);
  const OpList *list = g_ptr_array_index(program->lists, 0);
  const ProgramOp *op = &g_array_index(list->ops, ProgramOp, 0);

  ck_assert_int_eq(kernel->kind, KERNEL_GEMM);
  ck_assert_int_eq(kernel->launches, 1);
  ck_assert_double_eq(kernel->bytes, 48);
  ck_assert_int_eq(storage->space, SPACE_PINNED);
  ck_assert_int_eq(storage->category, CATEGORY_TEMPORARY);
  ck_assert_int_eq(storage->module, -1);
  ck_assert_str_eq(program_text(program, storage->what), "small");
  ck_assert_int_eq(tensor->offset, 2);
  ck_assert_int_eq(layout->dims, 1);
  ck_assert_int_eq(layout->shape[0], 2);
  ck_assert_int_eq(op->kind, PROGRAM_LAUNCH);
  ck_assert_int_eq(op->stream, STREAM_COPY_IN);
  ck_assert_int_eq(op->module, 0);
  ck_assert_int_eq(op->operands, 2);
  ck_assert_int_eq(g_array_index(program->operands, Operand, op->first_operand + 1).tensor, 6);
  ck_assert_int_eq(g_array_index(program->operands, Operand, op->first_operand + 1).role,
                   ROLE_WRITE);
  ck_assert_int_eq(op[1].b, RANGE_HOOK);
  ck_assert_int_eq(op[1].c, -1);
  ck_assert_int_eq(program->steps, 2);
  ck_assert_ptr_eq(program_step(program, 1), g_ptr_array_index(program->lists, 1));
}
END_TEST

START_TEST(what_the_builder_made_parses_and_prints_alike)
{
  ProgramBuilder *builder = program_builder_new();
  g_autoptr(Program) program = NULL, again = NULL;
  g_autofree char *text = NULL, *second = NULL;
  Storage row = {.bytes = 64, .module = -1};
  Kernel kernel = {.kind = KERNEL_MEMORY, .launches = 2, .flops = 1.0 / 3};
  Collective reduce = {.kind = COLLECTIVE_ALL_REDUCE, .name = -1, .bytes = 64};
  gint32 id, event = program_builder_event(builder);

  row.what = kernel.name = program_builder_name(builder, "unsharded parameters of layers.3");
  id = program_builder_storage(builder, &row);
  reduce.communicator = program_builder_communicator(builder, "replicate", 2, 8);
  program_builder_begin_list(builder);
  program_builder_alloc(builder, id);
  program_builder_empty_cache(builder);
  program_builder_begin_list(builder);
  program_builder_push(builder, RANGE_MODULE, "forward", 5);
  program_builder_operand(builder, program_builder_flat_tensor(builder, id, 0, 16, DTYPE_FP32),
                          ROLE_ACCUMULATE);
  program_builder_collective(builder, STREAM_ALL_REDUCE, &reduce);
  program_builder_launch(builder, STREAM_COMPUTE, program_builder_kernel(builder, &kernel));
  program_builder_record(builder, STREAM_ALL_REDUCE, event);
  program_builder_event_sync(builder, event);
  program_builder_record_stream(builder, id, STREAM_ALL_REDUCE);
  program_builder_release(builder, id);
  program_builder_pop(builder);
  program_builder_add_step(builder);
  program = program_builder_finish(builder);

  text = print(program);
  again = parse_or_abort(text);
  second = print(again);
  ck_assert_str_eq(second, text);
  ck_assert_ptr_nonnull(strstr(text, "\nrange_push 2 module -\n"));
  ck_assert_ptr_nonnull(strstr(text, "\ncollective all_reduce 0 a0\n"));
}
END_TEST

/* ---- Refusals. */

typedef struct {
  const char *text;
  const char *message;
} Malformed;

#define HEAD "highwater-program-1\n"

static const Malformed malformed[] = {
    {"", "text: line 1: the text ends before the steps"},
    {HEAD "list\n", "text: line 3: the text ends before the steps"},
    {"highwater-program-2\n", "line 1: a Program begins with 'highwater-program-1'"},
    {HEAD "nome 0 \"a\"\n", "line 2: 'nome' is no table"},
    {HEAD "alloc compute 0\n", "line 2: 'alloc' is no table; ops stand in lists"},
    {HEAD "list\nname 0 \"a\"\n", "line 3: 'name' is no op; tables stand before the first list"},
    {HEAD "name 1 \"a\"\n", "line 2: name '1' where name 0 is due"},
    {HEAD "name 0\n", "a text in quotes is due"},
    {HEAD "name 0 \"a\n", "the text has no closing quote"},
    {HEAD "name 0 \"a\\\n", "bad character or escape"},
    {HEAD "name 0 \"a\\n\"\n", "bad character or escape"},
    {HEAD "name 0 \"\\x0\"\n", "bad character or escape"},
    {HEAD "name 0 \"\\x00\"\n", "bad character or escape"},
    {HEAD "name 0 \"\\xgg\"\n", "bad character or escape"},
    {HEAD "name 0 \"a\tb\"\n", "bad character or escape"},
    {HEAD "name 0 \"a\" b\n", "unexpected 'b'"},
    {HEAD "layout 0 dtype=fp31 shape= stride=\n", "'fp31' is no dtype; allowed: fp32, bf16"},
    {HEAD "layout 0 shape= stride=\n", "'shape=' where 'dtype=' is due"},
    {HEAD "layout 0 dtype=fp32 shape=1,2 stride=1\n", "2 dimensions but 1 strides"},
    {HEAD "layout 0 dtype=fp32 shape=1,2,3,4,5,6 stride=1\n", "more than 5 dimensions"},
    {HEAD "layout 0 dtype=fp32 shape=1,,2 stride=1\n", "'' is no number"},
    {HEAD "layout 0 dtype=fp32 shape=-1 stride=1\n", "'-1' is no number"},
    {HEAD "layout 0 dtype=fp32 shape=9223372036854775808 stride=1\n", "is no number"},
    {HEAD "layout 0 dtype=fp32 shape=9223372036854775807 stride=2\n", "spans more than 2^63"},
    {HEAD "layout 0 dtype=fp32 shape=2,2 stride=9223372036854775807,1\n", "spans more than"},
    {HEAD "communicator 0 name=0 ranks=1 stride=1\n",
     "name 0: no name is declared before this line"},
    {HEAD "name 0 \"a\"\ncommunicator 0 name=0 ranks=0 stride=1\n", "count 0 is not in 1.."},
    {HEAD "name 0 \"a\"\ncommunicator 0 name=- ranks=1 stride=1\n", "'-' is no name"},
    {HEAD "name 0 \"a\"\ncommunicator 0 name=0 ranks=2147483648 stride=1\n", "is not in 1.."},
    {HEAD "name 0 \"a\"\nkernel 0 kind=gemm dtype=fp32 variant=65536\n", "not in 0..65535"},
    {PROGRAM_TABLES
     "kernel 1 kind=gemm dtype=fp32 variant=0 name=1 launches=1 m=1 n=1 k=1 flops=nan "
     "bytes=1\n",
     "'nan' is no number"},
    {PROGRAM_TABLES "kernel 1 kind=gemm dtype=fp32 variant=0 name=1 launches=1 m=1 n=1 k=1 "
                    "flops=1e999 bytes=1\n",
     "'1e999' is no number"},
    {PROGRAM_TABLES
     "kernel 1 kind=gemm dtype=fp32 variant=0 name=1 launches=1 m=1 n=1 k=1 flops=1x "
     "bytes=1\n",
     "'1x' is no number"},
    {PROGRAM_TABLES "tensor 9 storage=5 layout=0 offset=0\n", "storage 5 is not in 0..4"},
    {PROGRAM_TABLES "tensor 9 storage=0 layout=0 offset=9223372036854775807\n", "ends beyond 2^63"},
    {PROGRAM_TABLES "tensor 9 storage=0 layout=0\n", "'' where 'offset=' is due"},
    {HEAD "events 4194305\n", "no number of events in 0..4194304"},
    {HEAD "events -\n", "no number of events"},
    {HEAD "events 3\nevents 2\n", "line 3: there are 3 events already"},
    {PROGRAM_TABLES "list\nalloc 0\n", "'0' is no stream; allowed: compute, copy_in"},
    {PROGRAM_TABLES "list\nalloc compute 5\n", "storage 5 is not in 0..4"},
    {PROGRAM_TABLES "list\nalloc compute\n", "'' is no storage"},
    {PROGRAM_TABLES "list\nalloc compute 0 r0\n", "unexpected 'r0'"},
    {PROGRAM_TABLES "list\nlaunch compute 1\n", "kernel 1 is not in 0..0"},
    {PROGRAM_TABLES "list\nlaunch compute 0 r9\n", "tensor 9 is not in 0..8"},
    {PROGRAM_TABLES "list\nlaunch compute 0 x1\n", "'x1' is no operand"},
    {PROGRAM_TABLES "list\nlaunch compute 0 r\n", "'' is no tensor"},
    {PROGRAM_TABLES "list\nlaunch compute 0 @1\n", "module 1 is not in 0..0"},
    {PROGRAM_TABLES "list\nlaunch compute 0 @\n", "'' is no module"},
    {PROGRAM_TABLES "list\nevent_sync 4\n", "event 4 is not in 0..3"},
    {PROGRAM_TABLES "list\nrange_push 0 face -\n", "'face' is no range kind"},
    {PROGRAM_TABLES "list\nhost_work hook -\n", "'-' is no count"},
    {PROGRAM_TABLES "list\ncarry 0 5\n", "storage 5 is not in 0..4"},
    {PROGRAM_TABLES "list\ncarry_event 0\n", "'' is no event"},
    {PROGRAM_TABLES "list\nsteps 0\n", "'0' is no list of a step"},
    {PROGRAM_TABLES "list\nlist\nsteps 1 2\n", "'2' is no list of a step"},
    {PROGRAM_TABLES "list\nlist\nsteps 1\nlist\n", "'list' after the steps"},
};

START_TEST(malformed_text_is_refused_with_its_line)
{
  g_autoptr(GError) error = NULL;

  ck_assert_ptr_null(program_parse("text", malformed[_i].text, &error));
  ck_assert(test_error_says(error, malformed[_i].message));
}
END_TEST

/* Where a text may be cut, and still be a Program: at the end of the steps line's words. */
START_TEST(no_cut_of_a_text_is_taken_for_the_whole)
{
  const char *text = canonical[2];
  gsize whole = strlen(text) - strlen(" 1\n");

  for (gsize length = 0; length < whole; length++) {
    g_autofree char *part = g_strndup(text, length);
    g_autoptr(GError) error = NULL;

    ck_assert_ptr_null(program_parse("text", part, &error));
    ck_assert_ptr_nonnull(error);
  }
}
END_TEST

/* ---- Listings. */

static const char listed[] =
    PROGRAM_TABLES "list\nlist\nrange_push 0 phase 0\nalloc compute 1\nalloc compute 4\n"
                   "launch compute 0 @0 r0 w6\ncollective all_gather 0 r1 w2\n"
                   "event_record compute 2\nhost_work hook 3\nfree compute 1\nempty_cache\n"
                   "free compute 4\nrange_pop\nsteps 1\n";

START_TEST(a_listing_names_streams_ops_storages_and_modules)
{
  g_autoptr(Program) program = parse_or_abort(listed);
  g_autoptr(GString) out = g_string_new(NULL);

  program_print_list(program, 1, out);
  ck_assert_str_eq(
      out->str,
      "host            range_push     phase forward, micro-batch 0\n"
      "compute         alloc          hidden#1 16 B activation\n"
      "compute         alloc          small#4 8 B temporary pinned\n"
      "compute         launch         mm (gemm fp32, 16 FLOP, 48 B), read weight#0 fp32[2,2], "
      "write hidden#1+2 fp32[2]  @ layers.0\n"
      "all_gather      collective     all_gather of - over shard (8 ranks, fp32, 16 B), read "
      "hidden#1 fp32[2,2], write gathered#2 fp32[2,2]\n"
      "compute         event_record   event 2\n"
      "host            host_work      hook x 3\n"
      "compute         free           hidden#1 16 B activation\n"
      "host            empty_cache    -\n"
      "compute         free           small#4 8 B temporary pinned\n"
      "host            range_pop      -\n");
}
END_TEST

START_TEST(allocations_are_those_of_the_device_in_order)
{
  g_autoptr(Program) program = parse_or_abort(listed);
  g_autoptr(GString) out = g_string_new(NULL);

  program_print_allocations(program, g_ptr_array_index(program->lists, 1), out);
  ck_assert_str_eq(out->str, "+ 16 compute activation layers.0 hidden\n"
                             "- 16 compute activation layers.0 hidden\n");
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("program_text");
  TCase *tcase = tcase_create("text");

  tcase_add_loop_test(tcase, printing_what_was_parsed_gives_the_same_text, 0,
                      (int) G_N_ELEMENTS(canonical));
  tcase_add_test(tcase, comments_blank_lines_and_spacing_do_not_matter);
  tcase_add_test(tcase, parsing_gives_the_values_that_stand_there);
  tcase_add_test(tcase, what_the_builder_made_parses_and_prints_alike);
  tcase_add_loop_test(tcase, malformed_text_is_refused_with_its_line, 0,
                      (int) G_N_ELEMENTS(malformed));
  tcase_add_test(tcase, no_cut_of_a_text_is_taken_for_the_whole);
  tcase_add_test(tcase, a_listing_names_streams_ops_storages_and_modules);
  tcase_add_test(tcase, allocations_are_those_of_the_device_in_order);
  suite_add_tcase(suite, tcase);
  return suite;
}

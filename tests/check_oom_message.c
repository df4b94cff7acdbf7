/* check_oom_message.c - what PyTorch says when memory runs out, in all its wordings since 1.0:
 * every figure, with what it can be before it was rounded, found in messages, tracebacks and logs.
 * Not pinned: what follows from them, see check_explain.c. */
#include "base/units.h"
#include "import/oom_message.h"
#include "tap_main.h"
#include <string.h>

/* Figures in units of 0.01 of MIB or GIB as they stand in the text; -1: it is not in it. */
typedef struct {
  const char *text;
  int gpu;
  double tried, capacity, free, allowed, this_process, allocated, idle, reserved; /* MiB */
  int processes;
} Wording;

#define G(gib) (1024.0 * (gib))
#define NONE (-1.0)

static const Wording wordings[] = {
    /* 2.11 */
    {"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 98.00 MiB. GPU 0 has a total "
     "capacity of 79.10 GiB of which 60.19 MiB is free. Including non-PyTorch memory, this process "
     "has 79.03 GiB memory in use. Of the allocated memory 75.99 GiB is allocated by PyTorch, with "
     "1.11 GiB allocated in private pools (e.g., CUDA Graphs), and 1.09 GiB is reserved by PyTorch "
     "but unallocated. If reserved but unallocated memory is large try setting "
     "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.",
     0, 98, G(79.10), 60.19, NONE, G(79.03), G(75.99), G(1.09), G(75.99 + 1.09), 0},
    /* 2.1, with its spelling, and another process */
    {"CUDA out of memory. Tried to allocate 1.70 GiB. GPU 3 has a total capacty of 6.00 GiB of "
     "which 0 bytes is free. Process 1234 has 1.20 GiB memory in use. Including non-PyTorch "
     "memory, "
     "this process has 4.50 GiB memory in use. Of the allocated memory 2.93 GiB is allocated by "
     "PyTorch, and 512 bytes is reserved by PyTorch but unallocated.",
     3, G(1.70), G(6), 0, NONE, G(4.5), G(2.93), 512.0 / MIB, G(2.93) + 512.0 / MIB, 1},
    /* under set_per_process_memory_fraction */
    {"HIP out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacity of 255.98 GiB of "
     "which 244.65 GiB is free. 1.05 GiB allowed; Of the allocated memory 1017.01 MiB is allocated "
     "by PyTorch, with 17.00 MiB allocated in private pools (e.g., HIP Graphs), and 54.99 MiB is "
     "reserved by PyTorch but unallocated.",
     0, 2, G(255.98), G(244.65), G(1.05), NONE, 1017.01, 54.99, 1017.01 + 54.99, 0},
    /* 1.4 to 2.0 */
    {"RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 23.70 GiB total "
     "capacity; 21.90 GiB already allocated; 14.56 MiB free; 22.30 GiB reserved in total by "
     "PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb",
     0, 20, G(23.70), 14.56, NONE, NONE, G(21.90), G(22.30 - 21.90), G(22.30), 0},
    {"HIP out of memory. Tried to allocate 432.00 MiB (GPU 1; 15.92 GiB total capacity; 8.08 GiB "
     "already allocated; 7.12 GiB free; 10.00 GiB allowed; 8.39 GiB reserved in total by PyTorch)",
     1, 432, G(15.92), G(7.12), G(10), NONE, G(8.08), G(8.39 - 8.08), G(8.39), 0},
    /* before 1.4: what is cached is not allocated */
    {"RuntimeError: CUDA out of memory. Tried to allocate 1024.00 KiB (GPU 0; 11.17 GiB total "
     "capacity; 10.90 GiB already allocated; 576.00 KiB free; 30.96 MiB cached)",
     0, 1, G(11.17), 576.0 / 1024, NONE, NONE, G(10.90), 30.96, G(10.90) + 30.96, 0},
    /* ours */
    {"step 2, forward: to_copy asks for 3.91 GiB, a segment of 3.91 GiB; 2.56 GiB of 20.0 GiB "
     "left, "
     "16.3 GiB allocated",
     -1, G(3.91), NONE, G(2.56), G(20), NONE, G(16.3), NONE, NONE, 0},
    /* and no more than the first sentence */
    {"CUDA out of memory. Tried to allocate 368.00 MiB", -1, 368, NONE, NONE, NONE, NONE, NONE,
     NONE, NONE, 0},
};

static OomMessage *
parse(const char *text)
{
  g_autoptr(GError) error = NULL;
  OomMessage *message = oom_message_parse(text, strlen(text), &error);
  ck_assert_msg(message != NULL, "%s", error ? error->message : text);
  return message;
}

/* Is the printed number among what the figure can be? */
static void
check_figure(const char *name, const OomFigure *figure, double mib)
{
  ck_assert_msg(figure->known == (mib >= 0), "%s", name);
  if (!figure->known)
    return;
  double bytes = mib * MIB;
  ck_assert_msg((double) figure->low <= bytes + 1 && bytes - 1 <= (double) figure->high,
                "%s: %" G_GINT64_FORMAT " to %" G_GINT64_FORMAT, name, figure->low, figure->high);
}

START_TEST(every_wording_is_read)
{
  const Wording *w = &wordings[_i];
  g_autoptr(OomMessage) m = parse(w->text);
  ck_assert_int_eq(m->gpu, w->gpu);
  check_figure("tried", &m->tried, w->tried);
  check_figure("capacity", &m->capacity, w->capacity);
  check_figure("free", &m->free, w->free);
  check_figure("allowed", &m->allowed, w->allowed);
  check_figure("this process", &m->this_process, w->this_process);
  check_figure("allocated", &m->allocated, w->allocated);
  check_figure("idle", &m->idle, w->idle);
  check_figure("reserved", &m->reserved, w->reserved);
  ck_assert_uint_eq(m->processes->len, (guint) w->processes);
}
END_TEST

START_TEST(a_figure_is_what_rounds_to_it)
{
  g_autoptr(OomMessage) m = parse("CUDA out of memory. Tried to allocate 98.00 MiB. GPU 0 has a "
                                  "total capacity of 79.10 GiB of which 512 bytes is free.");
  /* Half of 0.01 MiB is 5242.88 bytes. */
  ck_assert_int_eq(m->tried.low, 98 * MIB - 5242);
  ck_assert_int_eq(m->tried.high, 98 * MIB + 5242);
  ck_assert_int_eq(oom_figure_distance(&m->tried, 98 * MIB + 5242), 0);
  ck_assert_int_eq(oom_figure_distance(&m->tried, 98 * MIB + 5250), 8);
  ck_assert_int_eq(oom_figure_distance(&m->tried, 98 * MIB - 5252), 10);
  ck_assert_int_eq(m->free.low, 512);
  ck_assert_int_eq(m->free.high, 512);
}
END_TEST

START_TEST(more_digits_than_bytes_have_are_the_nearest_byte)
{
  g_autoptr(OomMessage) m = parse("Tried to allocate 0.1234567 KiB; 98.5 bytes free");
  ck_assert_int_eq(m->tried.low, 126); /* 126.42 */
  ck_assert_int_eq(m->tried.high, 126);
  ck_assert_int_eq(m->free.low, 99);
  ck_assert_int_eq(m->free.high, 99);
}
END_TEST

START_TEST(other_processes_are_told_from_this_one)
{
  g_autoptr(OomMessage) m = parse(
      "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB "
      "of which 1.00 GiB is free. Process 17 has 30.00 GiB memory in use. Process 4711 has "
      "500.00 MiB memory in use. Including non-PyTorch memory, this process has 40.00 GiB "
      "memory in use.");
  ck_assert_uint_eq(m->processes->len, 2);
  const OomProcess *a = &g_array_index(m->processes, OomProcess, 0), *b = a + 1;
  ck_assert_int_eq(a->id, 17);
  ck_assert_int_eq(b->id, 4711);
  check_figure("17", &a->used, G(30));
  check_figure("4711", &b->used, 500);
  check_figure("this", &m->this_process, G(40));
}
END_TEST

START_TEST(a_process_with_an_absurd_size_is_left_out)
{
  g_autoptr(OomMessage) m = parse(
      "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB "
      "of which 1.00 GiB is free. Process 17 has 17179869184.00 GiB memory in use.");
  ck_assert_uint_eq(m->processes->len, 0);
}
END_TEST

START_TEST(a_traceback_and_broken_lines_are_read_through)
{
  g_autoptr(OomMessage) m = parse(
      "Traceback (most recent call last):\n  File \"train.py\", line 20 in 1.00 GiB\n"
      "    loss.backward()\ntorch.cuda.OutOfMemoryError: CUDA out of memory. Tried to\n"
      "allocate 1002.00 MiB. GPU 0 has a total capacity of\t79.10 GiB of which 60.19\n"
      "  MiB is free. Of the allocated memory 75.99 GiB is allocated by PyTorch, and 1.09 GiB "
      "is reserved\nby PyTorch but unallocated.\n");
  check_figure("tried", &m->tried, 1002);
  check_figure("free", &m->free, 60.19);
  check_figure("idle", &m->idle, G(1.09));
  ck_assert_ptr_null(strchr(m->text, '\n'));
}
END_TEST

START_TEST(of_several_messages_the_first_counts)
{
  g_autoptr(OomMessage) m = parse(
      "[rank0]: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of "
      "79.10 GiB of which 8.00 MiB is free.\n[rank1]: CUDA out of memory. Tried to allocate "
      "64.00 MiB. GPU 1 has a total capacity of 79.10 GiB of which 60.00 MiB is free. Of the "
      "allocated memory 70.00 GiB is allocated by PyTorch");
  check_figure("tried", &m->tried, 20);
  check_figure("free", &m->free, 8);
  ck_assert(!m->allocated.known);
  ck_assert_int_eq(m->gpu, 0);
}
END_TEST

START_TEST(our_own_line_names_what_asked)
{
  g_autoptr(OomMessage) m = parse(
      "DOES NOT FIT  step 1, forward of layers.4: mul asks for 224 MiB, a segment of 224 MiB; "
      "82.0 MiB of 11.0 GiB left, 10.8 GiB allocated");
  ck_assert_str_eq(m->named, "step 1, forward of layers.4: mul");
  g_autoptr(OomMessage) theirs = parse(wordings[0].text);
  ck_assert_ptr_null(theirs->named);
}
END_TEST

static const struct {
  const char *text, *says;
} refused[] = {
    {"", "no 'Tried to allocate ...' is in it"},
    {"RuntimeError: CUDA error: out of memory", "no 'Tried to allocate ...' is in it"},
    {"CUDA out of memory. Tried to allocate more than 1EB memory.", "more than 1 EB"},
    {"CUDA out of memory. Tried to allocate some memory", "does not say how much"},
    {"CUDA out of memory. Tried to allocate 0 bytes", "does not say how much"},
    {"CUDA out of memory. Tried to allocate 99999999999999999999.00 GiB", "does not say how much"},
};

START_TEST(what_has_no_figure_is_refused)
{
  g_autoptr(GError) error = NULL;
  ck_assert_ptr_null(oom_message_parse(refused[_i].text, strlen(refused[_i].text), &error));
  ck_assert(test_error_says(error, refused[_i].says));
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create(__FILE__);
  TCase *tcase = tcase_create("messages");
  tcase_add_loop_test(tcase, every_wording_is_read, 0, G_N_ELEMENTS(wordings));
  tcase_add_test(tcase, a_figure_is_what_rounds_to_it);
  tcase_add_test(tcase, more_digits_than_bytes_have_are_the_nearest_byte);
  tcase_add_test(tcase, other_processes_are_told_from_this_one);
  tcase_add_test(tcase, a_process_with_an_absurd_size_is_left_out);
  tcase_add_test(tcase, a_traceback_and_broken_lines_are_read_through);
  tcase_add_test(tcase, of_several_messages_the_first_counts);
  tcase_add_test(tcase, our_own_line_names_what_asked);
  tcase_add_loop_test(tcase, what_has_no_figure_is_refused, 0, G_N_ELEMENTS(refused));
  suite_add_tcase(suite, tcase);
  return suite;
}

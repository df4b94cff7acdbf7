# tests/local.mk - every test speaks TAP.  A new test is a file and its name in one of these lists.

# Unit tests: tests/check_NAME.c with one `Suite *test_suite(void)`, see tap_main.h.
CHECKS = \
  tests/check_accelerate \
  tests/check_allocation_trace \
  tests/check_allocator_options \
  tests/check_allocator_random \
  tests/check_arithmetic \
  tests/check_block_policies \
  tests/check_builder \
  tests/check_caching_allocator \
  tests/check_calibrate_measure \
  tests/check_calibrate_profile \
  tests/check_cluster_spec \
  tests/check_chrome_trace \
  tests/check_classic \
  tests/check_closed_forms \
  tests/check_collective \
  tests/check_contention \
  tests/check_compare \
  tests/check_compile \
  tests/check_ddp \
  tests/check_critical_path \
  tests/check_composer \
  tests/check_decoders \
  tests/check_device_clock \
  tests/check_encoders \
  tests/check_engine \
  tests/check_equivalence \
  tests/check_estimate \
  tests/check_event_queue \
  tests/check_executor \
  tests/check_expandable_segments \
  tests/check_explain \
  tests/check_exported_trace \
  tests/check_failure \
  tests/check_families \
  tests/check_figures \
  tests/check_fit \
  tests/check_free_set \
  tests/check_fsdp1 \
  tests/check_fused_attention \
  tests/check_fsdp2 \
  tests/check_fsdp_offload \
  tests/check_host_order \
  tests/check_kineto_recording \
  tests/check_kineto_trace \
  tests/check_internevo \
  tests/check_json \
  tests/check_kernel_model \
  tests/check_leaf_modules \
  tests/check_meanings \
  tests/check_memory_snapshot \
  tests/check_moe \
  tests/check_nccl_tests \
  tests/check_measured \
  tests/check_oom_message \
  tests/check_numeric \
  tests/check_op \
  tests/check_op_numbers \
  tests/check_output \
  tests/check_parameter_counts \
  tests/check_phases \
  tests/check_pickle \
  tests/check_plan_space \
  tests/check_plan_spec \
  tests/check_plot \
  tests/check_program \
  tests/check_program_fold \
  tests/check_program_order \
  tests/check_program_text \
  tests/check_ranks \
  tests/check_range_map \
  tests/check_rate_group \
  tests/check_recording \
  tests/check_reports \
  tests/check_restart \
  tests/check_restart_failures \
  tests/check_retain \
  tests/check_rounding \
  tests/check_run_store \
  tests/check_shared_link \
  tests/check_show \
  tests/check_specs \
  tests/check_step_time \
  tests/check_strategies \
  tests/check_strides \
  tests/check_sweep \
  tests/check_throughput_timer \
  tests/check_torchtitan \
  tests/check_trace_order \
  tests/check_trainable \
  tests/check_trials \
  tests/check_training_config \
  tests/check_units \
  tests/check_verification \
  tests/check_verification_matrix \
  tests/check_vary \
  tests/check_zero \
  tests/check_zero3
tests_check_allocator_random_SOURCES = tests/check_allocator_random.c tests/allocator_fixture.c tests/allocator_fixture.h
tests_check_caching_allocator_SOURCES = tests/check_caching_allocator.c tests/allocator_fixture.c tests/allocator_fixture.h
tests_check_calibrate_measure_SOURCES = tests/check_calibrate_measure.c tests/stand_in_probe.c tests/stand_in_probe.h
tests_check_calibrate_profile_SOURCES = tests/check_calibrate_profile.c tests/stand_in_probe.c tests/stand_in_probe.h
tests_check_expandable_segments_SOURCES = tests/check_expandable_segments.c tests/allocator_fixture.c tests/allocator_fixture.h
tests_check_host_order_SOURCES = tests/check_host_order.c tests/host_order.c tests/host_order.h
tests_check_chrome_trace_SOURCES = tests/check_chrome_trace.c tests/report_fixture.c tests/report_fixture.h
tests_check_exported_trace_SOURCES = tests/check_exported_trace.c tests/traced_run.c tests/traced_run.h
tests_check_kineto_recording_SOURCES = tests/check_kineto_recording.c tests/traced_run.c tests/traced_run.h
tests_check_figures_SOURCES = tests/check_figures.c tests/program_run.c tests/program_run.h
tests_check_plot_SOURCES = tests/check_plot.c tests/program_run.c tests/program_run.h tests/report_fixture.c tests/report_fixture.h
tests_check_compare_SOURCES = tests/check_compare.c tests/report_fixture.c tests/report_fixture.h
tests_check_reports_SOURCES = tests/check_reports.c tests/report_fixture.c tests/report_fixture.h
tests_check_verification_SOURCES = tests/check_verification.c tests/verification_run.c tests/verification_run.h
tests_check_verification_matrix_SOURCES = tests/check_verification_matrix.c tests/verification_axes.c \
  tests/verification_axes.h tests/verification_run.c tests/verification_run.h
tests_check_orders_SOURCES = tests/check_orders.c tests/verification_axes.c tests/verification_axes.h \
  tests/verification_run.c tests/verification_run.h
tests_check_restart_SOURCES = tests/check_restart.c tests/restart_run.c tests/restart_run.h
tests_check_restart_failures_SOURCES = tests/check_restart_failures.c tests/restart_run.c tests/restart_run.h
tests_check_run_store_SOURCES = tests/check_run_store.c tests/report_fixture.c tests/report_fixture.h

# Shell tests, see cli/lib.sh.  Cases of golden/run.sh are the folders of tests/golden.
SHELL_TESTS = \
  tests/cli/bad_input.sh \
  tests/cli/calibrate.sh \
  tests/cli/compare.sh \
  tests/cli/estimate.sh \
  tests/cli/explain.sh \
  tests/cli/exported.sh \
  tests/cli/import_kineto.sh \
  tests/cli/list.sh \
  tests/cli/memory_snapshot.sh \
  tests/cli/moe.sh \
  tests/cli/networks.sh \
  tests/cli/plan.sh \
  tests/cli/plot.sh \
  tests/cli/program.sh \
  tests/cli/replay.sh \
  tests/cli/report.sh \
  tests/cli/run.sh \
  tests/cli/show.sh \
  tests/cli/sweep.sh \
  tests/cli/training_configs.sh \
  tests/cli/tutorial.sh \
  tests/cli/usage.sh \
  tests/cli/verify.sh \
  tests/fuzz/replay.sh \
  tests/golden/run.sh \
  tests/cli/worked_case.sh \
  tests/documents.sh \
  tests/export_network.sh \
  tests/extend.sh \
  tests/formats.sh \
  tests/layers.sh \
  tests/manual.sh \
  tests/numeric_torch.sh \
  tests/registry.sh

# Headers that several tests share, data: a release holds only what is named somewhere.
TEST_EXTRAS = \
  tests/allocator_fixture.h \
  tests/data \
  tests/document.sh \
  tests/export_model.py \
  tests/fuzz/fuzz_config.h \
  tests/history.h \
  tests/host_order.h \
  tests/numeric_torch.py \
  tests/op_cases.h \
  tests/op_meaning.h \
  tests/paper_machine.h \
  tests/perfetto_check.py \
  tests/plan_tables.h \
  tests/program_text.h \
  tests/quick.h \
  tests/recorded_config.h \
  tests/recorded_run.h \
  tests/small_network.h \
  tests/report_fixture.h \
  tests/scenario_fixture.h \
  tests/simulation.h \
  tests/snapshot_check.py \
  tests/table_rows.h

# Fuzz targets: tests/fuzz/fuzz_NAME.c, inputs in tests/fuzz/corpus/NAME.
FUZZERS = \
  tests/fuzz/fuzz_allocation_trace \
  tests/fuzz/fuzz_cluster \
  tests/fuzz/fuzz_config_toml \
  tests/fuzz/fuzz_config_yaml \
  tests/fuzz/fuzz_json \
  tests/fuzz/fuzz_kineto \
  tests/fuzz/fuzz_measurements \
  tests/fuzz/fuzz_memory_snapshot \
  tests/fuzz/fuzz_nccl_tests \
  tests/fuzz/fuzz_network \
  tests/fuzz/fuzz_oom_message \
  tests/fuzz/fuzz_ops \
  tests/fuzz/fuzz_plan \
  tests/fuzz/fuzz_program \
  tests/fuzz/fuzz_recording \
  tests/fuzz/fuzz_run_info \
  tests/fuzz/fuzz_sweep \
  tests/fuzz/fuzz_training_config
tests_fuzz_fuzz_allocation_trace_LDADD = $(FUZZ_LDADD)
tests_fuzz_fuzz_cluster_LDADD = $(FUZZ_LDADD)
tests_fuzz_fuzz_config_toml_LDADD = $(FUZZ_LDADD)
tests_fuzz_fuzz_config_yaml_LDADD = $(FUZZ_LDADD)
tests_fuzz_fuzz_json_LDADD = $(FUZZ_LDADD)
tests_fuzz_fuzz_kineto_LDADD = $(FUZZ_LDADD)
tests_fuzz_fuzz_measurements_LDADD = $(FUZZ_LDADD)
tests_fuzz_fuzz_memory_snapshot_LDADD = $(FUZZ_LDADD)
tests_fuzz_fuzz_nccl_tests_LDADD = $(FUZZ_LDADD)
tests_fuzz_fuzz_network_LDADD = $(FUZZ_LDADD)
tests_fuzz_fuzz_oom_message_LDADD = $(FUZZ_LDADD)
tests_fuzz_fuzz_ops_LDADD = $(FUZZ_LDADD)
tests_fuzz_fuzz_plan_LDADD = $(FUZZ_LDADD)
tests_fuzz_fuzz_program_LDADD = $(FUZZ_LDADD)
tests_fuzz_fuzz_recording_LDADD = $(FUZZ_LDADD)
tests_fuzz_fuzz_run_info_LDADD = $(FUZZ_LDADD)
tests_fuzz_fuzz_sweep_LDADD = $(FUZZ_LDADD)
tests_fuzz_fuzz_training_config_LDADD = $(FUZZ_LDADD)

# Published measurements beside predictions, from the reference data; without them skipped.
SCORES = tests/published/score
tests_published_score_SOURCES = \
  tests/published/csv.c tests/published/csv.h \
  tests/published/rows.c tests/published/rows.h \
  tests/published/score.c
tests_published_score_LDADD = libhighwater.a $(PROGRAM_LIBS)

# What shell tests run besides.
HELPERS = tests/numeric_values
tests_numeric_values_LDADD = libhighwater.a $(PROGRAM_LIBS)

# Benchmarks: tests/bench/bench_NAME.c.
BENCHMARKS = \
  tests/bench/bench_allocator \
  tests/bench/bench_command \
  tests/bench/bench_engine \
  tests/bench/bench_executor \
  tests/bench/bench_json \
  tests/bench/bench_modules \
  tests/bench/bench_program
tests_bench_bench_allocator_LDADD = $(BENCH_LDADD)
tests_bench_bench_command_LDADD = $(BENCH_LDADD)
tests_bench_bench_engine_LDADD = $(BENCH_LDADD)
tests_bench_bench_executor_LDADD = $(BENCH_LDADD)
tests_bench_bench_json_LDADD = $(BENCH_LDADD)
tests_bench_bench_modules_LDADD = $(BENCH_LDADD)
tests_bench_bench_program_LDADD = $(BENCH_LDADD)

LOG_DRIVER = env AM_TAP_AWK='$(AWK)' $(SHELL) $(top_srcdir)/build-aux/tap-driver.sh
SH_LOG_DRIVER = $(LOG_DRIVER)
SH_LOG_COMPILER = $(SHELL)
TEST_EXTENSIONS = .sh
# Tests find their data under $top_srcdir and write only in folders of their own.
AM_TESTS_ENVIRONMENT = \
  LC_ALL=C G_DEBUG=fatal-criticals CK_DEFAULT_TIMEOUT=120 \
  top_srcdir='$(abs_top_srcdir)' top_builddir='$(abs_top_builddir)' \
  HIGHWATER_MODELS='$(abs_top_srcdir)/models' HIGHWATER_PLOTS='$(abs_top_srcdir)/plots' fuzzers='$(FUZZERS)'; \
  export LC_ALL G_DEBUG CK_DEFAULT_TIMEOUT top_srcdir top_builddir HIGHWATER_MODELS HIGHWATER_PLOTS fuzzers;

# What programs here are linked with: unit tests, fuzz targets, benchmarks.
LDADD = tests/libtap.a libhighwater.a $(CHECK_LIBS) $(PROGRAM_LIBS)
BENCH_LDADD = tests/libbench.a libhighwater.a $(PROGRAM_LIBS)
EXTRA_LIBRARIES = tests/libbench.a
tests_libbench_a_SOURCES = tests/bench/bench.c tests/bench/bench.h
EXTRA_PROGRAMS = $(BENCHMARKS) tests/check_orders
CLEANFILES += $(EXTRA_PROGRAMS) $(EXTRA_LIBRARIES)

check_LIBRARIES = tests/libtap.a
tests_libtap_a_SOURCES = tests/host_order.c tests/recorded_config.c tests/recorded_run.c tests/simulation.c tests/small_network.c tests/tap_main.c tests/tap_main.h
check_PROGRAMS = $(CHECKS) $(HELPERS) $(SCORES) $(FUZZERS)
if HAVE_FUZZERS
FUZZ_LDADD = libhighwater.a $(PROGRAM_LIBS) $(FUZZER_LDFLAGS)
else
FUZZ_LDADD = tests/libreplay.a libhighwater.a $(PROGRAM_LIBS)
check_LIBRARIES += tests/libreplay.a
tests_libreplay_a_SOURCES = tests/fuzz/replay_main.c tests/fuzz/fuzz.h
endif

EXTRA_DIST += traces $(TEST_EXTRAS) $(SHELL_TESTS) tests/cli/lib.sh tests/golden tests/fuzz/corpus \
  tests/bench/compare.sh tests/bench/recorded.txt tests/published/update.sh

# A folder in EXTRA_DIST brings what the tests wrote into the build's folder of that name.  There, a
# log newer than the script would pass for that of the unpacked archive's own run.
dist-hook:
	rm -f $(distdir)/tests/golden/run.log $(distdir)/tests/golden/run.trs

if HAVE_CHECK
TESTS = $(CHECKS) $(SCORES) $(SHELL_TESTS)
else
check: need-check
endif
need-check:
	@echo "make check needs the Check library (0.15 or newer): install it and configure again" >&2
	@exit 1

update-golden: all
	$(AM_V_at)$(AM_TESTS_ENVIRONMENT) GOLDEN_UPDATE=1 $(SHELL) $(top_srcdir)/tests/golden/run.sh

update-documents: all
	$(AM_V_at)for script in $(top_srcdir)/tests/documents.sh `grep -l '^document ' $(top_srcdir)/tests/cli/*.sh`; do \
	  $(AM_TESTS_ENVIRONMENT) DOCUMENT_UPDATE=1 $(SHELL) $$script || exit 1; \
	done

# Takes minutes of CPU.
check-orders: tests/check_orders
	$(AM_V_at)$(AM_TESTS_ENVIRONMENT) tests/check_orders

bench: all $(BENCHMARKS)
	$(AM_V_at)$(AM_TESTS_ENVIRONMENT) \
	$(SHELL) $(top_srcdir)/tests/bench/compare.sh $(top_srcdir)/tests/bench/recorded.txt $(BENCHMARKS)

update-bench: all $(BENCHMARKS)
	$(AM_V_at)$(AM_TESTS_ENVIRONMENT) BENCH_UPDATE=1 \
	$(SHELL) $(top_srcdir)/tests/bench/compare.sh $(top_srcdir)/tests/bench/recorded.txt $(BENCHMARKS)

score: all $(SCORES)
	$(AM_V_at)$(AM_TESTS_ENVIRONMENT) $(SCORES)

update-score: all $(SCORES)
	$(AM_V_at)$(AM_TESTS_ENVIRONMENT) \
	$(SHELL) $(top_srcdir)/tests/published/update.sh $(SCORES) $(top_srcdir)/doc/validation.md

# Searches for new inputs; what it finds is kept in the build tree.
FUZZ_SECONDS = 60
fuzz: all $(FUZZERS)
if HAVE_FUZZERS
	$(AM_V_at)for target in $(FUZZERS); do \
	  name=`echo $$target | sed 's/.*fuzz_//'`; $(MKDIR_P) fuzz-found/$$name && \
	  $$target -max_total_time=$(FUZZ_SECONDS) -timeout=10 -print_final_stats=1 \
	    fuzz-found/$$name $(top_srcdir)/tests/fuzz/corpus/$$name || exit 1; \
	done
else
	@echo "make fuzz needs configure CC=clang --enable-fuzzers" >&2; exit 1
endif

# Versions of clang-format differ, so the layout is not part of make check.
CLANG_FORMAT = clang-format
check-format:
	cd $(top_srcdir) && find src tests -name '*.[ch]' | sort | xargs $(CLANG_FORMAT) --dry-run -Werror
format:
	cd $(top_srcdir) && find src tests -name '*.[ch]' | sort | xargs $(CLANG_FORMAT) -i

.PHONY: need-check check-orders update-golden update-documents bench update-bench score update-score fuzz check-format format

# tests/local.mk - every test speaks TAP.  A new tests/check_NAME.c (one `Suite *test_suite(void)`, see tap_main.h) is
# added to CHECKS, a new tests/cli/NAME.sh (see cli/lib.sh) to SHELL_TESTS; nothing else is needed.

CHECKS = \
  tests/check_cluster_spec \
  tests/check_json \
  tests/check_output \
  tests/check_plan_spec \
  tests/check_specs \
  tests/check_units

SHELL_TESTS =

LOG_DRIVER = env AM_TAP_AWK='$(AWK)' $(SHELL) $(top_srcdir)/build-aux/tap-driver.sh
SH_LOG_DRIVER = $(LOG_DRIVER)
SH_LOG_COMPILER = $(SHELL)
TEST_EXTENSIONS = .sh
# Tests find their data under $top_srcdir and write only in folders of their own.
AM_TESTS_ENVIRONMENT = \
  LC_ALL=C G_DEBUG=fatal-criticals \
  top_srcdir='$(abs_top_srcdir)' top_builddir='$(abs_top_builddir)' \
  HIGHWATER_MODELS='$(abs_top_srcdir)/models'; \
  export LC_ALL G_DEBUG top_srcdir top_builddir HIGHWATER_MODELS;

# The default for programs here.
LDADD = tests/libtap.a libhighwater.a $(CHECK_LIBS) $(PROGRAM_LIBS)

EXTRA_DIST += $(SHELL_TESTS)

if HAVE_CHECK
check_LIBRARIES = tests/libtap.a
tests_libtap_a_SOURCES = tests/tap_main.c tests/tap_main.h
check_PROGRAMS = $(CHECKS)
TESTS = $(CHECKS) $(SHELL_TESTS)
else
check_SCRIPTS = tests/need-check
tests/need-check:
	@echo "make check needs the Check library (0.15 or newer): install it and configure again" >&2
	@exit 1
endif

# HIGHWATER_ARG_FUZZERS
# ---------------------
# --enable-fuzzers links the targets in tests/fuzz against libFuzzer (clang) and instruments everything else for
# coverage; without it the same targets only replay their corpus.  Sets FUZZER_CFLAGS, FUZZER_LDFLAGS, HAVE_FUZZERS.
AC_DEFUN([HIGHWATER_ARG_FUZZERS], [
AC_ARG_ENABLE([fuzzers],
  [AS_HELP_STRING([--enable-fuzzers], [build the fuzz targets with libFuzzer (needs clang)])],
  [highwater_fuzzers=$enableval], [highwater_fuzzers=no])
FUZZER_CFLAGS= FUZZER_LDFLAGS=
AS_IF([test "$highwater_fuzzers" != no], [
  FUZZER_CFLAGS=-fsanitize=fuzzer-no-link FUZZER_LDFLAGS=-fsanitize=fuzzer
  AC_MSG_CHECKING([whether $CC has libFuzzer])
  highwater_saved_CFLAGS=$CFLAGS
  CFLAGS="$CFLAGS $FUZZER_LDFLAGS"
  AC_LINK_IFELSE([AC_LANG_SOURCE([
      extern int LLVMFuzzerTestOneInput(const unsigned char *data, unsigned long size);
      int LLVMFuzzerTestOneInput(const unsigned char *data, unsigned long size) { return 0 * (data && size); }])],
    [AC_MSG_RESULT([yes])],
    [AC_MSG_RESULT([no])
     AC_MSG_ERROR([--enable-fuzzers: $CC cannot link with -fsanitize=fuzzer; configure with CC=clang])])
  CFLAGS=$highwater_saved_CFLAGS
])
AC_SUBST([FUZZER_CFLAGS])
AC_SUBST([FUZZER_LDFLAGS])
AM_CONDITIONAL([HAVE_FUZZERS], [test "$highwater_fuzzers" != no])
])

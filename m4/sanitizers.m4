# HIGHWATER_ARG_SANITIZERS
# ------------------------
# --enable-sanitizers[=LIST] sets SANITIZER_FLAGS; the first report ends the program.
AC_DEFUN([HIGHWATER_ARG_SANITIZERS], [
AC_ARG_ENABLE([sanitizers],
  [AS_HELP_STRING([--enable-sanitizers@<:@=LIST@:>@],
                  [compile and link with these sanitizers (address,undefined)])],
  [highwater_sanitizers=$enableval], [highwater_sanitizers=no])
AS_IF([test "$highwater_sanitizers" = yes], [highwater_sanitizers=address,undefined])
SANITIZER_FLAGS=
AS_IF([test "$highwater_sanitizers" != no], [
  SANITIZER_FLAGS="-fsanitize=$highwater_sanitizers -fno-sanitize-recover=all -fno-omit-frame-pointer"
  AC_MSG_CHECKING([whether $CC links with $SANITIZER_FLAGS])
  highwater_saved_CFLAGS=$CFLAGS
  CFLAGS="$CFLAGS $SANITIZER_FLAGS"
  AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])],
    [AC_MSG_RESULT([yes])],
    [AC_MSG_RESULT([no])
     AC_MSG_ERROR([--enable-sanitizers=$highwater_sanitizers: $CC cannot link with them])])
  CFLAGS=$highwater_saved_CFLAGS
])
AC_SUBST([SANITIZER_FLAGS])
])

# HIGHWATER_ARG_SANITIZERS
# ------------------------
# --enable-sanitizers[=LIST] sets SANITIZER_FLAGS, and for C++ SANITIZER_CXXFLAGS; the first report ends the program.
AC_DEFUN([HIGHWATER_ARG_SANITIZERS], [
AC_ARG_ENABLE([sanitizers],
  [AS_HELP_STRING([--enable-sanitizers@<:@=LIST@:>@],
                  [compile and link with these sanitizers (address,undefined)])],
  [highwater_sanitizers=$enableval], [highwater_sanitizers=no])
AS_IF([test "$highwater_sanitizers" = yes], [highwater_sanitizers=address,undefined])
SANITIZER_FLAGS= SANITIZER_CXXFLAGS=
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
  HIGHWATER_SANITIZE_CXX
])
AC_SUBST([SANITIZER_FLAGS])
AC_SUBST([SANITIZER_CXXFLAGS])
])

# Programs are linked by the C compiler, whose libraries lack what these checks call.
AC_DEFUN([HIGHWATER_SANITIZE_CXX], [
SANITIZER_CXXFLAGS=$SANITIZER_FLAGS
AC_LANG_PUSH([C++])
highwater_saved_CXXFLAGS=$CXXFLAGS
for highwater_check in vptr function; do
  CXXFLAGS="$SANITIZER_CXXFLAGS -fno-sanitize=$highwater_check -Werror"
  AC_COMPILE_IFELSE([AC_LANG_PROGRAM([], [])],
                    [SANITIZER_CXXFLAGS="$SANITIZER_CXXFLAGS -fno-sanitize=$highwater_check"])
done
CXXFLAGS=$highwater_saved_CXXFLAGS
AC_LANG_POP([C++])
])

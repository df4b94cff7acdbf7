# HIGHWATER_WARNINGS
# ------------------
# Sets WARNING_CFLAGS to those of our warnings that the compiler knows.
AC_DEFUN([HIGHWATER_WARNINGS], [
AC_MSG_CHECKING([which warnings $CC knows])
WARNING_CFLAGS=
highwater_saved_CFLAGS=$CFLAGS
for flag in -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wwrite-strings \
            -Wpointer-arith -Wcast-qual -Wformat=2 -Wundef -Wvla; do
  CFLAGS="-Werror $flag"
  AC_COMPILE_IFELSE([AC_LANG_SOURCE([extern int f(int x); int f(int x) { return x; }])],
                    [WARNING_CFLAGS="$WARNING_CFLAGS $flag"])
done
CFLAGS=$highwater_saved_CFLAGS
AC_MSG_RESULT([$WARNING_CFLAGS])
AC_SUBST([WARNING_CFLAGS])
])

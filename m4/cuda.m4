# HIGHWATER_ARG_CUDA
# ------------------
# --with-cuda[=DIR] and --with-nccl[=DIR]: measure on this machine's GPUs.  Off unless asked for; asked for and missing
# is an error.  Sets NVCC, NVCCFLAGS, CUDA_CPPFLAGS, CUDA_LIBS (NCCL's among them), HAVE_CUDA, HAVE_NCCL.
AC_DEFUN([HIGHWATER_ARG_CUDA], [
AC_ARG_WITH([cuda],
  [AS_HELP_STRING([--with-cuda@<:@=DIR@:>@], [measure GPUs with the CUDA toolkit in DIR (that of nvcc in PATH)])],
  [highwater_cuda=$withval], [highwater_cuda=no])
AC_ARG_WITH([nccl],
  [AS_HELP_STRING([--with-nccl@<:@=DIR@:>@], [measure collectives with NCCL in DIR (the CUDA toolkit's folder)])],
  [highwater_nccl=$withval], [highwater_nccl=no])
AC_ARG_VAR([NVCC], [CUDA compiler])
AC_ARG_VAR([NVCCFLAGS], [flags for nvcc, e.g. "-O2 -arch=sm_90"])
: "${NVCCFLAGS=-O2}"
CUDA_CPPFLAGS= CUDA_LIBS=
AS_IF([test "$highwater_nccl" != no && test "$highwater_cuda" = no],
      [AC_MSG_ERROR([--with-nccl needs --with-cuda])])
AS_IF([test "$highwater_cuda" != no], [HIGHWATER_FIND_CUDA])
AS_IF([test "$highwater_nccl" != no], [HIGHWATER_FIND_NCCL])
AC_SUBST([CUDA_CPPFLAGS])
AC_SUBST([CUDA_LIBS])
AM_CONDITIONAL([HAVE_CUDA], [test "$highwater_cuda" != no])
AM_CONDITIONAL([HAVE_NCCL], [test "$highwater_nccl" != no])
])

# With DIR given, nvcc is looked for in DIR/bin only: a toolkit elsewhere in PATH must not stand in for it.
AC_DEFUN([HIGHWATER_FIND_CUDA], [
AS_IF([test "$highwater_cuda" = yes],
  [AC_PATH_PROG([NVCC], [nvcc], [], [$PATH$PATH_SEPARATOR/usr/local/cuda/bin])
   highwater_cuda=`AS_DIRNAME(["$NVCC"])`
   highwater_cuda=`AS_DIRNAME(["$highwater_cuda"])`],
  [test -n "$NVCC" || test ! -x "$highwater_cuda/bin/nvcc" || NVCC=$highwater_cuda/bin/nvcc])
AS_IF([test -z "$NVCC"], [AC_MSG_ERROR([--with-cuda: no nvcc found; give the toolkit's folder])])
AS_IF([test ! -f "$highwater_cuda/include/cuda_runtime_api.h"],
      [AC_MSG_ERROR([--with-cuda: no include/cuda_runtime_api.h in $highwater_cuda])])
HIGHWATER_ADD_GPU_LIBRARY([$highwater_cuda], [cudart], [cudaGetDeviceCount], [--with-cuda])
HIGHWATER_ADD_GPU_LIBRARY([$highwater_cuda], [cublas], [cublasCreate_v2], [--with-cuda])
CUDA_LIBS="$CUDA_LIBS -lstdc++"
])

AC_DEFUN([HIGHWATER_FIND_NCCL], [
AS_IF([test "$highwater_nccl" = yes], [highwater_nccl=$highwater_cuda])
AS_IF([test ! -f "$highwater_nccl/include/nccl.h"],
      [AC_MSG_ERROR([--with-nccl: no include/nccl.h in $highwater_nccl])])
HIGHWATER_ADD_GPU_LIBRARY([$highwater_nccl], [nccl], [ncclCommSplit], [--with-nccl])
])

# HIGHWATER_ADD_GPU_LIBRARY(DIR, LIBRARY, FUNCTION, SWITCH)
# -isystem: the vendors' headers do not pass our warnings.
AC_DEFUN([HIGHWATER_ADD_GPU_LIBRARY], [
CUDA_CPPFLAGS="$CUDA_CPPFLAGS -isystem $1/include"
highwater_saved_LIBS=$LIBS
highwater_flags=
for highwater_folder in "$1/lib64" "$1/lib"; do
  AS_IF([test -e "$highwater_folder/lib$2.so"], [highwater_flags="-L$highwater_folder -Wl,-rpath,$highwater_folder"; break])
done
LIBS="$highwater_flags -l$2 $CUDA_LIBS $LIBS"
AC_MSG_CHECKING([for lib$2 in $1])
AC_LINK_IFELSE([AC_LANG_CALL([], [$3])],
  [AC_MSG_RESULT([yes])],
  [AC_MSG_RESULT([no])
   AC_MSG_ERROR([$4: cannot link with lib$2 in $1])])
LIBS=$highwater_saved_LIBS
CUDA_LIBS="$highwater_flags -l$2 $CUDA_LIBS"
])

# import_kineto.sh - highwater import kineto: a simulated run's trace and a hand-written one become RUNs that other commands read.
. "$top_srcdir/tests/cli/lib.sh"

run run tiny --output simulated --chrome-trace step.json
gzip -k step.json
answers "a packed trace of a simulated run is imported" 0 import kineto step.json.gz -o imported
answers "the RUN is compared with the simulated one" 0 compare simulated imported --max-error 0
ok "nothing differs" grep -q '^SAME     the same to the byte and to the nanosecond$' out
answers "it is reported" 0 report imported
ok "with the peak of the simulated run" sh -c '
  sed -n "s/^PEAK *\([0-9.]* MiB\).*/\1/p" out >peak; '"$highwater"' report simulated | grep -q "^PEAK *$(cat peak) allocated"'
answers "its streams are a table" 0 report imported --table streams
answers "the trace can be calibrated from, too" 0 calibrate --from step.json

answers "a trace by PyTorch is imported" 0 import kineto "$top_srcdir/tests/fuzz/corpus/kineto/step" -o measured
answers "and reported" 0 report measured --json
ok "with the device that it names" grep -q '"device":.*"NVIDIA H100 80GB HBM3"' out

refuses "a trace of no GPU is refused" "no kernel, copy or fill of a GPU is in it" import kineto "$top_srcdir/tests/fuzz/corpus/kineto/no_gpu" -o wrong
refuses "another device than there is" "no kernel, copy or fill ran on device 5" import kineto step.json -o wrong --device 5
refuses "something else" "no key 'traceEvents'" import kineto "$top_srcdir/models/plan/fsdp2.json" -o wrong
ok "nothing is left of refused ones" test ! -e wrong
finish

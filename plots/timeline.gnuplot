# timeline.gnuplot - memory over the host's time: categories stacked, reserved and capacity lines, phases, the peak.
#
# Reads timeline.tsv of a RUN (doc/formats.md), whose rows are the corners of the staircase.  Set by `highwater plot`: terminal and output, `table`, `title`, and
# `categories`, the names of the columns from the fourth on.

# Families share a hue: what stays is blue, what is gathered orange, buffers violet, the step's own green and yellow.
category_colours = "#17466f #4a8cc7 #a5cbe8 #b8500d #f0a062 #6b2c91 #b49ad3 #4f8a34 #f2cc4d #7a7a7a #c4c4c4"
phase_names = "zero_grad forward backward clip optimizer"
phase_tints = "0xdddddd 0xe3eefa 0xfdebd9 0xeadff2 0xe0f0da"

is_text = GPVAL_TERM eq 'dumb'
found(list, name) = int(sum [i=1:words(list)] (word(list, i) eq name ? i : 0))
phase_tint(name) = found(phase_names, name) > 0 ? int(word(phase_tints, found(phase_names, name))) : 0xf4f4f4

# ---- what there is: extent, unit, the categories that are used, marks
stats table index "memory" using 1:3 nooutput
# From the run's beginning, unless the recording's clock began long before.
begin = STATS_min_x > STATS_max_x / 2 ? STATS_min_x : 0
end = STATS_max_x > STATS_min_x ? STATS_max_x : STATS_min_x + 1e-9
reserved_peak = STATS_max_y
used = ""
do for [k=1:words(categories)] {
  stats table index "memory" using (column(k + 3)) nooutput
  if (STATS_max > 0) { used = used . sprintf(" %d", k) }
}
capacity = 0
peak_time = begin
peak = 0
failed = 0
stats table index "marks" using ( \
  strcol(1) eq "capacity" ? (capacity = column(3)) : \
  strcol(1) eq "peak" ? (peak_time = column(2), peak = column(3)) : \
  strcol(1) eq "out_of_memory" ? (failed_time = column(2), failed = column(3)) : 0) nooutput

stats table index "phases" using 2 nooutput
if (STATS_max > end) { end = STATS_max }
phases = ""
stats table index "phases" using \
  (found(phases, strcol(5)) ? 0 : strlen(phases = phases . " " . strcol(5))) nooutput

unit_of(x) = x >= 2.0**30 ? 2.0**30 : x >= 2.0**20 ? 2.0**20 : 2.0**10
unit_name(x) = x >= 2.0**30 ? "GiB" : x >= 2.0**20 ? "MiB" : "KiB"
size(x) = sprintf("%.2f %s", x / unit_of(x), unit_name(x))
unit = unit_of(reserved_peak)
y(x) = x / unit
second = end - begin >= 0.5 ? 1.0 : 1e-3
t(x) = (x - begin) / second

# ---- the frame: phases in a strip on top, steps above it
# A capacity far above everything would flatten it; the key tells it then.
has_capacity_line = capacity > 0 && capacity <= 3 * reserved_peak
higher(a, b) = a > b ? a : b
top = higher(1.13 * y(reserved_peak), 1.1 * y(higher(failed, has_capacity_line ? capacity : 0)))
strip = 0.055 * top
set xrange [0:t(end)]
set yrange [0:top + 2 * strip]
set xlabel sprintf("time of issue on the host (%s)", second == 1 ? "s" : "ms")
set ylabel unit_name(unit)
set xtics nomirror out
set ytics nomirror out
set border 3
set title title
set style fill solid noborder
set style textbox opaque noborder margins 0.6, 0.4

# A label is drawn only where its box has room for it.
width(text) = (is_text ? 0.02 : 0.0085) * strlen(text) * (end - begin)
fitting(text, from, to) = to - from > width(text) ? text : ""

# ---- what is drawn
stacked(n) = sum [i=1:n] y(column(int(word(used, i)) + 3))
name_of(i) = word(categories, int(word(used, i)))
colour_of(i) = word(category_colours, int(word(used, i)))
step_name(n) = n == 0 ? "" : sprintf("step %d", n)
capacity_name = has_capacity_line ? "capacity " . size(capacity) : \
  capacity > 0 ? "capacity " . size(capacity) . ", far above" : "capacity without limit"

# The peak's label goes where no line crosses it: under the reserved line, over it, or over the capacity line.
line = 0.05 * top
peak_label = "peak " . size(peak)
label_y = y(reserved_peak - peak) > 1.6 * line ? y(peak) + 0.9 * line : y(reserved_peak) + 0.8 * line
if (has_capacity_line && abs(label_y - y(capacity)) < 0.8 * line) { label_y = y(capacity) + 0.8 * line }
is_late = t(peak_time) > 0.5 * t(end)

if (is_text) {
  set key below
  set label 1 peak_label at t(peak_time), label_y center front
  plot table index "memory" using (t($1)):(y($3)) with lines title "reserved", \
    "" index "memory" using (t($1)):(y($2)) with lines title "allocated", \
    (has_capacity_line ? y(capacity) : NaN) with lines title capacity_name, \
    table index "steps" using (t(($1 + $2) / 2)):(top + strip):(fitting(step_name($4), $1, $2)) \
      with labels notitle
} else {
  # Behind the areas, the outline of what is allocated keeps moments visible that are shorter than a pixel.
  set key outside right top vertical Left reverse samplen 1.5 width -2 spacing 1.15
  set label 1 "" at t(peak_time), y(peak) point pt 7 ps 1.1 lc rgb "#c00000" front
  if (is_late) {
    set label 2 peak_label at t(peak_time), label_y right front boxed textcolor rgb "#c00000"
  } else {
    set label 2 peak_label at t(peak_time), label_y left front boxed textcolor rgb "#c00000"
  }
  if (failed > 0) {
    set arrow 1 from t(failed_time), y(reserved_peak) to t(failed_time), y(failed) front \
      lc rgb "#c00000" lw 2
    set label 3 "out of memory " at t(failed_time), y(failed) right front boxed \
      textcolor rgb "#c00000"
  }
  plot \
    table index "phases" using \
      (t(($1 + $2) / 2)):(top / 2):(t($1)):(t($2)):(0):(top):(phase_tint(strcol(5))) \
      with boxxyerror lc rgb variable notitle, \
    "" index "memory" using (t($1)):(y($2)) with lines lc rgb "#777777" lw 0.7 notitle, \
    for [i=words(used):1:-1] "" index "memory" using (t($1)):(stacked(i)) \
      with filledcurves y1=0 lc rgb colour_of(i) title name_of(i), \
    "" index "memory" using (t($1)):(y($3)) with lines lc rgb "#000000" lw 1.5 title "reserved", \
    (has_capacity_line ? y(capacity) : NaN) with lines lc rgb "#c00000" lw 1.5 dt 2 \
      title capacity_name, \
    for [i=1:words(phases)] keyentry with boxes lc rgb phase_tint(word(phases, i)) \
      title word(phases, i), \
    table index "phases" using \
      (t(($1 + $2) / 2)):(top + strip / 2):(fitting(strcol(5), $1, $2)) with labels notitle, \
    "" index "steps" using (t($1)):(top + 2 * strip) with impulses lc rgb "#555555" notitle, \
    "" index "steps" using (t(($1 + $2) / 2)):(top + 1.5 * strip): \
      (fitting(step_name($4), $1, $2)) with labels notitle
}

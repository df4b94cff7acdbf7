# streams.gnuplot - what the host and each stream do, a lane each, below memory on the same time axis.
#
# By hand, on the tables of `highwater report RUN --table timeline --step 2 > timeline.tsv` and `--table streams > streams.tsv`:
#   gnuplot -e "set terminal pngcairo noenhanced size 1200,720; set output 'streams.png'" plots/streams.gnuplot
# -e "view_from = '1.30'; view_to = '2.56'" shows that time alone, in seconds.

if (!exists("plots")) plots = system(sprintf("dirname \"%s\"", ARG0))
load plots . "/common.gnuplot"
if (!exists("timeline")) timeline = "timeline.tsv"
if (!exists("streams")) streams = "streams.tsv"
if (!exists("title")) title = title_of(streams)

# ---- what there is
stats streams index "spans" using 1:2 nooutput
begin = STATS_min_x
end = STATS_max_y
if (exists("view_from") && real(view_from) > begin) { begin = real(view_from) }
if (exists("view_to") && real(view_to) > begin && real(view_to) < end) { end = real(view_to) }
if (end <= begin) { end = begin + 1e-9 }
second = end - begin >= 0.5 ? 1.0 : end - begin >= 0.5e-3 ? 1e-3 : 1e-6
second_name = second == 1 ? "s" : second == 1e-3 ? "ms" : "µs"
t(x) = x / second

lanes = 0
lane_names = ""
stats streams index "lanes" using (lanes = lanes + 1, strlen(lane_names = lane_names . " " . strcol(2))) nooutput
has_host = found(lane_names, "host") > 0
changes = 0
stats timeline index "memory" using (changes = changes + 1) nooutput
has_memory = changes > 0

# ---- colours of what is done: kernels by the phase that issued them
class_of(kind, phase) = kind ne "kernel" ? kind : \
  phase eq "forward" || phase eq "backward" || phase eq "optimizer" ? phase : "kernel"
classes = "forward backward optimizer kernel copy collective host_blocked lost"
class_colours = "#7fb2e5 #2f6ea8 #3f8f5f #9db7cf #6b2c91 #c05a10 #8c8c8c #c00000"
class_name(class) = class eq "kernel" ? "other kernels" : class eq "copy" ? "copies" : class eq "collective" ? "collectives" : \
  class eq "host_blocked" ? "host waits" : class eq "lost" ? "host in cudaMalloc" : class . " kernels"

# ---- memory above
side_letters = is_text ? 0 : is_small ? 24 : 27
left_edge = screen_x(letter * (is_text ? 16 : 17))
side = is_text ? 0.97 : 1 - screen_x(letter * side_letters)
plot_width = figure_width * (side - left_edge)
bottom = screen_y(is_text ? 3 : 3.1 * line)
lane_height = is_text ? 0.5 / lanes : lower(screen_y(2.4 * line), (has_memory ? 0.5 : 0.75) / lanes)
lanes_top = bottom + lane_height * lanes
memory_bottom = lanes_top + screen_y(is_text ? 1 : 0.7 * line)
memory_top = 1 - screen_y(is_text ? 2 : 2.4 * line)
if (!has_memory) { lanes_top = memory_top }

set multiplot
set lmargin at screen left_edge
set rmargin at screen side
set xrange [t(begin):t(end)]
set border 3
set ytics nomirror out
set style fill solid noborder
width(text) = letter * (strlen(text) + 0.6) * (end - begin) / plot_width
fitting(text, from, to) = lower(to, end) - higher(from, begin) > width(text) ? text : ""
middle(from, to) = t((higher(from, begin) + lower(to, end)) / 2)

if (has_memory) {
  stats timeline index "memory" using 3 nooutput
  reserved_peak = STATS_max
  unit = unit_of(reserved_peak)
  y(x) = x / unit
  capacity = 0
  peak = 0
  peak_time = begin
  stats timeline index "marks" using ( \
    strcol(1) eq "capacity" ? (capacity = column(3)) : \
    strcol(1) eq "peak" ? (peak_time = column(2), peak = column(3)) : 0) nooutput
  used = ""
  array highest[words(categories)]
  do for [k=1:words(categories)] {
    stats timeline index "memory" using (column(k + 3)) nooutput
    highest[k] = STATS_max
    if (STATS_max > 0) { used = used . sprintf(" %d", k) }
  }
  # The side names the largest, as many as there is room for.
  named(n) = (sum [i=1:words(used)] (highest[int(word(used, i))] > highest[int(word(used, n))])) < \
    int((memory_top - memory_bottom) / screen_y(line)) - 1
  stacked(n) = sum [i=1:n] y(column(int(word(used, i)) + 3))
  category_of(i) = word(categories, int(word(used, i)))
  # The host issues the end of the view's memory before its streams are done: what holds then stays.
  set tmargin at screen memory_top
  set bmargin at screen memory_bottom
  top = 1.12 * y(reserved_peak)
  set yrange [0:top]
  set ytics 0, tic_of(top), top
  set ylabel unit_name(unit) offset (is_text ? 0 : 1.2),0
  set format x ""
  set xtics nomirror out
  set title title offset 0,(is_text ? 0 : -0.3)
  if (is_text) {
    unset key
    plot timeline index "memory" using (t($1)):(y($3)) with lines title "reserved", \
      "" index "memory" using (t($1)):(y($2)) with lines title "allocated"
  } else {
    unset key
    set_y(n) = memory_top - screen_y((0.5 + n) * line)
    x_swatch = side + screen_x(1.2 * letter)
    x_name = side + screen_x(3.4 * letter)
    row = -1
    do for [n=words(used):1:-1] {
      if (named(n)) {
        row = row + 1
        set object 10 + row rectangle from screen x_swatch, screen set_y(row - 0.3) to screen x_name - screen_x(0.7 * letter), screen set_y(row + 0.3) \
          fillcolor rgb colour_of(category_of(n)) fillstyle solid border rgb "#404040" front clip
        set label 10 + row words_of(category_of(n)) at screen x_name, screen set_y(row) left
      }
    }
    row = row + 1
    set arrow 10 from screen x_swatch, screen set_y(row) to screen x_name - screen_x(0.7 * letter), screen set_y(row) nohead lw 2 lc rgb "#000000"
    set label 10 + row "reserved" at screen x_name, screen set_y(row) left
    set label 1 "" at t(peak_time), y(peak) point pt 7 ps 1.0 lc rgb red front
    set style textbox opaque fillcolor rgb "#ffffff" noborder margins 0.4, 0.2
    caption = sprintf("peak %s", size(peak))
    label_y = y(reserved_peak) + 0.05 * top
    if (peak_time > begin + 0.5 * (end - begin)) {
      set label 2 caption at t(peak_time), label_y right front textcolor rgb red
    } else {
      set label 2 caption at t(peak_time), label_y left front textcolor rgb red
    }
    plot for [i=words(used):1:-1] timeline index "memory" using (t($1)):(stacked(i)) \
        with filledcurves y1=0 lc rgb colour_of(category_of(i)) title words_of(category_of(i)), \
      for [i=words(used):1:-1] "" index "memory" using (t($1)):(stacked(i)) \
        with lines lc rgb "#b0303030" lw 0.4 notitle, \
      "" index "memory" using (t($1)):(y($3)) with lines lc rgb "#000000" lw 1.8 title "reserved", \
      timeline index "steps" using ($1 >= begin && $1 <= end ? t($1) : NaN):(0):(0):(top) with vectors nohead lc rgb grey notitle
    unset label
    unset object
    unset arrow
  }
  unset title
} else {
  set title title offset 0,(is_text ? 0 : -0.3)
}

# ---- lanes below
set tmargin at screen lanes_top
set bmargin at screen bottom
set yrange [-lanes:0]
unset ytics
unset ylabel
set format x "%g"
set xtics nomirror out
set xlabel sprintf("time (%s)", second_name) offset 0,(is_text ? 0 : 0.4)
lane_y(n) = -n - 0.5
do for [n=1:lanes] {
  set label 20 + n clip(words_of(word(lane_names, n)), 15) at screen left_edge - screen_x(letter), first lane_y(n - 1) right
}

# ---- and what their marks mean
seen = ""
stats streams index "spans" using \
  (found(seen, class_of(strcol(4), strcol(7))) ? 0 : strlen(seen = seen . " " . class_of(strcol(4), strcol(7)))) nooutput
class_colour(class) = word(class_colours, found(classes, class))
half(class) = class eq "host_blocked" || class eq "lost" ? 0.13 : 0.40
centre(class, lane) = lane_y(lane) - (class eq "host_blocked" || class eq "lost" ? 0.26 : 0)
host_lane = found(lane_names, "host") - 1
if (is_text) {
  unset key
  plot for [k=1:words(seen)] streams index "spans" using \
      (class_of(strcol(4), strcol(7)) eq word(seen, k) ? middle($1, $2) : NaN):(lane_y($3)) with points pt "#" notitle
} else {
  set_y(n) = lanes_top - screen_y((0.5 + n) * line)
  x_swatch = side + screen_x(1.2 * letter)
  x_name = side + screen_x(3.4 * letter)
  row = -1
  do for [n=1:words(classes)] {
    class = word(classes, n)
    if (found(seen, class)) {
      row = row + 1
      set object 10 + row rectangle from screen x_swatch, screen set_y(row - 0.3) to screen x_name - screen_x(0.7 * letter), screen set_y(row + 0.3) \
        fillcolor rgb class_colour(class) fillstyle solid border rgb "#404040" front clip
      set label 10 + row class_name(class) at screen x_name, screen set_y(row) left
    }
  }
  # Of a box the name of its module or of what it does, where there is room.
  box_name(kind, name, module, from, to) = kind eq "host_blocked" || kind eq "lost" ? "" : module ne "-" && fitting(module, from, to) ne "" ? module : \
    name ne "-" ? fitting(words_of(name), from, to) : ""
  # Boxes that can be seen as such have an outline.
  is_wide(kind, from, to) = kind eq "kernel" && (to - from) * plot_width > 8 * (end - begin)
  box_y(kind, lane) = centre(kind, lane)
  is_light(kind, phase) = class_of(kind, phase) eq "forward" || class_of(kind, phase) eq "kernel"
  plot \
    timeline index "phases" using \
      (has_host ? t(($1 + $2) / 2) : NaN):(lane_y(host_lane)):(t($1)):(t($2)):(lane_y(host_lane) - 0.40):(lane_y(host_lane) + 0.40): \
      (phase_tint(strcol(5))) with boxxyerror fillstyle solid border rgb "#888888" lc rgb variable notitle, \
    for [k=1:words(seen)] streams index "spans" using \
      (class_of(strcol(4), strcol(7)) eq word(seen, k) ? t(($1 + $2) / 2) : NaN):(lane_y($3)):(t($1)):(t($2)): \
      (centre(word(seen, k), $3) - half(word(seen, k))):(centre(word(seen, k), $3) + half(word(seen, k))) \
      with boxxyerror fillstyle solid border rgb class_colour(word(seen, k)) lc rgb class_colour(word(seen, k)) lw 0.6 \
      title class_name(word(seen, k)), \
    streams index "spans" using (is_wide(strcol(4), $1, $2) ? t(($1 + $2) / 2) : NaN):(lane_y($3)):(t($1)):(t($2)): \
      (lane_y($3) - 0.40):(lane_y($3) + 0.40) with boxxyerror fillstyle empty border rgb "#ffffff" lc rgb "#ffffff" lw 0.8 notitle, \
    timeline index "phases" using (has_host ? middle($1, $2) : NaN):(lane_y(host_lane) + 0.16): \
      (fitting(words_of(strcol(5)), $1, $2)) with labels notitle, \
    for [n=1:lanes-1] -n with lines lc rgb "#cccccc" lw 0.7 notitle, \
    timeline index "steps" using ($1 >= begin && $1 <= end ? t($1) : NaN):(-lanes):(0):(lanes) with vectors nohead lc rgb grey notitle, \
    streams index "spans" using (is_light(strcol(4), strcol(7)) ? middle($1, $2) : NaN):(box_y(strcol(4), $3)): \
      (box_name(strcol(4), strcol(5), strcol(6), $1, $2)) with labels notitle, \
    "" index "spans" using (is_light(strcol(4), strcol(7)) ? NaN : middle($1, $2)):(box_y(strcol(4), $3)): \
      (box_name(strcol(4), strcol(5), strcol(6), $1, $2)) with labels textcolor rgb "#ffffff" notitle
}
unset multiplot

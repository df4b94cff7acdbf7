# timeline.gnuplot - memory over the host's time: categories stacked, reserved and capacity lines, phases, steps and blocks, and what is
# alive at the peak.
#
# By hand, on the table of `highwater report RUN --table timeline > timeline.tsv` (doc/formats.md):
#   gnuplot -e "set terminal pngcairo noenhanced size 1200,720; set output 'timeline.png'" plots/timeline.gnuplot
# or with -e "timeline = 'FILE'" for another file.

if (!exists("plots")) plots = system(sprintf("dirname \"%s\"", ARG0))
load plots . "/common.gnuplot"
if (!exists("timeline")) timeline = "timeline.tsv"
if (!exists("title")) title = title_of(timeline)

# ---- what there is: extent, unit, marks, the categories that are used
stats timeline index "memory" using 1:3 nooutput
# From the run's beginning, unless the recording's clock began long before.
begin = STATS_min_x > STATS_max_x / 2 ? STATS_min_x : 0
if (exists("view_from") && real(view_from) > 0) { begin = real(view_from) }
end = STATS_max_x > STATS_min_x ? STATS_max_x : STATS_min_x + 1e-9
reserved_peak = STATS_max_y
capacity = 0
peak_time = begin
peak = 0
failed = 0
stats timeline index "marks" using ( \
  strcol(1) eq "capacity" ? (capacity = column(3)) : \
  strcol(1) eq "peak" ? (peak_time = column(2), peak = column(3)) : \
  strcol(1) eq "out_of_memory" ? (failed_time = column(2), failed = column(3)) : 0) nooutput
if (peak_time > end) { end = peak_time }

used = ""
array at_peak[words(categories)]
do for [k=1:words(categories)] {
  at_peak[k] = 0
  stats timeline index "memory" using \
    ($1 == peak_time && $2 == peak ? (at_peak[k] = column(k + 3)) : 0, column(k + 3)) nooutput
  if (STATS_max > 0) { used = used . sprintf(" %d", k) }
}

phases = ""
stats timeline index "phases" using \
  (found(phases, strcol(5)) ? 0 : strlen(phases = phases . " " . strcol(5))) nooutput
peak_phase = ""
peak_step = 0
stats timeline index "phases" using \
  ($1 <= peak_time && peak_time <= $2 ? (peak_phase = strcol(5), peak_step = $3) : 0) nooutput

unit = unit_of(reserved_peak)
y(x) = x / unit
second = end - begin >= 0.5 ? 1.0 : 1e-3
t(x) = x / second

# ---- the frame: steps and phases in strips on top of it, blocks below them; at the side what there is at the peak
side_letters = is_text ? 0 : is_small ? 29 : 37
set tmargin at screen 1 - screen_y(2.2 * line)
set bmargin at screen screen_y(is_text ? 4 : 3.1 * line)
set lmargin at screen screen_x(letter * 8.5)
side = 1 - screen_x(letter * side_letters)
if (!is_text) { set rmargin at screen side }
plot_height = figure_height - line * (is_text ? 6 : 5.3)
plot_width = figure_width - letter * (side_letters + 8.5)

# A capacity far above everything would flatten it; the side tells it then.
has_capacity_line = capacity > 0 && capacity <= 3 * reserved_peak
data_top = higher(1.10 * y(reserved_peak), 1.06 * y(higher(failed, has_capacity_line ? capacity : 0)))
strips = is_text ? 1 : 3
strip = 1.15 * line * data_top / (plot_height - strips * 1.15 * line)
top = data_top
x_from = t(begin)
x_to = t(end)
set xrange [x_from:x_to]
set yrange [0:top + strips * strip]
set xlabel sprintf("time of issue on the host (%s)", second == 1 ? "s" : "ms") offset 0,(is_text ? 0 : 0.4)
set ylabel unit_name(unit) offset (is_text ? 0 : 1.2),0
set xtics nomirror out
# Tics only where there is data, at round sizes.
if (is_text) { set ytics nomirror out } else { set ytics 0, tic_of(data_top), data_top nomirror out }
set border 3
set title title offset 0,(is_text ? 0 : -0.3)
set style fill solid noborder

# A label is drawn only where it has room.
width(text) = letter * (strlen(text) + 0.6) * (end - begin) / plot_width
fitting(text, from, to) = lower(to, end) - higher(from, begin) > width(text) ? text : ""
middle(from, to) = t((higher(from, begin) + lower(to, end)) / 2)
within(x) = x >= begin && x <= end

phase_name(name, from, to) = fitting(words_of(name), from, to) ne "" ? words_of(name) : \
  name eq "forward" ? fitting("fwd", from, to) : name eq "backward" ? fitting("bwd", from, to) : \
  name eq "optimizer" ? fitting("opt", from, to) : ""

# ---- blocks: their names where there is room, else the numbers of some
last_part(name) = strstrt(name, ".") > 0 ? last_part(name[strstrt(name, ".") + 1:*]) : name
blocks = 0
stats timeline index "modules" using (blocks = blocks + 1) nooutput
has_numbers = blocks > 0 && plot_width / real(blocks) > 3 * letter
# As if every number had two digits, so that all of a row are there or none.
block_name(name, from, to) = name eq "-" ? "" : fitting(name, from, to) ne "" ? name : \
  has_numbers && fitting("00", from, to) ne "" ? fitting(last_part(name), from, to) : ""
has_block_lines = blocks > 0 && plot_width / real(blocks) > 3

# ---- what is drawn
stacked(n) = sum [i=1:n] y(column(int(word(used, i)) + 3))
category_of(i) = word(categories, int(word(used, i)))
step_name(n) = n == 0 ? "" : sprintf("step %d", n)
capacity_name = has_capacity_line ? "capacity " . size(capacity) : \
  capacity > 0 ? "capacity " . size(capacity) . ", far above" : "no capacity known"
peak_label = "peak " . size(peak)

if (is_text) {
  set key below
  set label 1 peak_label at t(peak_time), y(peak) center front
  plot timeline index "memory" using (t($1)):(y($3)) with lines title "reserved", \
    "" index "memory" using (t($1)):(y($2)) with lines title "allocated", \
    (has_capacity_line ? y(capacity) : NaN) with lines title capacity_name, \
    timeline index "steps" using (middle($1, $2)):(top + strip / 2):(fitting(step_name($4), $1, $2)) \
      with labels notitle
  exit
}

# ---- the side: a line each, from the top
row = 1
set_y(n) = 1 - screen_y((1.4 + n) * line)
x_swatch = side + screen_x(1.2 * letter)
x_name = side + screen_x(3.4 * letter)
x_number = 1 - screen_x(1.0 * letter)
name_letters = side_letters - 14
caption = peak_phase eq "" || is_small ? "At the peak" : peak_step == 0 ? "At the peak, " . peak_phase : \
  sprintf("At the peak, step %d, %s", peak_step, words_of(peak_phase))
set label 100 caption at screen x_swatch, screen set_y(0) left
set label 101 unit_name(unit) at screen x_number, screen set_y(1) right textcolor rgb grey
do for [n=words(used):1:-1] {
  k = int(word(used, n))
  row = row + 1
  set object row rectangle from screen x_swatch, screen set_y(row - 0.3) to screen x_name - screen_x(0.7 * letter), screen set_y(row + 0.3) \
    fillcolor rgb colour_of(word(categories, k)) fillstyle solid border rgb "#404040" front clip
  set label 100 + row words_of(word(categories, k)) at screen x_name, screen set_y(row) left
  caption = at_peak[k] > 0 ? sprintf("%.2f", y(at_peak[k])) : "–"
  set label 150 + row caption at screen x_number, screen set_y(row) right
}
row = row + 1
set label 100 + row "allocated" at screen x_name, screen set_y(row) left
set label 150 + row sprintf("%.2f", y(peak)) at screen x_number, screen set_y(row) right
set label 190 "●" at screen (x_swatch + x_name - screen_x(0.7 * letter)) / 2, screen set_y(row) center textcolor rgb red
row = row + 1
set arrow 100 from screen x_swatch, screen set_y(row) to screen x_name - screen_x(0.7 * letter), screen set_y(row) nohead lw 2 lc rgb "#000000"
set label 100 + row "reserved, at most" at screen x_name, screen set_y(row) left
set label 150 + row sprintf("%.2f", y(reserved_peak)) at screen x_number, screen set_y(row) right
row = row + 1
if (has_capacity_line) {
  set arrow 101 from screen x_swatch, screen set_y(row) to screen x_name - screen_x(0.7 * letter), screen set_y(row) nohead lw 2 dt 2 lc rgb red
}
caption = has_capacity_line ? "capacity" : capacity > 0 ? "capacity, far above" : "no capacity known"
set label 100 + row caption at screen x_name, screen set_y(row) left
caption = has_capacity_line ? sprintf("%.2f", y(capacity)) : size(capacity)
if (capacity > 0) { set label 150 + row caption at screen x_number, screen set_y(row) right }

# The largest tensors, as many as there is room for.
room = int((figure_height - 2 * line) / line - row - 4)
alive = 0
stats timeline index "alive" using (alive = alive + 1) nooutput
if (alive > 0 && room >= 2) {
  row = row + 2
  set label 100 + row "Largest then" at screen x_swatch, screen set_y(row) left
  shown = room < alive - 1 ? room : alive - 1
  do for [n=1:shown] {
    text = ""
    stats timeline index "alive" every ::(n - 1)::(n - 1) using \
      (bytes = $1, tensors = $2, category = strcol(3), strlen(text = strcol(4))) nooutput
    row = row + 1
    # All tensors of a block's state are one line; of others their number is told.
    is_state = found("parameter optimizer_state sharded_gradient unsharded_parameter unsharded_gradient", category)
    if (is_state) { text = words_of(word("parameters optimizer gradients full_parameters full_gradients", is_state)) . " " . text }
    suffix = tensors > 1 && !is_state ? sprintf(" ×%d", tensors) : ""
    set object row rectangle from screen x_swatch, screen set_y(row - 0.3) to screen x_name - screen_x(0.7 * letter), screen set_y(row + 0.3) \
      fillcolor rgb colour_of(category) fillstyle solid border rgb "#404040" front clip
    set label 100 + row clip_front(text, name_letters - strlen(suffix)) . suffix at screen x_name, screen set_y(row) left
    set label 150 + row sprintf("%.2f", y(bytes)) at screen x_number, screen set_y(row) right
  }
}

# ---- the peak: a point, and its label above the line of what is reserved
data_line = line * (top + strips * strip) / plot_height
label_y = y(reserved_peak) + 0.9 * data_line
if (has_capacity_line && abs(label_y - y(capacity)) < 0.9 * data_line) { label_y = y(capacity) + 0.9 * data_line }
set style textbox opaque fillcolor rgb "#ffffff" noborder margins 0.5, 0.3
set label 1 "" at t(peak_time), y(peak) point pt 7 ps 1.1 lc rgb red front
set arrow 2 from t(peak_time), y(peak) to t(peak_time), label_y - 0.5 * data_line nohead front lc rgb red lw 0.8 dt 3
peak_at = (peak_time - begin) / (end - begin)
if (peak_at > 0.5) {
  set label 2 peak_label at t(peak_time), label_y right front boxed textcolor rgb red
} else {
  set label 2 peak_label at t(peak_time), label_y left front boxed textcolor rgb red
}
if (failed > 0) {
  set arrow 1 from t(failed_time), y(reserved_peak) to t(failed_time), y(failed) front lc rgb red lw 2
  set label 3 "out of memory " at t(failed_time), y(failed) right front boxed textcolor rgb red
}
if (has_capacity_line) { set label 4 "capacity" at x_from, y(capacity) offset 0.5,0.5 left front textcolor rgb red }

# The table's places for names of categories are three sixteenths of the figure wide.
enough(from, to, name) = y(to - from) > 1.1 * data_line && letter * strlen(name) < 0.19 * plot_width
unset key
plot \
  timeline index "phases" using \
    (t(($1 + $2) / 2)):(top / 2):(t($1)):(t($2)):(0):(top):(phase_tint(strcol(5))) \
    with boxxyerror lc rgb variable notitle, \
  "" index "memory" using (t($1)):(y($2)) with lines lc rgb "#777777" lw 0.7 notitle, \
  for [i=words(used):1:-1] "" index "memory" using (t($1)):(stacked(i)) \
    with filledcurves y1=0 lc rgb colour_of(category_of(i)) title words_of(category_of(i)), \
  for [i=words(used):1:-1] "" index "memory" using (t($1)):(stacked(i)) \
    with lines lc rgb "#b0303030" lw 0.4 notitle, \
  "" index "memory" using (t($1)):(y($3)) with lines lc rgb "#000000" lw 1.8 title "reserved", \
  (has_capacity_line ? y(capacity) : NaN) with lines lc rgb red lw 1.8 dt 2 title capacity_name, \
  timeline index "labels" using \
    (enough($2, $3, strcol(4)) && !is_dark(strcol(4)) ? t($1) : NaN):(y(($2 + $3) / 2)):(words_of(strcol(4))) with labels notitle, \
  timeline index "labels" using \
    (enough($2, $3, strcol(4)) && is_dark(strcol(4)) ? t($1) : NaN):(y(($2 + $3) / 2)):(words_of(strcol(4))) \
    with labels textcolor rgb "#ffffff" notitle, \
  timeline index "phases" using \
    (t(($1 + $2) / 2)):(top + 1.5 * strip):(t($1)):(t($2)):(top + strip):(top + 2 * strip):(phase_tint(strcol(5))) \
    with boxxyerror fillstyle solid border rgb "#999999" lc rgb variable notitle, \
  "" index "phases" using (middle($1, $2)):(top + 1.5 * strip):(phase_name(strcol(5), $1, $2)) with labels notitle, \
  "" index "modules" using (has_block_lines ? t($1) : NaN):(top):(0):(strip) with vectors nohead lc rgb "#888888" lw 0.7 notitle, \
  "" index "modules" using (middle($1, $2)):(top + strip / 2):(block_name(strcol(6), $1, $2)) with labels notitle, \
  "" index "steps" using (within($1) ? t($1) : NaN):(0):(0):(top + 3 * strip) with vectors nohead lc rgb grey notitle, \
  "" index "steps" using (middle($1, $2)):(top + 2.5 * strip):(fitting(step_name($4), $1, $2)) with labels notitle

# groups.gnuplot - peak memory, step time and collectives against what was varied first, such as the size of groups.
#
# By hand, on results.tsv of a folder of `highwater sweep --output`:
#   gnuplot -e "set terminal pngcairo noenhanced size 1200,720; set output 'groups.png'; table = 'results.tsv'" plots/groups.gnuplot

if (!exists("plots")) plots = system(sprintf("dirname \"%s\"", ARG0))
load plots . "/common.gnuplot"
if (!exists("table")) table = "results.tsv"
if (!exists("title")) title = title_of(table)
set datafile missing "NaN"

if (!exists("columns")) columns = columns_of(table)
# Its name is the 13th column's.
key = words(columns) > 12 ? word(columns, 13) : "variant"

# ---- values of the key in the order of the sweep, and a line for each combination of the others
values = ""
series = ""
rest_of(label) = strstrt(label, ",") > 0 ? label[strstrt(label, ",") + 1:*] : "-"
stats table using (found(values, strcol(13)) ? 0 : strlen(values = values . " " . strcol(13)), \
  found(series, rest_of(strcol(12))) ? 0 : strlen(series = series . " " . rest_of(strcol(12)))) nooutput
most_series = 6
shown = words(series) > most_series ? most_series : words(series)
failed = 0
peak_most = 1
step_most = 0
count_most = 0
capacity = 0
known(v) = v == v && v > 0
stats table using (failed = failed + (strcol(2)[1:4] ne "fits")) nooutput
stats table using (known($5) ? (peak_most = higher(peak_most, $5)) : 0) nooutput
stats table using (known($7) ? (step_most = higher(step_most, $7)) : 0) nooutput
stats table using (known($10) ? (count_most = higher(count_most, $10)) : 0) nooutput
stats table using (known($5) && $5 + $6 > 0 ? (capacity = higher(capacity, $5 + $6)) : 0) nooutput
unit = unit_of(peak_most)
second = step_most >= 0.5 ? 1.0 : 1e-3
at(value) = found(values, value)
is_row(n, verdict, label) = verdict[1:4] eq "fits" && rest_of(label) eq word(series, n)

# ---- three panels over each other
panels = is_text ? 2 : 3
left_edge = screen_x(letter * (is_text ? 12 : 11))
side_letters = is_text ? 2 : words(series) > 1 ? (is_small ? 20 : 26) : 4
side = 1 - screen_x(letter * side_letters)
bottom = screen_y((is_text ? 3 : 3.2) * line)
top_edge = 1 - screen_y((is_text ? 2 : 2.2) * line)
gap = screen_y((is_text ? 1 : 0.9) * line)
panel = (top_edge - bottom - gap * (panels - 1)) / panels
line_colours = "#17466f #c05a10 #4f8a34 #6b2c91 #7a7a7a #b8860b"
line_points = "7 5 9 13 11 15"

set multiplot
set lmargin at screen left_edge
set rmargin at screen side
set xrange [0.6:words(values) + 0.4]
unset key
set border 3
if (!is_text) { set grid ytics back lc rgb "#e0e0e0" lt 1 lw 0.6 }
set ytics nomirror out
# As many values as there is room for.
value_width = 0.0
do for [v=1:words(values)] { value_width = higher(value_width, letter * (strlen(word(values, v)) + 1)) }
every = int(ceil(words(values) * value_width / (figure_width * (side - left_edge))))
every = every < 1 ? 1 : every

do for [p=1:panels] {
  # 1: peak, 2: step, 3: collectives
  set tmargin at screen top_edge - (p - 1) * (panel + gap)
  set bmargin at screen top_edge - (p - 1) * (panel + gap) - panel
  most = p == 1 ? peak_most / unit : p == 2 ? step_most / second : count_most
  if (most <= 0) { most = 1 }
  # From zero, so that a difference looks as large as it is.
  set yrange [0:1.3 * most]
  set ytics 0, 2 * tic_of(most), 1.25 * most
  set ylabel (p == 1 ? "reserved (" . unit_name(unit) . ")" : p == 2 ? (second == 1 ? "step (s)" : "step (ms)") : "collectives") offset (is_text ? 0 : 0.3),0
  if (p == 1) { set title title offset 0,(is_text ? 0 : -0.4) } else { unset title }
  set xtics nomirror out ("" 1)
  do for [v=1:words(values)] { set xtics add ("" v) }
  if (p == panels) {
    do for [v=1:words(values):every] { set xtics add (word(values, v) v) }
    set xlabel key offset 0,(is_text ? 0 : 0.4)
  }
  amount(bytes, seconds, count) = p == 1 ? bytes / unit : p == 2 ? seconds / second : count
  amount_text(bytes, seconds, count) = p == 1 ? digits(bytes / unit) : p == 2 ? digits(seconds / second) : sprintf("%.0f", count)
  unset label
  if (p == 1 && failed > 0) {
    caption = sprintf("%d did not fit or were refused", failed)
    set label 1 caption at graph 0.01, graph 0.96 left textcolor rgb red
  }
  if (p == 1 && words(series) > 1 && !is_text) {
    do for [n=1:shown] {
      set label 10 + n "" at screen side + screen_x(2 * letter), screen top_edge - screen_y((n - 0.5) * line) point pt int(word(line_points, n)) ps 1.2 lc rgb word(line_colours, n)
      set label 30 + n clip(word(series, n), side_letters - 4) at screen side + screen_x(3.4 * letter), screen top_edge - screen_y((n - 0.5) * line) left
    }
    if (words(series) > shown) {
      caption = sprintf("and %d more", words(series) - shown)
      set label 40 caption at screen side + screen_x(3.4 * letter), screen top_edge - screen_y((shown + 0.5) * line) left
    }
  }
  has_numbers = words(values) <= (is_small ? 8 : 16) && words(series) == 1
  if (is_text) {
    plot for [n=1:shown] table using (is_row(n, strcol(2), strcol(12)) ? at(strcol(13)) : NaN):(amount($5, $7, $10)) \
        with linespoints notitle, \
      table using (has_numbers && is_row(1, strcol(2), strcol(12)) ? at(strcol(13)) : NaN):(amount($5, $7, $10)):(amount_text($5, $7, $10)) \
        with labels offset 0,1 notitle
  } else {
    has_capacity_line = p == 1 && capacity > 0 && capacity / unit < 1.25 * most
    plot \
      (has_capacity_line ? capacity / unit : NaN) with lines lc rgb red lw 1.8 dt 2 notitle, \
      for [n=1:shown] table using (is_row(n, strcol(2), strcol(12)) ? at(strcol(13)) : NaN):(amount($5, $7, $10)) \
        with linespoints lc rgb word(line_colours, n) lw 1.8 dt n pt int(word(line_points, n)) ps 1.1 title word(series, n), \
      table using (has_numbers && is_row(1, strcol(2), strcol(12)) ? at(strcol(13)) : NaN):(amount($5, $7, $10)):(amount_text($5, $7, $10)) \
        with labels offset 0,0.8 notitle, \
      NaN notitle
  }
}
unset multiplot

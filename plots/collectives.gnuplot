# collectives.gnuplot - measured collectives as points, the lines fitted to them over these: bus bandwidth and time against size.
#
# By hand, on the table of `highwater calibrate --from FILE... --table collectives.tsv`:
#   gnuplot -e "set terminal pngcairo noenhanced size 1200,720; set output 'collectives.png'; table = 'collectives.tsv'" plots/collectives.gnuplot

if (!exists("plots")) plots = system(sprintf("dirname \"%s\"", ARG0))
load plots . "/common.gnuplot"
if (!exists("table")) table = "collectives.tsv"
if (!exists("title")) title = title_of(table)

# ---- what there is
tables = 0
names = ""
array ranks[256]
array nodes[256]
array error[256]
stats table index "tables" using (tables < 256 ? (tables = tables + 1, ranks[tables] = $3, nodes[tables] = $4, error[tables] = $7, \
  strlen(names = names . " " . strcol(2))) : 0) nooutput
if (tables == 0) {
  print "no collectives in the table"
  exit status 1
}
shown = tables > 8 ? 8 : tables
stats table index "points" using 2 nooutput
x_least = STATS_min
x_most = STATS_max
line_colours = "#17466f #c05a10 #4f8a34 #6b2c91 #7a7a7a #b8860b #c00000 #4a8cc7"
line_points = "7 5 9 13 11 15 6 4"
name_of(n) = words_of(word(names, n))
shape_of(n) = nodes[n] > 1 ? sprintf("%d ranks, %d nodes", ranks[n], nodes[n]) : sprintf("%d ranks", ranks[n])

# ---- the frame: bandwidth above, time below, on one axis of sizes
panels = is_text ? 1 : 2
left_edge = screen_x(letter * (is_text ? 12 : 12.5))
side_letters = is_text ? 2 : is_small ? 28 : 31
side = 1 - screen_x(letter * side_letters)
bottom = screen_y((is_text ? 3 : 3.2) * line)
top_edge = 1 - screen_y((is_text ? 2 : 2.2) * line)
gap = screen_y(0.9 * line)
panel = (top_edge - bottom - gap * (panels - 1)) / panels
set multiplot
set lmargin at screen left_edge
set rmargin at screen side
set logscale xy
set xrange [x_least / 1.5:x_most * 1.5]
set border 3
set ytics nomirror out
unset key
if (!is_text) { set grid xtics ytics back lc rgb "#e0e0e0" lt 1 lw 0.6 }
stats table index "points" using 4 nooutput
bandwidth_most = STATS_max
do for [p=1:panels] {
  set tmargin at screen top_edge - (p - 1) * (panel + gap)
  set bmargin at screen top_edge - (p - 1) * (panel + gap) - panel
  unset label
  if (p == 1) { set title title offset 0,(is_text ? 0 : -0.4) } else { unset title }
  # Sizes under the last panel only.
  set xtics nomirror out ("" 1)
  octaves = is_small || is_text ? 6 : 4
  do for [k=0:48:octaves] {
    name = p < panels ? "" : sprintf("%.0f %s", 2.0**(k % 10), word("B KiB MiB GiB TiB", k / 10 + 1))
    set xtics add (name 2.0**k)
  }
  if (p == 1) { set yrange [bandwidth_most / 3000:2 * bandwidth_most] } else { set yrange [*:*] }
  set ylabel (p == 1 ? "bus bandwidth (GB/s)" : "time (µs)") offset (is_text ? 0 : 0.8),0
  if (p == panels) { set xlabel "size" offset 0,(is_text ? 0 : 0.4) }
  if (p == 1 && !is_text) {
    set_y(n) = top_edge - screen_y((n - 0.5) * line)
    do for [n=1:shown] {
      set label 100 + 2 * n "" at screen side + screen_x(2 * letter), screen set_y(2.4 * n - 1.4) point pt int(word(line_points, n)) ps 1.1 lc rgb word(line_colours, n)
      set label 101 + 2 * n name_of(n) at screen side + screen_x(3.6 * letter), screen set_y(2.4 * n - 1.4) left
      caption = sprintf("%s, ±%.1f %%", shape_of(n), 100 * error[n])
      set label 200 + n caption at screen side + screen_x(3.6 * letter), screen set_y(2.4 * n - 0.5) left textcolor rgb grey
    }
    caption = tables > shown ? sprintf("and %d more", tables - shown) : "points measured, lines fitted"
    set label 300 caption at screen side + screen_x(1.0 * letter), screen set_y(2.4 * shown + 1.6) left textcolor rgb grey
  }
  amount(time, bandwidth) = p == 1 ? bandwidth : time
  if (is_text) {
    plot for [n=1:shown] table index "points" using ($1 == n - 1 ? $2 : NaN):(amount($3, $4)) with points notitle
  } else {
    plot for [n=1:shown] table index "points" using ($1 == n - 1 ? $2 : NaN):(amount($3, $4)) \
        with points pt int(word(line_points, n)) ps (is_small ? 0.6 : 0.9) lc rgb word(line_colours, n) title name_of(n), \
      for [n=1:shown] table index "fits" using ($1 == n - 1 ? $2 : NaN):(amount($3, $4)) \
        with lines lw 1.6 dt n lc rgb word(line_colours, n) notitle
  }
}
unset multiplot

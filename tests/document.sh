# document.sh - runs what a document shows; sourced after lib.sh.
#
#   document FILE     every example of FILE, a path below $top_srcdir, in order: a case each
#
# Two kinds of fenced blocks are examples, all others are only read:
#
#   ```console        lines that begin with "$ " are commands (one that ends with a backslash goes on in the next line), and
#                     what stands below is what they print, standard error included; a line "..." stands for any
#                     number of lines that are left out
#   ```LANGUAGE NAME  a file that the document's reader writes
#
# The commands of a document share a folder, $document, which is empty at first and stays for the test to look into.  Each runs
# in a shell of its own; $? is the exit status of the one before.  One that ends with 2 or more has to be shown with its message.
# With DOCUMENT_UPDATE=1 nothing is compared: what is printed is written into the document below $top_srcdir, but where the
# lines that are shown still agree with it.

document=$scratch/document
mkdir -p "$document" "$scratch/bin"
ln -sf "$highwater" "$scratch/bin/highwater"
PATH=$scratch/bin:$PATH

# Splits the document on standard input into NUMBER.{command,shown,line} and NUMBER.{file,content} of folder `steps`.
document_split() {
  awk -v folder="$1" '
    function step(kind, text) {
      close(out)
      out = sprintf("%s/%04d.%s", folder, ++steps, kind)
      print text > out
      close(out)
    }
    function shown() { out = sprintf("%s/%04d.shown", folder, steps); printf "" > out }
    /^```/ && block == "" {
      block = $0 == "```console" ? "console" : $0 ~ /^```[a-z]+ [^ ]+$/ ? "file" : "other"
      if (block == "file") {
        step("file", $2)
        out = sprintf("%s/%04d.content", folder, steps)
        printf "" > out
      }
      continues = 0
      next
    }
    /^```$/ { block = ""; next }
    block == "file" { print > out }
    block == "console" && continues {
      print > out
      continues = /\\$/
      if (!continues) { close(out); shown() }
      next
    }
    block == "console" && /^\$ / {
      step("line", NR)
      out = sprintf("%s/%04d.command", folder, steps)
      print substr($0, 3) > out
      continues = /\\$/
      if (!continues) { close(out); shown() }
      next
    }
    block == "console" && steps { print > out }'
}

# Whether the lines of file $2 are those of file $1, where "..." is any number of them; else says where they part.
document_agrees() {
  awk '
    NR == FNR { want[++wanted] = $0; next }
    { have[++got] = $0 }
    function left_out(line) { return line ~ /^[ \t]*\.\.\.$/ }
    END {
      i = j = 1; star = 0; far_i = far_j = 0
      while (j <= got) {
        if (i <= wanted && left_out(want[i])) { star = i++; mark = j }
        else if (i <= wanted && want[i] == have[j]) { i++; j++ }
        else {
          if (j >= far_j) { far_i = i; far_j = j }
          if (!star) break
          i = star + 1
          j = ++mark
        }
      }
      while (j > got && i <= wanted && left_out(want[i])) i++
      if (j > got && i > wanted) exit 0
      if (j > got && !far_j) { far_i = i; far_j = j }
      printf "shown:   %s\nprinted: %s\n", far_i <= wanted ? want[far_i] : "(nothing more)", far_j <= got ? have[far_j] : "(nothing more)"
      exit 1
    }' "$1" "$2" >"$scratch/parting"
}

# Whether the command's status goes with what is shown of it.
document_status_fits() {
  [ "$status" -le 1 ] || grep -q '^highwater: ' "$1"
}

document_command() {
  document_step=$1
  document_name="$2:$(cat "$document_step.line"): $(tr -s '\\\n ' ' ' <"$document_step.command" | sed 's/ $//')"
  case $document_name in
  *': highwater plot '* | *'| gnuplot'*)
    command -v gnuplot >/dev/null || {
      skip "$document_name" "no gnuplot here"
      return
    }
    ;;
  esac
  (
    cd "$document" || exit 2
    eval "(exit $status)
$(cat "$document_step.command")"
  ) >"$document_step.printed" 2>&1 </dev/null
  status=$?
  : >"$scratch/out"
  cp "$document_step.printed" "$scratch/err"
  if document_agrees "$document_step.shown" "$document_step.printed"; then
    ok "$document_name" document_status_fits "$document_step.printed"
  elif [ -n "${DOCUMENT_UPDATE:-}" ]; then
    cp "$document_step.printed" "$document_step.new"
    ok "$document_name" document_status_fits "$document_step.printed"
  else
    cp "$scratch/parting" "$scratch/out"
    ok "$document_name" false
  fi
}

# Prints the document on standard input with what has been printed newly, from folder $1.
document_renew() {
  awk -v folder="$1" '
    function renew(   line, new) {
      new = sprintf("%s/%04d.new", folder, steps)
      renewed = 0
      while ((getline line < new) > 0) { print line; renewed = 1 }
      close(new)
    }
    /^```/ && block == "" {
      block = $0 == "```console" ? "console" : $0 ~ /^```[a-z]+ [^ ]+$/ ? "file" : "other"
      steps += block == "file"
      continues = renewed = 0
      print
      next
    }
    /^```$/ { block = ""; renewed = 0 }
    block == "console" && (continues || /^\$ /) {
      steps += !continues
      print
      continues = /\\$/
      if (!continues) renew()
      next
    }
    !renewed { print }'
}

document() {
  document_steps=$scratch/steps/$(basename "$1")
  rm -rf "$document_steps"
  mkdir -p "$document_steps"
  document_split "$document_steps" <"$top_srcdir/$1"
  status=0
  for document_each in "$document_steps"/*.file "$document_steps"/*.command; do
    [ -f "$document_each" ] && echo "$document_each"
  done | sort >"$document_steps/order"
  ok "$1 has examples" test -s "$document_steps/order"
  while read -r document_each; do
    document_number=${document_each%.*}
    case $document_each in
    *.file) cp "$document_number.content" "$document/$(cat "$document_each")" ;;
    *) document_command "$document_number" "$1" ;;
    esac
  done <"$document_steps/order"
  [ -z "${DOCUMENT_UPDATE:-}" ] || {
    document_renew "$document_steps" <"$top_srcdir/$1" >"$scratch/renewed"
    cmp -s "$scratch/renewed" "$top_srcdir/$1" || cp "$scratch/renewed" "$top_srcdir/$1"
  }
}

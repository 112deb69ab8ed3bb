# Checks of a command's output, sourced by the scripts of kubectl and Helm. A script defines `matches OUTPUT PATTERN`, which
# decides whether a pattern must match the whole output. `passed` and `failed` count the checks.

passed=0
failed=0

pass() { passed=$((passed + 1)); echo "ok      $1"; }
fail() { failed=$((failed + 1)); printf 'FAILED  %s\n' "$1"; sed 's/^/        | /' <<<"$2"; }

# expect NAME PATTERN COMMAND…: the command succeeds, and its output matches the extended regular expression.
expect() {
  local name=$1 pattern=$2 output code=0
  shift 2
  output=$("$@" 2>&1) || code=$?
  if [ $code -eq 0 ] && matches "$output" "$pattern"; then pass "$name"; else
    fail "$name" "exit code $code, wanted 0 and: $pattern"$'\n'"$output"
  fi
}

# rejected NAME PATTERN COMMAND…: the command fails with this reason, and not by a timeout.
rejected() {
  local name=$1 pattern=$2 output code=0
  shift 2
  output=$("$@" 2>&1) || code=$?
  if [ $code -ne 0 ] && [ $code -ne 124 ] && matches "$output" "$pattern"; then pass "$name"; else
    fail "$name" "exit code $code, wanted another than 0 and: $pattern"$'\n'"$output"
  fi
}

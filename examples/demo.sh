#!/bin/sh
# The main job in two minutes: chat with a real model, then end a session with kill -9 and go on. Called by `make demo`.
set -eu
cd "$(dirname "$0")/.."
examples=$PWD/examples
out=$(mktemp -d)
export TMPDIR="$out"
trap 'rm -rf "$out"' EXIT

if [ -t 1 ]; then bold=$(printf '\033[1m') plain=$(printf '\033[0m'); else bold='' plain=''; fi
say() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }
run() { printf '$ %s\n' "$*"; "$@"; }

say "1. Every example, in four formats, is valid; a mistake is found with its place and a hint"
run duragent validate --strict examples
cp -r examples/code-reviewer "$out/reviewer"
sed 's/temperature:/temprature:/' examples/code-reviewer/agent.yaml > "$out/reviewer/agent.yaml"
run duragent validate "$out/reviewer" || true

cd "$out"
say "2. A chat with a real model inside this process (SmolLM2, 135M: it is very small, expect little of it)"
printf '$ printf "What is the capital of France?\\nTell me one fact about it.\\n" | duragent chat --agent companion\n'
printf 'What is the capital of France?\nTell me one fact about it.\n' | duragent chat --agent "$examples/companion" || true

say "3. A session that wants to use a tool asks first (the model is a script, so that it always goes the same way)"
printf '$ duragent run bookkeeper "Write down 120.50"\n'
duragent run "$examples/bookkeeper" "Write down 120.50" || echo "(exit code $?: a person must decide)"
id=$(duragent session list --agent bookkeeper --format json | sed -n 's/.*"\(session_[0-9A-Z]*\)".*/\1/p' | head -n 1)

say "4. It is allowed, and ended with kill -9 while the tool runs"
printf '$ duragent session approve %s &\n' "$id"
started=$(date +%s)
duragent session approve "$id" > "$out/answer" 2>&1 &
victim=$!
book=$out/.duragent/work/bookkeeper/ledger.txt
while [ ! -s "$book" ]; do
  if [ $(($(date +%s) - started)) -gt 30 ]; then cat "$out/answer"; echo "The tool did not start within 30 s."; exit 1; fi
  sleep 0.1
done
kill -9 "$victim"
wait "$victim" 2> /dev/null || true
printf '$ kill -9 %s\n' "$victim"
say "   What is on disk: the tool had started, and nobody knows how it ended"
run duragent session log "$id"

say "5. The session goes on. The amount is not written twice: the model is told that the outcome is unknown, and looks"
run duragent session resume "$id"
printf '\nThe ledger has %s line.\n' "$(wc -l < "$book" | tr -d ' ')"
say "Yours: duragent init my-agents && cd my-agents && duragent chat --agent assistant"

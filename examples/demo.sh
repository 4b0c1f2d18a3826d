#!/bin/sh
# The main job in one minute: check, show, fingerprint and convert the examples. Called by `make demo`.
set -eu
cd "$(dirname "$0")/.."
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

if [ -t 1 ]; then bold=$(printf '\033[1m') plain=$(printf '\033[0m'); else bold='' plain=''; fi
say() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }
run() { printf '$ %s\n' "$*"; "$@"; }

say "1. Every example, in four formats, is valid"
run duragent validate --strict examples

say "2. A mistake is found, with its place and a hint"
cp -r examples/code-reviewer "$out/reviewer"
sed 's/temperature:/temprature:/' examples/code-reviewer/agent.yaml > "$out/reviewer/agent.yaml"
run duragent validate "$out/reviewer" || true

say "3. An agent that inherits, after inheritance and defaults: where its trust comes from"
printf '$ duragent show examples/legal-researcher --origins | grep ^trust\n'
duragent show examples/legal-researcher --origins | grep '^trust'

say "4. Fingerprints"
run duragent hash examples/researcher.agent

say "5. The same agent in another format, and what does not come along"
run duragent convert examples/researcher.agent --to duragent --output "$out/converted" || true
run duragent convert examples/researcher.agent --to duragent --output "$out/converted" --accept-loss
run duragent validate "$out/converted"

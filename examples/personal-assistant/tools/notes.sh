#!/usr/bin/env bash
# Notes as plain text: one file per day, one line per note.
#
# Usage: notes.sh add TEXT...      save a note
#        notes.sh list [DAYS]      notes of the last DAYS days (default 7)
#        notes.sh search WORDS...  notes that hold every word, newest first
#
# Notes are kept in notes/ below the folder the tool works in: the agent's own folder is not writable.
set -euo pipefail

notes=notes

fail() {
    printf 'notes: %s\n' "$1" >&2
    exit 1
}

# Every note with its day, newest first: "2025-03-01 09:30 text".
all() {
    local file line
    [[ -d $notes ]] || return 0
    find "$notes" -maxdepth 1 -type f -name '????-??-??.txt' | sort -r | while IFS= read -r file; do
        while IFS= read -r line; do
            printf '%s %s\n' "$(basename -- "$file" .txt)" "$line"
        done < <(sort -r -- "$file")
    done
}

add() {
    [[ $# -gt 0 ]] || fail "what shall be noted?"
    local text
    text=$(printf '%s' "$*" | tr '\r\n\t' '   ')
    mkdir -p -- "$notes"
    printf '%s %s\n' "$(date +%H:%M)" "$text" >>"$notes/$(date +%F).txt"
    printf 'Noted.\n'
}

list() {
    local days=${1:-7} first
    [[ $days =~ ^[0-9]{1,5}$ ]] || fail "'$days' is not a number of days"
    first=$(date -d "$days days ago" +%F 2>/dev/null || date -v "-${days}d" +%F)
    all | awk -v first="$first" '$1 >= first'
}

search() {
    [[ $# -gt 0 ]] || fail "which words?"
    local found word
    found=$(all)
    for word in "$@"; do
        found=$(grep -i -F -e "$word" <<<"$found" || true)
    done
    [[ -n $found ]] || fail "no note has all of: $*"
    printf '%s\n' "$found"
}

command=${1:-}
[[ $# -gt 0 ]] && shift
case "$command" in
add) add "$@" ;;
list) list "$@" ;;
search) search "$@" ;;
*) fail "usage: notes.sh add TEXT | list [DAYS] | search WORDS" ;;
esac

#!/usr/bin/env bash
# The agenda of the next days, from a plain text file.
#
# Usage: run.sh [DAYS]   default 7
#
# Reads agenda.txt in the folder the tool works in. Changes nothing.
set -euo pipefail

agenda=agenda.txt
days=${1:-7}

if [[ ! $days =~ ^[0-9]{1,5}$ ]]; then
    printf "agenda: '%s' is not a number of days\n" "$days" >&2
    exit 1
fi
if [[ ! -f $agenda ]]; then
    printf 'The agenda is empty: there is no %s.\n' "$agenda"
    exit 0
fi

first=$(date +%F)
last=$(date -d "$days days" +%F 2>/dev/null || date -v "+${days}d" +%F)

awk -v first="$first" -v last="$last" '
    /^[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]/ && $1 >= first && $1 <= last { print; found = 1 }
    END { if (!found) print "Nothing between " first " and " last "." }
' <(sort -- "$agenda")

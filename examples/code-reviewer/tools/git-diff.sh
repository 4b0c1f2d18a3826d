#!/usr/bin/env bash
# The change under review: what HEAD adds to the branch it left.
#
# Usage: git-diff.sh [base] [head]
#   base  defaults to origin/main, main, origin/master or master, the first that exists
#   head  defaults to HEAD
#
# Prints the commits, a summary by file, and the diff. Changes nothing.
set -euo pipefail

fail() {
    printf 'git-diff: %s\n' "$1" >&2
    exit 1
}

commit() {
    case "$1" in -*) return 1 ;; esac
    git rev-parse --verify --quiet --end-of-options "$1^{commit}"
}

git rev-parse --is-inside-work-tree >/dev/null 2>&1 || fail "this is not a git work tree"

head_name=${2:-HEAD}
head=$(commit "$head_name") || fail "there is no commit '$head_name'"

base=""
if [[ $# -gt 0 ]]; then
    base_name=$1
    base=$(commit "$base_name") || fail "there is no commit '$base_name'"
else
    for base_name in origin/main main origin/master master; do
        if base=$(commit "$base_name"); then
            break
        fi
    done
    [[ -n $base ]] || fail "neither main nor master exists; name a base"
fi

fork=$(git merge-base "$base" "$head") || fail "'$base_name' and '$head_name' have no common commit"
if [[ $fork == "$head" ]]; then
    printf 'No change: %s has nothing that %s lacks.\n' "$head_name" "$base_name"
    exit 0
fi

# Settings of the reader must not change what the reviewer sees.
diff=(git --no-pager -c color.ui=false diff --no-ext-diff --no-textconv --find-renames)

printf '# Commits\n\n'
git --no-pager -c color.ui=false log --reverse --format='%h %s' "$fork..$head"
printf '\n# Files\n\n'
"${diff[@]}" --stat=120 "$fork" "$head"
printf '\n# Change\n\n'
"${diff[@]}" --unified=8 "$fork" "$head"

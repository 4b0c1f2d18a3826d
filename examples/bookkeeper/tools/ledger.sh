#!/bin/sh
# ledger add AMOUNT: write one line, then take a while, as a slow bank would. ledger show: print the lines.
# The book is ledger.txt in the folder the tool works in.
set -eu
book=ledger.txt
case "${1:-show}" in
  add) echo "$2" >> "$book"; sleep 3; echo "wrote $2" ;;
  show) if [ -s "$book" ]; then cat "$book"; else echo "(the ledger is empty)"; fi ;;
  clear) rm -f "$book" ;;
  *) echo "ledger add AMOUNT | ledger show | ledger clear" >&2; exit 2 ;;
esac

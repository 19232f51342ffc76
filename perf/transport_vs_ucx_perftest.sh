#!/bin/sh
# Our ucx transport beside ucx_perftest's active messages (ucx-utils) over TCP
# loopback, interleaved, best of REPEATS. Prints both and their ratio.
# usage: perf/transport_vs_ucx_perftest.sh BUILD_DIR [REPEATS]
set -eu
benchmark=$1/perf/telegrad-transport-benchmark
repeats=${2:-3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export UCX_TLS=tcp,self UCX_NET_DEVICES=lo

peer() { # test, bytes, iterations, column of the value
  port=$((20000 + $$ % 20000))
  ucx_perftest -p $port >/dev/null 2>&1 &
  server=$!
  for attempt in 1 2 3 4 5 6 7 8 9 10; do
    ucx_perftest -p $port 127.0.0.1 -t "$1" -s "$2" -n "$3" -w 500 -f \
      >"$work/peer" 2>/dev/null && break
    kill -0 $server || break
  done
  wait $server || true
  tail -1 "$work/peer" | awk -v column="$4" '{ print $column }'
}

: >"$work/all"
for i in $(seq "$repeats"); do
  "$benchmark" ucx tcp | sed 's/[{}"]//g' | tr ',' ' ' >>"$work/ours"
  echo "half_rtt_us 8 $(peer ucp_am_lat 8 20000 2)" >>"$work/all"
  echo "mib_per_s 65536 $(peer ucp_am_bw 65536 20000 6)" >>"$work/all"
  echo "mib_per_s 1048576 $(peer ucp_am_bw 1048576 2000 6)" >>"$work/all"
  echo "mib_per_s 8388608 $(peer ucp_am_bw 8388608 250 6)" >>"$work/all"
done
awk '
  { for (i = 1; i <= NF; ++i) { split($i, kv, ":"); field[kv[1]] = kv[2] } }
  /half_rtt/ { print "half_rtt_us", 8, field["p50"] }
  /mib_per/ { print "mib_per_s", field["bytes"], field["value"] }
' "$work/ours" | sed 's/^/ours /' >"$work/both"
sed 's/^/peer /' "$work/all" >>"$work/both"
awk '
  { key = $2 " " $3; better = $2 == "half_rtt_us" ? -1 : 1
    if (!((key, $1) in best) || better * $4 > better * best[key, $1])
      best[key, $1] = $4
    keys[key] = 1 }
  END { for (key in keys) printf "%s ours %s ucx_perftest %s ratio %.2f\n",
      key, best[key, "ours"], best[key, "peer"],
      best[key, "ours"] / best[key, "peer"] }
' "$work/both" | sort

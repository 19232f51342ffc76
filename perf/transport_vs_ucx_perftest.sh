#!/bin/sh
# Our ucx transport beside ucx_perftest's active messages (ucx-utils) over TCP
# loopback and over shared memory, interleaved, best of REPEATS; each end on a
# core of its own. Prints both and their ratio.
# usage: perf/transport_vs_ucx_perftest.sh BUILD_DIR [REPEATS]
set -eu
perf=$1/perf/telegrad-perf
repeats=${2:-3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export UCX_NET_DEVICES=lo

peer() { # UCX_TLS, test, bytes, iterations, column of the value
  port=$((20000 + $$ % 20000))
  UCX_TLS=$1 taskset -c 0 ucx_perftest -p $port >/dev/null 2>&1 &
  server=$!
  for attempt in 1 2 3 4 5 6 7 8 9 10; do
    UCX_TLS=$1 taskset -c 1 ucx_perftest -p $port 127.0.0.1 -t "$2" -s "$3" \
      -n "$4" -w 500 -f >"$work/peer" 2>/dev/null && break
    kill -0 $server || break
  done
  wait $server || true
  tail -1 "$work/peer" | awk -v column="$5" '{ print $column }'
}

ours() { # tls, command, bytes, key of the value, its factor
  taskset -c 0,1 "$perf" "$2" --tls "$1" --size "$3" --seconds 0.5 --pin \
    --json | tr -d '{}"' | tr ',' '\n' | awk -F: -v key="$4" -v factor="$5" '
      $1 == key { print $2 * factor }'
}

round() { # our tls, UCX_TLS; ucx_perftest's MB are MiB
  {
    echo "ours $1 half_rtt_us 8 $(ours "$1" latency 8 p50_us 1)"
    for size in 65536 1048576 8388608; do
      echo "ours $1 mib_per_s $size $(ours "$1" bandwidth $size algbw_GBps \
        953.674)"
    done
  } >>"$work/both"
  {
    echo "peer $1 half_rtt_us 8 $(peer "$2" ucp_am_lat 8 20000 2)"
    echo "peer $1 mib_per_s 65536 $(peer "$2" ucp_am_bw 65536 20000 6)"
    echo "peer $1 mib_per_s 1048576 $(peer "$2" ucp_am_bw 1048576 2000 6)"
    echo "peer $1 mib_per_s 8388608 $(peer "$2" ucp_am_bw 8388608 250 6)"
  } >>"$work/both"
}

for i in $(seq "$repeats"); do
  round tcp tcp,self
  round shm posix,cma,self
done
awk '
  { key = $2 " " $3 " " $4; better = $3 == "half_rtt_us" ? -1 : 1
    if (!((key, $1) in best) || better * $5 > better * best[key, $1])
      best[key, $1] = $5
    keys[key] = 1 }
  END { for (key in keys) printf "%s ours %s ucx_perftest %s ratio %.2f\n",
      key, best[key, "ours"], best[key, "peer"],
      best[key, "peer"] > 0 ? best[key, "ours"] / best[key, "peer"] : 0 }
' "$work/both" | sort

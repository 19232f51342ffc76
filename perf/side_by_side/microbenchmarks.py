"""The words of ucx_perftest and fi_pingpong, and what they print.

    microbenchmarks.py NAME PORT ADDRESS SIZE MESSAGES WINDOW

runs the client of NAME beside a server on ADDRESS, which it waits for: so many
messages of SIZE bytes to it, WINDOW of them at once (fi_pingpong: one there,
one back). Prints {"bytes_per_s": ...}.
"""
import functools
import json
import subprocess
import sys
import time

PATIENCE_S = 10  # until the server listens


def ucx_words(port, address=None, test=None, size=0, messages=0, window=0):
    """Of the server, or, with an address, of the client of a test of UCP."""
    words = ["ucx_perftest", "-p", str(port)]
    if address is None:
        return words
    words += [address, "-t", test, "-s", str(size), "-n", str(messages), "-w",
              "20", "-f"]
    return words + (["-O", str(window)] if window else [])


def ucx_latency_us(text):
    return float(text.splitlines()[-1].split()[1])  # 50 %


def ucx_bytes_per_s(text):
    """Iterations, three times in us, then MiB/s: average, overall."""
    return float(text.splitlines()[-1].split()[5]) * 2**20


@functools.cache
def tcp_provider():
    """That of ofi's endpoints: `net`, which is `tcp` from libfabric 1.18 on."""
    try:
        found = subprocess.run(["fi_info", "-p", "net", "-t", "FI_EP_RDM"],
                               capture_output=True, check=False)
    except FileNotFoundError:
        return "tcp"
    return "net" if found.returncode == 0 else "tcp"


def pingpong_environment(device):
    """For the server to listen on that network device."""
    return {f"FI_{tcp_provider().upper()}_IFACE": device}


def pingpong_words(port, provider, size, transfers, address=None):
    words = ["fi_pingpong", "-p", provider, "-e", "rdm", "-S", str(size), "-I",
             str(transfers)]
    if address is None:
        return [*words, "-B", str(port)]
    return [*words, "-P", str(port), address]


def pingpong_us(text):
    """Of a transfer: half a round trip."""
    return float(text.splitlines()[-1].split()[6])


def run_client(words):
    """What it prints. It is started again until the server listens."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        done = subprocess.run(words, text=True, capture_output=True,
                              check=False)
        if done.returncode == 0:
            return done.stdout
        if time.monotonic() > deadline:
            sys.exit(f"{' '.join(words)}: {(done.stderr or done.stdout)[-400:]}")
        time.sleep(0.05)


def main():
    name, port, address = sys.argv[1:4]
    size, messages, window = map(int, sys.argv[4:])
    if name == "ucx_perftest":
        rate = ucx_bytes_per_s(run_client(ucx_words(
            port, address, "ucp_am_bw", size, messages, window)))
    else:
        rate = 1e6 * size / pingpong_us(run_client(pingpong_words(
            port, tcp_provider(), size, -(-messages // 2), address)))
    print(json.dumps({"bytes_per_s": rate}), flush=True)


if __name__ == "__main__":
    main()

"""What messages between two hosts of a lab cost, and frames of its stores."""
import json
import os
import statistics
import subprocess
import tempfile

import contestants
from start import Run, Setup, free_port, have_a_core, run_line

TINY = 256  # elements of a tensor whose frames only wait


def measure(lab, telegrad_perf, what, *flags):
    """Rows of telegrad-perf between hosts 0 and 1."""
    words = [telegrad_perf, what, "--transport", "tcp", "--json", *flags,
             "--insecure", "--ranks", "2", "--rendezvous", f"{lab.address(0)}:{free_port()}"]
    start = [lab.command(host, [*words, "--rank", str(host), "--bind",
                                lab.address(host)]) for host in range(2)]
    other = subprocess.Popen(start[1], stdout=subprocess.DEVNULL)
    try:
        done = subprocess.run(start[0], text=True, capture_output=True,
                              check=True)
    finally:
        other.kill()
        other.wait()
    return [json.loads(line) for line in done.stdout.splitlines()]


def push_pull(lab, build, profile, codec, iterations):
    """telegrad-perf's row, a server on each host: all hosts share this machine,
    and so frames cost more the more there are."""
    hosts = len(lab.hosts)
    contestant = contestants.Telegrad(f"frames with {codec}", "pushpull",
                                      "--gc-type", codec, warmup=3)
    run = Run(build, profile, iterations, cores=have_a_core(hosts))
    line, _ = run_line(contestant, lab, Setup(hosts, hosts, apart=False), run)
    return json.loads(line)


def frame_latency(lab, build):
    """Seconds that a frame is on its way, without what it takes of the cores at
    both ends: of pushing and pulling a tensor of which only frames take time,
    a push and an answer."""
    with tempfile.NamedTemporaryFile("w", suffix=".csv") as profile:
        profile.write(f"name,shape,elements\nt,{TINY},{TINY}\n")
        profile.flush()
        row = push_pull(lab, build, profile.name, "none", 200)
    core_s = 1e-9 * row["io_cpu_ns"] / row["frames"]
    return 1e-6 * statistics.median(row["times_us"]) / 2 - 2 * core_s


def frame_costs(sparse, dense, hosts, core):
    """(seconds of a core for each frame sent or received, and for each of its
    bytes) of two rows in which as many frames go, between work on the same
    tensors. What `core` ("copy_s", "handover_s") has of that is left out: bytes
    that the server next door answers are copied in memory, and with each frame
    a job goes to the pool, of which the one who posts it has half the work."""
    def costs(row):
        # As many bytes go as come but for what replies take more.
        links = row["wire_bytes"] * (hosts - 1) / hosts
        others = (core["copy_s"] * row["wire_bytes"] / 2 / hosts
                  + core["handover_s"] * row["frames"] / 2)
        return row["frames"], links, 1e-9 * row["io_cpu_ns"] - others

    frames, few, sparse_s = costs(sparse)
    _, many, dense_s = costs(dense)
    if many <= few:
        raise SystemExit("grid: threshold sends no fewer bytes than none of "
                         "this profile, so what a frame takes is not known")
    # 0 would stand for "not known".
    byte_s = max(1e-15, (dense_s - sparse_s) / (many - few))
    return max(0, (sparse_s - few * byte_s) / frames), byte_s


def figures(lab, build, profile, iterations, core):
    """{field of the calibration: value} of the lab's link, which is not
    shaped, and its rate in bytes/s. `core` as for frame_costs. Frames are
    measured between work on the tensors of `profile`, as after it nothing of
    theirs is in a cache: among tiny tensors they cost a third."""
    perf = os.path.join(build, "perf", "telegrad-perf")
    small, large = measure(lab, perf, "bandwidth", "--size", "8,2M")
    latency, = measure(lab, perf, "latency", "--size", "8")
    # CPU time is that of both ends: a message is sent once and received once.
    message_s = 1e-9 * small["cpu_ns_per_byte"] * small["size_bytes"] / 2
    message_byte_s = 1e-9 * large["cpu_ns_per_byte"] / 2
    sparse, dense = (push_pull(lab, build, profile, codec, iterations)
                     for codec in ("threshold", "none"))
    frame_s, byte_s = frame_costs(sparse, dense, len(lab.hosts), core)
    latency_s = 1e-6 * latency["p50_us"]
    return {"latency_s": latency_s,
            "message_cpu_s": message_s,
            "cpu_s_per_byte": message_byte_s,
            "frame_latency_s": max(latency_s, frame_latency(lab, build)),
            "frame_cpu_s": max(message_s, frame_s),
            "frame_cpu_s_per_byte": byte_s}, 1e9 * large["algbw_GBps"]

"""A worker that is cut off from a server, though its heartbeats arrive, is named soon."""

import time

import hosts

hosts.enter([], required=True)

from cluster_case import ENDLESS, TRAIN, ClusterCase, main  # noqa: E402

SCHEDULER, SERVER_ADDRESS = "10.77.0.254", "10.77.0.253"


class CutPath(ClusterCase):
    def on(self, host, role, rank, bind):
        variables = {"DMLC_PS_ROOT_URI": SCHEDULER,
                     "DMLC_PS_ROOT_PORT": "9092", "DMLC_NUM_WORKER": "2",
                     "DMLC_NUM_SERVER": "1", "DMLC_ROLE": role,
                     "DMLC_WORKER_ID": rank}
        enter = ["nsenter", f"--net=/run/netns/{host}"] if host else []
        return self.start([*enter, "env",
                           *(f"{key}={value}"
                             for key, value in variables.items()),
                           TRAIN, *ENDLESS, "--transport", "tcp",
                           *self.far, "--bind", bind, "--out", f"out-{rank}"])

    def test_who_is_cut_off_is_named_and_not_the_server(self):
        hosts.run("ip", "addr", "add", f"{SERVER_ADDRESS}/24", "dev", "br0")
        self.far = self.far[2:]  # the secret
        runs = [self.on(None, "scheduler", "0", SCHEDULER),
                self.on(None, "server", "0", SERVER_ADDRESS),
                self.on("n1", "worker", "0", hosts.address("n1")),
                self.on("n2", "worker", "1", hosts.address("n2"))]
        self.wait_for_training(runs[2])
        hosts.run("ip", "-n", "n2", "route", "add", "blackhole",
                  f"{SERVER_ADDRESS}/32")
        start = time.monotonic()
        self.end(runs[2], 20)
        seconds = time.monotonic() - start
        self.assertLess(seconds, 14)
        (fatal,) = self.fatal_lines(self.output(runs[2]))
        self.assertEqual([name.split("@")[0] for name in fatal["dead"]],
                         ["worker/1"])
        # Whoever finds it first hangs up, which the other end may hear.
        self.assertRegex(fatal["message"], "(cut off|unreachable) from server/0")
        for run in (runs[0], runs[1]):
            self.end(run, 20)
        print(f"named after {seconds:.1f} s")


if __name__ == "__main__":
    main()

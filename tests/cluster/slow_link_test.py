"""A worker whose host is on a slow link is named as the one all wait for."""

import json
import re

import hosts

hosts.enter(["tc"], required=True)

from cluster_case import TRAIN, ClusterCase, main  # noqa: E402

STEPS = ["--network", "mlp", "--benchmark", "1", "--num-epochs", "1",
         "--num-batches", "30", "--transport", "tcp"]


class SlowLink(ClusterCase):
    def on(self, host, role, rank):
        variables = {"DMLC_PS_ROOT_URI": "10.77.0.254",
                     "DMLC_PS_ROOT_PORT": "9091", "DMLC_NUM_WORKER": "2",
                     "DMLC_NUM_SERVER": "1", "DMLC_ROLE": role,
                     "DMLC_WORKER_ID": rank}
        enter = ["nsenter", f"--net=/run/netns/{host}"] if host else []
        return self.start([*enter, "env",
                           *(f"{key}={value}"
                             for key, value in variables.items()),
                           TRAIN, *STEPS, *self.far, "--out", f"out-{rank}"])

    def test_its_worker_is_named(self):
        for command in (["tc"], ["ip", "netns", "exec", "n2", "tc"]):
            device = "vn2" if command == ["tc"] else "eth0"
            hosts.run(*command, "qdisc", "add", "dev", device, "root", "tbf",
                      "rate", "20mbit", "burst", "32k", "latency", "400ms")
        runs = [self.on(None, "scheduler", "0"), self.on(None, "server", "0"),
                self.on("n1", "worker", "0"), self.on("n2", "worker", "1")]
        for run in runs:
            self.end(run, 0)
        with open(f"{self.folder}/out-0/summary.json") as file:
            lines = json.load(file)[0]["stragglers"]
        named = [re.match(r"straggler (\S+): .* the median, (\w+): ",
                          line).groups() for line in lines]
        self.assertIn(("worker/1", "network"), named)
        self.assertIn(lines[0], self.output(runs[2]))


if __name__ == "__main__":
    main()

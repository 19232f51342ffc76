"""Hosts as network namespaces, each joined to one bridge by a shaped link.

Needs root, iproute2 and a kernel with veth, bridge and tbf; for several paths
htb, pfifo and u32.
"""
import os
import signal
import subprocess
import sys

MTU = 9000


def ip(*words, netns=None):
    prefix = ["ip", "-n", netns] if netns else ["ip"]
    subprocess.run([*prefix, *words], check=True)


def end_once(*_):
    """Ends as by an exception, which removes the hosts and what runs there."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(143)


class Lab:
    """`num_hosts` namespaces; `rate` as tc takes it ("1gbit"), None: unshaped.

    Both ends of each link are shaped: what a host sends and what it receives.
    A burst is a credit of each iteration: at most 1 % of the payload. Each host
    has `num_rails` devices, eth0 and so on, each on a bridge of its own. With
    `num_paths` (2, 4 or 8) a link is so many, each of that rate, of which a
    connection gets the one that its two ports hash to, as in a bond.
    """

    def __init__(self, num_hosts, rate, burst, num_rails=1, num_paths=1):
        self.rails = range(num_rails)
        self.num_paths = num_paths
        self.tag = f"tg{os.getpid()}"
        self.hosts = [f"{self.tag}h{i}" for i in range(num_hosts)]
        self.switch = f"{self.tag}s"
        self.rate = rate
        self.burst = burst
        self.made = []

    def __enter__(self):
        signal.signal(signal.SIGTERM, end_once)
        try:
            self._build()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *_):
        self._remove()

    def address(self, host, rail=0):
        return f"10.77.{rail}.{host + 1}"

    def command(self, host, words):
        return ["ip", "netns", "exec", self.hosts[host], *words]

    def sent_bytes(self):
        """What all hosts have sent over their links so far."""
        return sum(self._counter(host, f"eth{rail}", "tx_bytes")
                   for host in range(len(self.hosts)) for rail in self.rails)

    def _counter(self, host, device, name):
        path = f"/sys/class/net/{device}/statistics/{name}"
        text = subprocess.run(self.command(host, ["cat", path]), check=True,
                              capture_output=True, text=True).stdout
        return int(text)

    def _build(self):
        for name in [self.switch, *self.hosts]:
            ip("netns", "add", name)
            self.made.append(name)
            ip("link", "set", "lo", "up", netns=name)
        for rail in self.rails:
            bridge = f"br{rail}"
            ip("link", "add", bridge, "mtu", str(MTU), "type", "bridge",
               netns=self.switch)
            ip("link", "set", bridge, "up", netns=self.switch)
            for i in range(len(self.hosts)):
                self._join(i, rail, bridge)

    def _join(self, i, rail, bridge):
        host, device, port = self.hosts[i], f"eth{rail}", f"p{rail}h{i}"
        ip("link", "add", device, "mtu", str(MTU), "type", "veth", "peer",
           "name", port, "mtu", str(MTU), "netns", self.switch, netns=host)
        ip("link", "set", port, "master", bridge, "up", netns=self.switch)
        ip("addr", "add", f"{self.address(i, rail)}/24", "dev", device,
           netns=host)
        ip("link", "set", device, "up", netns=host)
        self._shape(host, device)
        self._shape(self.switch, port)

    def _shape(self, netns, device):
        if self.rate is None:
            return
        if self.num_paths > 1:
            return self._shape_paths(netns, device)
        self._tc(netns, "qdisc", device, "root", "tbf", "rate", self.rate,
                 "burst", self.burst, "latency", "50ms")

    def _shape_paths(self, netns, device):
        self._tc(netns, "qdisc", device, "root", "handle", "1:", "htb",
                 "default", "1", "r2q", "1000")
        for path in range(self.num_paths):
            class_id = f"1:{path + 1}"
            self._tc(netns, "class", device, "parent", "1:", "classid",
                     class_id, "htb", "rate", self.rate, "burst", self.burst,
                     "cburst", self.burst)
            self._tc(netns, "qdisc", device, "parent", class_id, "pfifo",
                     "limit", "100")
        # Connections begin at even ports; what is no IP keeps to the first path.
        mask = 2 * (self.num_paths - 1)
        for source in range(0, mask + 2, 2):
            for target in range(0, mask + 2, 2):
                path = (source ^ target) // 2
                self._tc(netns, "filter", device, "parent", "1:", "protocol",
                         "ip", "u32", "match", "ip", "sport", str(source),
                         hex(mask), "match", "ip", "dport", str(target),
                         hex(mask), "flowid", f"1:{path + 1}")

    def _tc(self, netns, what, device, *words):
        subprocess.run(["tc", "-n", netns, what, "add", "dev", device, *words],
                       check=True)

    def _remove(self):
        for name in reversed(self.made):
            subprocess.run(["ip", "netns", "delete", name], check=False)
        self.made = []

"""What passes connections on to a port, and what it does to them."""

import socket
import threading


class Proxy:
    """Passes all on as it is."""

    def __init__(self, to_port):
        self.to_port = to_port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def way(self, _who):
        """What becomes of data of the next connection's "client" or "server"."""
        return lambda data: data

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.to_port))
            except OSError:  # it tries again
                client.close()
                continue
            for way, source, sink in ((self.way("client"), client, server),
                                      (self.way("server"), server, client)):
                threading.Thread(target=self.pump, args=(source, sink, way),
                                 daemon=True).start()

    @staticmethod
    def pump(source, sink, way):
        try:
            while data := bytearray(source.recv(65536)):
                sink.sendall(way(data))
        except OSError:
            pass
        for each in (source, sink):
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        source.close()


class FlippingProxy(Proxy):
    """Flips a bit of each of the first connections.

    `flips`: (by whom, which byte), one for each connection.
    """

    def __init__(self, to_port, flips):
        self.flips = list(flips)
        super().__init__(to_port)

    def way(self, who):
        if who == "client":  # which is asked for first
            self.flip = self.flips.pop(0) if self.flips else (None, 0)
        left = self.flip[1] if self.flip[0] == who else -1

        def flipped(data):
            nonlocal left
            if 0 <= left < len(data):
                data[left] ^= 4
            left -= len(data)
            return data
        return flipped


class LateProxy(Proxy):
    """What servers say comes through while `is_open` is set."""

    def __init__(self, to_port):
        self.is_open = threading.Event()
        self.is_open.set()
        super().__init__(to_port)

    def way(self, who):
        def late(data):
            if who == "server":
                self.is_open.wait()
            return data
        return late

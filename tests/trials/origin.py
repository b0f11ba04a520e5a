"""An HTTP/1.1 origin for the trials.

/small    1 KiB
/large    4 MiB, written as the peer takes it
/accepted how many connections there have been
/slow     4 MiB, 8 KiB every 50 ms
/echo     101, then everything comes back
/hang/N   never answers; /lost tells when each such connection ended
Anything with a Content-Length is read to its end and answered like /small.
"""

import asyncio
import json
import sys
import time

SMALL = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1024\r\n\r\n" + b"s" * 1024
LARGE_BYTES = 4 * 1024 * 1024
PIECE = b"l" * 65536
ACCEPTED = {"connections": 0}
HANGING = {"waiting": 0, "lost": {}}


class Origin(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
        ACCEPTED["connections"] += 1
        self.tunnel = False
        self.inbox = b""
        self.body_left = 0
        self.large_left = 0
        self.paused = False
        self.hanging = None

    def data_received(self, data):
        if self.tunnel:
            self.transport.write(data)
            return
        self.inbox += data
        while self.inbox:
            if self.body_left:
                taken = min(self.body_left, len(self.inbox))
                self.inbox = self.inbox[taken:]
                self.body_left -= taken
                if self.body_left == 0:
                    self.transport.write(SMALL)
                continue
            head, found, rest = self.inbox.partition(b"\r\n\r\n")
            if not found:
                return
            self.inbox = rest
            self.answer(head)

    def answer(self, head):
        path = head.split(b" ", 2)[1]
        for line in head.lower().split(b"\r\n")[1:]:
            if line.startswith(b"content-length:"):
                self.body_left = int(line.partition(b":")[2])
        if self.body_left:
            return
        if path == b"/large":
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % LARGE_BYTES)
            self.large_left = LARGE_BYTES
            self.write_large()
        elif path.startswith(b"/hang"):
            self.hanging = path.decode()
            HANGING["waiting"] += 1
        elif path == b"/echo":
            self.transport.write(
                b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"
            )
            self.tunnel = True
        elif path == b"/slow":
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % LARGE_BYTES)
            self.write_slowly(LARGE_BYTES)
        elif path in (b"/lost", b"/accepted"):
            body = json.dumps(HANGING if path == b"/lost" else ACCEPTED).encode()
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
            self.transport.write(body)
        else:
            self.transport.write(SMALL)

    def write_large(self):
        while self.large_left and not self.paused and not self.transport.is_closing():
            self.transport.write(PIECE)
            self.large_left -= len(PIECE)

    def write_slowly(self, left):
        piece = PIECE[: min(8192, left)]
        if piece and not self.transport.is_closing():
            self.transport.write(piece)
            again = asyncio.get_running_loop().call_later
            again(0.05, self.write_slowly, left - len(piece))

    def pause_writing(self):
        self.paused = True

    def resume_writing(self):
        self.paused = False
        self.write_large()

    def connection_lost(self, error):
        self.large_left = 0
        if self.hanging:
            HANGING["lost"][self.hanging] = time.monotonic()


async def main(port):
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Origin, "127.0.0.1", port, backlog=4096)
    print("ready", flush=True)
    await server.serve_forever()


asyncio.run(main(int(sys.argv[1])))

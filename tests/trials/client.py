"""A raw HTTP/1.1 client on asyncio: no connection pool that could hide a lost request."""

import asyncio
import select
import time

GET = b"GET /small HTTP/1.1\r\nHost: trial\r\n\r\n"


class Ended(Exception):
    """The connection ended without a whole answer; `begun` tells whether there was a part of one."""

    def __init__(self, begun):
        super().__init__(f"no whole answer, begun: {begun}")
        self.begun = begun


class Connection(asyncio.Protocol):
    """One keep-alive connection with one request at a time."""

    def __init__(self):
        self.inbox = b""
        self.answer = None
        self.open = False
        self.closes = False

    @classmethod
    async def to(cls, port):
        loop = asyncio.get_running_loop()
        return (await loop.create_connection(cls, "127.0.0.1", port))[1]

    def connection_made(self, transport):
        self.transport = transport
        self.open = True

    async def get(self):
        """Sends a request; the status of the whole answer and the seconds it took."""
        if not self.open:
            raise Ended(False)
        self.answer = asyncio.get_running_loop().create_future()
        self.inbox = b""
        began = time.perf_counter()
        self.transport.write(GET)
        status = await self.answer
        return status, time.perf_counter() - began

    def alive(self):
        """Whether the proxy has not closed it yet: also what the event loop has yet to see counts,
        as every careful client looks before it sends on a connection that was idle."""
        if not self.open:
            return False
        look = select.poll()
        look.register(self.transport.get_extra_info("socket").fileno(), select.POLLIN)
        return not look.poll(0)

    def data_received(self, data):
        self.inbox += data
        head, found, body = self.inbox.partition(b"\r\n\r\n")
        if not found or self.answer is None or self.answer.done():
            return
        lower = head.lower()
        length = lower.partition(b"\r\ncontent-length:")[2].split(b"\r\n", 1)[0]
        if len(body) >= int(length):
            self.closes = b"\r\nconnection: close" in lower
            self.answer.set_result(int(head.split(b" ", 2)[1]))

    def eof_received(self):
        return False

    def connection_lost(self, error):
        self.open = False
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(Ended(bool(self.inbox)))

    def close(self):
        self.transport.close()

"""The driver ladder where io_uring is refused: by seccomp, and by the kernel's switch."""

import pathlib
import sys

from harness import HERE, Failed, Proxy, Skipped, check, origin

SWITCH = pathlib.Path("/proc/sys/kernel/io_uring_disabled")


def refused_setup(driver):
    return under(driver, denied("io_uring_setup"))


def refused_enter(driver):
    return under(driver, denied("io_uring_enter"))


def switched_off(driver):
    """With kernel.io_uring_disabled = 2. It is the whole machine's, so it is put back at once."""
    if driver == "epoll":
        raise Skipped("epoll does not ask the kernel for a ring")
    try:
        before = SWITCH.read_text()
        SWITCH.write_text("2")
    except OSError as error:
        raise Skipped(f"kernel.io_uring_disabled cannot be set: {error.strerror}") from None
    try:
        return under(driver, [])
    finally:
        SWITCH.write_text(before)


def denied(name):
    return [sys.executable, str(HERE / "denied.py"), name]


def under(driver, launcher):
    """`auto` falls to epoll and serves; `io_uring` refuses to start and says why."""
    with origin() as origin_port:
        if driver == "epoll":
            with Proxy("epoll", origin_port, launcher=launcher) as proxy:
                served(proxy)
                return "asked for, serves"
        with Proxy("auto", origin_port, launcher=launcher) as proxy:
            served(proxy)
            worker = proxy.status()["workers"][0]
        check(worker["driver"] == "epoll", f"auto took {worker['driver']}")
        reason = worker["driver_reason"]
        check("io_uring does not work here" in reason, f"the reason is: {reason}")
        check("not permitted" in reason, f"the reason does not name the refusal: {reason}")
        strict = Proxy("io_uring", origin_port, launcher=launcher).start()
        try:
            code = strict.wait(20)
        except Failed:
            strict.__exit__()
            raise
        strict.__exit__()
        check(code == 1, f"driver = io_uring ended with {code}: {strict.log()}")
        check("io_uring does not work here" in strict.log(), f"it says: {strict.log()}")
        check("not permitted" in strict.log(), f"it says: {strict.log()}")
        return "auto serves on epoll, io_uring ends with 1"


def served(proxy):
    for _ in range(100):
        status, body = proxy.get("/small")
        check(status == 200 and len(body) == 1024, f"answered {status}")

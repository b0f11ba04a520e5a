"""Runs a command under a seccomp filter that refuses system calls: denied.py NAME[,NAME] COMMAND...

x86-64 and aarch64 have the same numbers for the calls that are named here.
"""

import ctypes
import errno
import os
import struct
import sys

NUMBERS = {"io_uring_setup": 425, "io_uring_enter": 426}
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
# Classic BPF: load a word of seccomp_data, jump if equal, return.
LOAD, JUMP_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def instruction(code, value, on_true=0, on_false=0):
    return struct.pack("HBBI", code, on_true, on_false, value)


def refuse(names):
    """Refuses these calls with EPERM, for this process and all that it starts."""
    steps = [instruction(LOAD, 0)]
    for position, name in enumerate(names):
        steps.append(instruction(JUMP_EQUAL, NUMBERS[name], on_true=len(names) - position))
    steps.append(instruction(RETURN, ALLOW))
    steps.append(instruction(RETURN, REFUSE | errno.EPERM))
    text = b"".join(steps)
    program = Program(len(steps), text)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "PR_SET_NO_NEW_PRIVS")
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0):
        raise OSError(ctypes.get_errno(), "PR_SET_SECCOMP")


if __name__ == "__main__":
    refuse(sys.argv[1].split(","))
    os.execvp(sys.argv[2], sys.argv[2:])

"""The kernel refuses chosen system calls of one thread, as a full or dying disk does: no root, no mock; Linux only.

A filter (seccomp-BPF) is never taken off again, but its thread ends: the process goes on after it as it was.
"""

import ctypes
import platform
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

T = TypeVar("T")

ARCHES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # <linux/audit.h>
CALLS = {  # <asm/unistd.h>; the numbers of all calls that do the same
    "openat": {"x86_64": (257,), "aarch64": (56,)},
    "close": {"x86_64": (3,), "aarch64": (57,)},
    "stat": {"x86_64": (4, 6, 262, 332), "aarch64": (79, 291)},
    "pread": {"x86_64": (17, 295, 327), "aarch64": (67, 69, 286)},
    "pwrite": {"x86_64": (18,), "aarch64": (68,)},
    "fallocate": {"x86_64": (285,), "aarch64": (47,)},
    "fsync": {"x86_64": (74,), "aarch64": (82,)},
    "fcntl": {"x86_64": (72,), "aarch64": (25,)},
    "mkdir": {"x86_64": (83, 258), "aarch64": (34,)},
    "rename": {"x86_64": (82, 264, 316), "aarch64": (38, 276)},
    "unlink": {"x86_64": (84, 87, 263), "aarch64": (35,)},
}
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 22, 38, 2
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
LOAD, RETURN, IF_EQUAL, IF_GREATER, IF_AT_LEAST, IF_ANY_BIT = 0x20, 0x06, 0x15, 0x25, 0x35, 0x45
NUMBER, ARCH, ARGUMENTS = 0, 4, 16  # where they stand in struct seccomp_data

Instruction = tuple[int, int, int, int]  # code, how many to skip if true, how many if false, operand


class Refusal(NamedTuple):
    """A system call fails with an error: always, or with one of the flags of `openat`, or from an offset of the file on."""

    call: str
    errno: int
    flags: int = 0
    offset: int = 0


def in_a_thread(work: Callable[..., T], *args: object) -> T:
    """Do `work`, which may `refuse`, in a thread of its own, and return what it gives."""
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(work, *args).result()


def refuse(*refusals: Refusal) -> None:
    """From now on, the kernel answers the system calls of this thread so."""
    machine = platform.machine()
    program: list[Instruction] = [(LOAD, 0, 0, ARCH), (IF_EQUAL, 1, 0, ARCHES[machine]), (RETURN, 0, 0, ALLOW)]
    for refusal in refusals:
        for number in CALLS[refusal.call][machine]:
            answer = [*_conditions(refusal), (RETURN, 0, 0, ERRNO | refusal.errno)]
            program += [(LOAD, 0, 0, NUMBER), (IF_EQUAL, 0, len(answer), number), *answer]
    _install([*program, (RETURN, 0, 0, ALLOW)])


def _conditions(refusal: Refusal) -> list[Instruction]:
    """Skip the one instruction after these unless flags and offset are those of the refusal."""
    if refusal.flags:
        return [(LOAD, 0, 0, ARGUMENTS + 8 * 2), (IF_ANY_BIT, 0, 1, refusal.flags)]
    if refusal.offset:  # 64 bits, of which the upper half stands 4 bytes further
        low = ARGUMENTS + 8 * 3
        return [(LOAD, 0, 0, low + 4), (IF_GREATER, 2, 0, 0), (LOAD, 0, 0, low), (IF_AT_LEAST, 0, 1, refusal.offset)]
    return []


def _install(program: list[Instruction]) -> None:
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *instruction) for instruction in program))
    described = ctypes.create_string_buffer(struct.pack("HP", len(program), ctypes.addressof(code)))
    _prctl(PR_SET_NO_NEW_PRIVS, 1, 0)
    _prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(described))


def _prctl(option: int, second: int, third: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, *(ctypes.c_ulong(value) for value in (second, third, 0, 0))) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")

"""Threads, children, other programs and many descriptors on one file that is opened past all caches.

descriptors.py FILE COPY: both have the same bytes; COPY is read to compare.
"""

import ctypes
import errno
import os
import subprocess
import sys
import threading

path, copy = sys.argv[1:]
expected = open(copy, "rb").read()
BLOCK = 65536


def fails(number, run):
    try:
        run()
    except OSError as error:
        assert error.errno == number, error
    else:
        raise AssertionError("it was done")


fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
wrong = []


def read_some(first):
    for at in range(first * BLOCK, len(expected), 4 * BLOCK):
        if os.pread(fd, BLOCK, at) != expected[at : at + BLOCK]:
            wrong.append(at)


threads = [threading.Thread(target=read_some, args=(first,)) for first in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not wrong, wrong

# Threads that read where the program is: each block is had once.
os.lseek(fd, 0, os.SEEK_SET)
blocks, lock = [], threading.Lock()


def read_next():
    while True:
        block = os.read(fd, BLOCK)
        if not block:
            return
        with lock:
            blocks.append(block)


threads = [threading.Thread(target=read_next) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
parts = [expected[at : at + BLOCK] for at in range(0, len(expected), BLOCK)]
assert sorted(blocks) == sorted(parts)

# Parent and child in turn.
os.lseek(fd, 0, os.SEEK_SET)
assert os.read(fd, 1000) == expected[:1000]
to_child, to_parent = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    right = os.read(fd, 1000) == expected[1000:2000]
    os.write(to_parent[1], b"x")
    os.read(to_child[0], 1)
    right = right and os.read(fd, 1000) == expected[3000:4000]
    # A thread of the child, and a child of it.
    told = []
    thread = threading.Thread(target=lambda: told.append(os.pread(fd, 10, 5)))
    thread.start()
    thread.join()
    right = right and told == [expected[5:15]]
    grandchild = os.fork()
    if grandchild == 0:
        os._exit(0 if os.pread(fd, 10, 7) == expected[7:17] else 1)
    right = right and os.waitpid(grandchild, 0)[1] == 0
    os._exit(0 if right else 1)
os.read(to_parent[0], 1)
assert os.read(fd, 1000) == expected[2000:3000]
os.write(to_child[1], b"x")
assert os.waitpid(child, 0)[1] == 0
assert os.read(fd, 1000) == expected[4000:5000]

# Children while threads read.
stop = threading.Event()


def read_on():
    while not stop.is_set():
        assert os.pread(fd, BLOCK, BLOCK) == expected[BLOCK : 2 * BLOCK]


threads = [threading.Thread(target=read_on) for _ in range(3)]
for thread in threads:
    thread.start()
for _ in range(20):
    child = os.fork()
    if child == 0:
        os._exit(0 if os.pread(fd, 1000, 500) == expected[500:1500] else 1)
    assert os.waitpid(child, 0)[1] == 0
stop.set()
for thread in threads:
    thread.join()

# Other programs, without the library and with it.
os.lseek(fd, 8192, os.SEEK_SET)
read = ["dd", "bs=4096", "count=1", "status=none"]
for environment in [{"PATH": os.environ["PATH"]}, None]:
    at = os.lseek(fd, 0, os.SEEK_CUR)
    told = subprocess.run(read, stdin=fd, stdout=subprocess.PIPE, env=environment, check=True)
    assert told.stdout == expected[at : at + 4096]
assert os.lseek(fd, 0, os.SEEK_CUR) == 16384

# What closes all, and what closes one after the other.
os.closerange(3, fd)
os.closerange(fd + 1, 1 << 16)
assert os.pread(fd, 100, 7) == expected[7:107]
for other in [*range(3, fd), *range(fd + 1, 1 << 15)]:
    fails(errno.EBADF, lambda: os.close(other))
assert os.pread(fd, 100, 9) == expected[9:109]
libc = ctypes.CDLL(None, use_errno=True)
assert libc.close_range(fd + 1, -1, 0) == 0
assert os.pread(fd, 100, 11) == expected[11:111]
os.dup2(fd, 50)
os.close(fd)
os.lseek(50, 10, os.SEEK_SET)
assert os.read(50, 10) == expected[10:20]
one, two = bytearray(5), bytearray(10)
assert os.readv(50, [one, two]) == 15 and one + two == expected[20:35]
assert os.lseek(50, 0, os.SEEK_CUR) == 35
assert os.preadv(50, [one, two], len(expected) - 7) == 7
assert os.pread(50, 100, len(expected)) == b"" and os.pread(50, 100, 1 << 40) == b""
assert libc.pread(50, None, ctypes.c_size_t(10), ctypes.c_long(0)) == -1
assert ctypes.get_errno() == errno.EFAULT
# Replaced by a call that the library does not see.
other = os.open(copy, os.O_RDONLY)
SYS_DUP3 = {"x86_64": 292, "aarch64": 24}[os.uname().machine]
assert libc.syscall(SYS_DUP3, other, 50, 0) == 50
assert os.pread(50, 10, 3) == expected[3:13]
os.close(50)
fails(errno.EBADF, lambda: os.read(50, 1))
print("right")

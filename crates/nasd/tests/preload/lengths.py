"""What is written past all caches is told by all that tell of a file: lengths.py DIRECTORY"""

import ctypes
import errno
import mmap
import os
import sys

path = os.path.join(sys.argv[1], "lengths")


def fails(number, run):
    try:
        run()
    except OSError as error:
        assert error.errno == number, error
    else:
        raise AssertionError("it was done")


fd = os.open(path, os.O_RDWR | os.O_DIRECT | os.O_CREAT | os.O_TRUNC)
assert os.write(fd, b"abc") == 3
assert os.fstat(fd).st_size == 3
assert os.writev(fd, [b"de", b"f"]) == 3
assert os.lseek(fd, 0, os.SEEK_END) == 6 and os.lseek(fd, -1, os.SEEK_END) == 5
assert os.read(fd, 10) == b"f"
assert os.pwrite(fd, b"Z", 100) == 1
assert os.fstat(fd).st_size == 101
os.ftruncate(fd, 50)
assert os.pread(fd, 100, 0) == b"abcdef" + b"\0" * 44
assert os.fstat(fd).st_size == 50
os.posix_fallocate(fd, 0, 200)
assert os.fstat(fd).st_size == 200 and os.pread(fd, 1000, 190) == b"\0" * 10
os.pwritev(fd, [b"1", b"22", b"333"], 194)
with mmap.mmap(fd, 0, access=mmap.ACCESS_READ) as memory:
    assert memory[194:] == b"122333"
os.pwrite(fd, b"4444", 200)
out = os.open(path + ".copy", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
at, sent = 0, 1
while sent:
    sent = os.sendfile(out, fd, at, 1000)
    at += sent
assert at == 204 and os.pread(out, 10, 198) == b"334444"
fails(errno.EINVAL, lambda: os.pwrite(fd, b"x", -1))
os.fsync(fd)
os.pwrite(fd, b"5", 204)
os.fdatasync(fd)
os.close(fd)
assert os.stat(path).st_size == 205 and open(path, "rb").read()[194:] == b"12233344445"
# What was written just before is there when it is mapped into memory, whether the length was asked for before, or not at all.
fd = os.open(path + ".asked", os.O_RDWR | os.O_DIRECT | os.O_CREAT | os.O_TRUNC)
assert os.fstat(fd).st_size == 0
os.write(fd, b"9" * 10000)
with mmap.mmap(fd, 0, access=mmap.ACCESS_READ) as memory:
    assert memory[:] == b"9" * 10000
os.close(fd)
fd = os.open(path + ".not-asked", os.O_RDWR | os.O_DIRECT | os.O_CREAT | os.O_TRUNC)
os.write(fd, b"8" * 10000)
c = ctypes.CDLL(None)
c.mmap.restype = ctypes.c_void_p
c.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
at = c.mmap(None, 10000, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
assert ctypes.string_at(at, 10000) == b"8" * 10000
os.close(fd)
# And so it is if older pages were in the cache.
with open(path + ".cached", "wb") as file:
    file.write(b"7" * 5000)
with open(path + ".cached", "rb") as file:
    assert file.read() == b"7" * 5000
    fd = os.open(path + ".cached", os.O_RDWR | os.O_DIRECT)
    assert os.fstat(fd).st_size == 5000
    os.pwrite(fd, b"6" * 10000, 0)
    with mmap.mmap(fd, 0, access=mmap.ACCESS_READ) as memory:
        assert memory[:] == b"6" * 10000
    os.close(fd)
# What is written is read by others while it is open.
fd = os.open(path, os.O_WRONLY | os.O_DIRECT)
fails(errno.EBADF, lambda: os.pread(fd, 1, 0))
os.pwrite(fd, b"6", 204)
os.fsync(fd)
assert open(path, "rb").read()[204:] == b"6"
child = os.fork()
if child == 0:
    os.pwrite(fd, b"7", 205)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
os.close(fd)
assert open(path, "rb").read()[204:] == b"67"
# To the end, wherever that is: not by bulk.
fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_DIRECT)
os.write(fd, b"8")
os.close(fd)
assert open(path, "rb").read()[204:] == b"678"
print("right")

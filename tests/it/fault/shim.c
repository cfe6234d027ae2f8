// Stands between the service and the C library (LD_PRELOAD), and fails or shifts what a shared file of
// numbers says: see shim.rs, which names the same numbers in the same order.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

struct faults {
    int64_t sync_error;    // errno of fsync and fdatasync, 0 for none
    int64_t write_error;   // errno of writes
    int64_t open_error;    // errno of opening for writing
    int64_t clock_seconds; // added to the real-time clock
    int64_t torn;          // whether a write that fails leaves its first half behind
    int64_t failed;        // counted here: calls that were made to fail
};

static volatile struct faults *faults;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("FAULTS");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *at = mmap(NULL, sizeof(struct faults), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (at != MAP_FAILED)
        faults = at;
    close(file);
}

static int is_database(const char *path) { return strstr(path, "idsvc.redb") != NULL; }

static int concerns(int file) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return is_database(path);
}

static int fails(int64_t error) {
    __atomic_add_fetch((int64_t *)&faults->failed, 1, __ATOMIC_SEQ_CST);
    errno = (int)error;
    return -1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

int fsync(int file) {
    if (faults && faults->sync_error && concerns(file))
        return fails(faults->sync_error);
    return REAL(fsync)(file);
}

int fdatasync(int file) {
    if (faults && faults->sync_error && concerns(file))
        return fails(faults->sync_error);
    return REAL(fdatasync)(file);
}

ssize_t pwrite64(int file, const void *bytes, size_t count, off64_t offset) {
    if (faults && faults->write_error && concerns(file)) {
        if (faults->torn && count > 1)
            REAL(pwrite64)(file, bytes, count / 2, offset);
        return fails(faults->write_error);
    }
    return REAL(pwrite64)(file, bytes, count, offset);
}

int ftruncate64(int file, off64_t length) {
    if (faults && faults->write_error && concerns(file))
        return fails(faults->write_error);
    return REAL(ftruncate64)(file, length);
}

int open64(const char *path, int flags, ...) {
    __builtin_va_list rest;
    __builtin_va_start(rest, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? __builtin_va_arg(rest, mode_t) : 0;
    __builtin_va_end(rest);
    if (faults && faults->open_error && (flags & (O_WRONLY | O_RDWR)) && is_database(path))
        return fails(faults->open_error);
    return REAL(open64)(path, flags, mode);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static __typeof__(&clock_gettime) real;
    if (!real)
        real = REAL(clock_gettime);
    int done = real(clock, now);
    if (done == 0 && faults && clock == CLOCK_REALTIME)
        now->tv_sec += faults->clock_seconds;
    return done;
}

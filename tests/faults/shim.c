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
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

struct faults {
    int64_t sync_error;    // errno of fsync and fdatasync, 0 for none
    int64_t write_error;   // errno of writes
    int64_t open_error;    // errno of opening for writing
    int64_t clock_seconds; // added to the real-time clock
    int64_t torn;          // whether a write that fails leaves its first half behind
    int64_t sync_lies;     // whether syncs succeed without having done anything
    int64_t journal_error; // errno of writes and syncs of the journal alone
    int64_t hangs;         // whether syncs do not return for as long as it stays
    int64_t no_ipv6;       // whether there are no sockets of IPv6
    int64_t failed;        // counted here: calls that were made to fail
};

static volatile struct faults *faults;

// What was there before each write that has not been synced, for a test that cuts the power: offset, length, bytes,
// in whole sectors; before the first that makes the file longer its length, and WAS_LENGTH in place of the bytes. One file
// for the database, one for its journal: each is synced by itself.
enum { NEITHER = -1, DATABASE, JOURNAL, FILES };
static int undo[FILES] = {-1, -1};
#define SECTOR 512
#define WAS_LENGTH UINT64_MAX

// The names of those that were made since their folder was synced, each with a line feed, and that folder.
static int undo_names = -1;
static struct stat folder;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("FAULTS");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *at = mmap(NULL, sizeof(struct faults), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (at != MAP_FAILED)
        faults = at;
    close(file);
    const char *names[FILES] = {getenv("UNDO"), getenv("UNDO_JOURNAL")};
    for (int which = 0; which < FILES; which++)
        if (names[which])
            undo[which] = open(names[which], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (getenv("UNDO_NAMES"))
        undo_names = open(getenv("UNDO_NAMES"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static int which(const char *path) {
    if (!strstr(path, "idsvc.redb"))
        return NEITHER;
    return strstr(path, "idsvc.redb.journal") ? JOURNAL : DATABASE;
}

static int which_file(int file) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return NEITHER;
    path[length] = 0;
    return which(path);
}

static int concerns(int file) { return which_file(file) != NEITHER; }

static int fails(int64_t error) {
    __atomic_add_fetch((int64_t *)&faults->failed, 1, __ATOMIC_SEQ_CST);
    errno = (int)error;
    return -1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static void remember_name(const char *path) {
    char parent[4096];
    const char *end = strrchr(path, '/');
    snprintf(parent, sizeof parent, "%.*s", end ? (int)(end - path) : 1, end ? path : ".");
    if (stat(parent, &folder) < 0 || dprintf(undo_names, "%s\n", path) < 0)
        abort();
}

static void forget_names(int file) {
    struct stat synced;
    if (fstat(file, &synced) == 0 && synced.st_dev == folder.st_dev && synced.st_ino == folder.st_ino)
        REAL(ftruncate64)(undo_names, 0);
}

static int sync_by(int (*real)(int), int file) {
    int found = faults ? which_file(file) : NEITHER;
    if (found == NEITHER) {
        int done = real(file);
        if (done == 0 && undo_names >= 0 && !faults->sync_lies)
            forget_names(file);
        return done;
    }
    while (faults->hangs)
        usleep(1000);
    if (faults->sync_error)
        return fails(faults->sync_error);
    if (found == JOURNAL && faults->journal_error)
        return fails(faults->journal_error);
    int done = real(file);
    if (done == 0 && undo[found] >= 0 && !faults->sync_lies)
        REAL(ftruncate64)(undo[found], 0);
    return done;
}

int fsync(int file) { return sync_by(REAL(fsync), file); }

int fdatasync(int file) { return sync_by(REAL(fdatasync), file); }

static void remember_length(int file, int undo, off64_t length) {
    struct stat before;
    if (fstat(file, &before) < 0)
        abort();
    uint64_t record[2] = {(uint64_t)before.st_size, WAS_LENGTH};
    if (length > before.st_size && write(undo, record, sizeof record) < 0)
        abort();
}

static void remember(int file, int undo, size_t count, off64_t offset) {
    remember_length(file, undo, offset + (off64_t)count);
    off64_t from = offset / SECTOR * SECTOR;
    uint64_t length = ((uint64_t)(offset - from) + count + SECTOR - 1) / SECTOR * SECTOR;
    char *record = calloc(1, 16 + length);
    if (!record)
        abort();
    memcpy(record, &from, 8);
    memcpy(record + 8, &length, 8);
    // The program may have opened it for writing only.
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    int reader = REAL(open64)(link, O_RDONLY | O_CLOEXEC);
    if (REAL(pread64)(reader, record + 16, length, from) < 0 || write(undo, record, 16 + length) < 0)
        abort();
    close(reader);
    free(record);
}

ssize_t pwrite64(int file, const void *bytes, size_t count, off64_t offset) {
    int found = faults ? which_file(file) : NEITHER;
    if (found != NEITHER && faults->write_error) {
        if (faults->torn && count > 1)
            REAL(pwrite64)(file, bytes, count / 2, offset);
        return fails(faults->write_error);
    }
    if (found == JOURNAL && faults->journal_error)
        return fails(faults->journal_error);
    if (found != NEITHER && undo[found] >= 0)
        remember(file, undo[found], count, offset);
    return REAL(pwrite64)(file, bytes, count, offset);
}

int ftruncate64(int file, off64_t length) {
    if (faults && faults->write_error && concerns(file))
        return fails(faults->write_error);
    int found = faults ? which_file(file) : NEITHER;
    if (found != NEITHER && undo[found] >= 0)
        remember_length(file, undo[found], length);
    return REAL(ftruncate64)(file, length);
}

int open64(const char *path, int flags, ...) {
    __builtin_va_list rest;
    __builtin_va_start(rest, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? __builtin_va_arg(rest, mode_t) : 0;
    __builtin_va_end(rest);
    if (faults && faults->open_error && (flags & (O_WRONLY | O_RDWR)) && which(path) != NEITHER)
        return fails(faults->open_error);
    int is_new = undo_names >= 0 && (flags & O_CREAT) && which(path) != NEITHER && access(path, F_OK) < 0;
    int file = REAL(open64)(path, flags, mode);
    if (is_new && file >= 0)
        remember_name(path);
    return file;
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

int socket(int domain, int type, int protocol) {
    if (faults && faults->no_ipv6 && domain == AF_INET6) {
        errno = EAFNOSUPPORT;
        return -1;
    }
    return REAL(socket)(domain, type, protocol);
}

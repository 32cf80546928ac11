/* Adds nanoseconds from a file, which may change at any time, to the wall clock of one process.
 * The monotonic clocks are left alone: no server can be told that time runs backwards there. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int (*real)(clockid_t, struct timespec *);
static const volatile int64_t *shift;

__attribute__((constructor)) static void prepare(void) {
    const char *path = getenv("PALISADE_CLOCK_SHIFT");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file >= 0) {
        void *page = mmap(NULL, sizeof *shift, PROT_READ, MAP_SHARED, file, 0);
        if (page != MAP_FAILED) shift = page;
        close(file);
    }
    *(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
}

int clock_gettime(clockid_t id, struct timespec *now) {
    /* Before the constructor an allocator may ask already: then the kernel answers. */
    int failed = real ? real(id, now) : (int)syscall(SYS_clock_gettime, id, now);
    if (!failed && shift && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
        int64_t nanos = now->tv_nsec + *shift % 1000000000;
        now->tv_sec += *shift / 1000000000 + (nanos >= 1000000000) - (nanos < 0);
        now->tv_nsec = (nanos + 1000000000) % 1000000000;
    }
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec precise;
    (void)zone;
    int failed = clock_gettime(CLOCK_REALTIME, &precise);
    if (!failed && now) *now = (struct timeval){precise.tv_sec, precise.tv_nsec / 1000};
    return failed;
}

time_t time(time_t *now) {
    struct timespec precise;
    if (clock_gettime(CLOCK_REALTIME, &precise)) return -1;
    if (now) *now = precise.tv_sec;
    return precise.tv_sec;
}

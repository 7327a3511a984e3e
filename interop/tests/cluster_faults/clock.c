// Lends a program another wall clock: ahead by so many seconds as the file says whose name is in OTHER_CLOCK. All other clocks stay as they are, and
// so do timers: libfaketime moves absolute timers of CLOCK_BOOTTIME too.
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long ahead(void) {
    char text[32] = "";
    const char *name = getenv("OTHER_CLOCK");
    int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return 0;
    ssize_t n = read(file, text, sizeof text - 1);
    close(file);
    return n > 0 ? atol(text) : 0;
}

int clock_gettime(clockid_t id, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, id, now);
    if (!failed && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) now->tv_sec += ahead();
    return failed;
}

/* An NVML that says what its environment tells it to, or hangs, or crashes. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7 };

static const char *play(void) {
    const char *play = getenv("TEST_NVML");
    return play ? play : "";
}

int nvmlInit_v2(void) {
    if (strcmp(play(), "hang") == 0)
        for (;;) sleep(60);
    if (strcmp(play(), "crash") == 0) abort();
    return SUCCESS;
}
int nvmlShutdown(void) { return SUCCESS; }
int nvmlSystemGetDriverVersion(char *version, unsigned length) {
    strncpy(version, "570.86.15", length);
    return SUCCESS;
}
int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = 2;
    return SUCCESS;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = (void *)(unsigned long)(0x100 + index);
    return SUCCESS;
}
int nvmlDeviceGetName(void *device, char *name, unsigned length) {
    strncpy(name, "NVIDIA X1", length);
    return SUCCESS;
}
struct memory { unsigned version; unsigned long long total, reserved, free, used; };
int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory *memory) {
    if (strcmp(play(), "shared-memory") == 0) return NOT_SUPPORTED;
    memory->total = 24ULL << 30;
    memory->free = 20ULL << 30;
    return SUCCESS;
}
/* One process on the first device, two on the second. */
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, void *processes) {
    *count = 1 + ((unsigned long)device & 1);
    return INSUFFICIENT_SIZE;
}
/* Idle on the first device, too hot on the second. */
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons) {
    *reasons = (unsigned long)device & 1 ? 0x40 : 0x1;
    return SUCCESS;
}

/* An NVML that says what the file named by TEST_NVML_STATE, or else TEST_NVML, tells it to. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7, GPU_IS_LOST = 15 };

/* Words, read anew at each question, so that a driver can fall ill in mid-sweep. */
static int plays(const char *word) {
    static char words[256];
    const char *said = getenv("TEST_NVML");
    const char *path = getenv("TEST_NVML_STATE");
    FILE *state = path ? fopen(path, "r") : NULL;
    snprintf(words, sizeof words, "%s", said ? said : "");
    if (state) {
        size_t length = fread(words, 1, sizeof words - 1, state);
        words[length] = 0;
        fclose(state);
    }
    return strstr(words, word) != NULL;
}

static unsigned number_of(void *device) { return (unsigned)((unsigned long)device & 1); }

int nvmlInit_v2(void) {
    if (plays("hang"))
        for (;;) sleep(60);
    if (plays("crash")) abort();
    return SUCCESS;
}
int nvmlShutdown(void) { return SUCCESS; }
int nvmlSystemGetDriverVersion(char *version, unsigned length) {
    strncpy(version, plays("newer") ? "580.1" : "570.86.15", length);
    return SUCCESS;
}
int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = 2;
    return SUCCESS;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    if (plays("fallen") && index == 0) return GPU_IS_LOST;
    *device = (void *)(unsigned long)(0x100 + index);
    return SUCCESS;
}
int nvmlDeviceGetName(void *device, char *name, unsigned length) {
    strncpy(name, plays("mixed") && number_of(device) ? "NVIDIA X2" : "NVIDIA X1", length);
    return SUCCESS;
}
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length) {
    strncpy(uuid, number_of(device) ? "GPU-bb11" : "GPU-aa11", length);
    return SUCCESS;
}
struct memory { unsigned version; unsigned long long total, reserved, free, used; };
int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory *memory) {
    if (plays("shared-memory")) return NOT_SUPPORTED;
    memory->total = 24ULL << 30;
    memory->free = (plays("lost") ? 12ULL : 20ULL) << 30;
    return SUCCESS;
}
struct process { unsigned pid; unsigned long long used; unsigned instance, compute; };
static int list(unsigned first, unsigned running, unsigned *count, struct process *processes) {
    unsigned room = *count;
    *count = running;
    if (running > room) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < running; i++)
        processes[i] = (struct process){first + i, 1 << 30, ~0u, ~0u};
    return SUCCESS;
}
/* One process on the first device, two on the second; that of a desktop on the first. */
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process *processes) {
    if (plays("desktop") && number_of(device) == 0) return list(4100000, 1, count, processes);
    unsigned running = plays("busy") ? 1 + number_of(device) : 0;
    return list(4000000 + 10 * number_of(device), running, count, processes);
}
/* Of a desktop one that draws alone, and one that computes as well. */
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *device, unsigned *count, struct process *processes) {
    unsigned running = plays("desktop") && number_of(device) == 0 ? 2 : 0;
    return list(4100000, running, count, processes);
}
/* Idle on the first device, too hot on the second. */
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons) {
    *reasons = plays("hot") && number_of(device) ? 0x40 : 0x1;
    return SUCCESS;
}

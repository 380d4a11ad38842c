/* A libnvidia-ml.so.1 that answers as chosen devices were seen to answer. Built by the tests with the C compiler and
 * loaded by the real pynvml, so that structures, versions and error codes take the path they take on a real machine.
 *
 * FAKE_NVML          gb10 | gb10_zero | gb10_memtotal | rtx4090 | h100x2 | two_cards | nodevice | nodriver
 *                    two_cards: an RTX 4090 that drives a display, then an H100
 * FAKE_NVML_CONTROL  a file read at every call; its first word is the driver's mood:
 *                    (none)  healthy     hang    every call takes 5 s      dead   GPU_IS_LOST from every call
 *                    stuck   busy at 799 MHz and 19.5 W with no reason     frozen no value moves
 *                    hot     thermal slowdown                              mute   temperature alone fails
 *                    hot0    thermal slowdown of card 0 alone                  lost0  GPU_IS_LOST from card 0 alone
 *                    outside processes are named by another PID namespace
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, UNINITIALIZED = 1, NOT_SUPPORTED = 3, NO_PERMISSION = 4, INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9,
       GPU_IS_LOST = 15, UNKNOWN = 999 };
enum { GB10, GB10_ZERO, GB10_MEMTOTAL, RTX4090, H100 };

typedef struct { uint64_t total, free, used; } memory_t;
typedef struct { unsigned version; uint64_t total, reserved, free, used; } memory_v2_t;
typedef struct { unsigned gpu, memory; } utilization_t;
typedef struct { unsigned version; int margin; } margin_t;
typedef struct { unsigned pid; uint64_t used; unsigned gpu_instance, compute_instance; } process_t;
typedef union { double d; unsigned ui; unsigned long ul; unsigned long long ull; long long sll; int si; unsigned short us; } value_t;
typedef struct { uint32_t id, scope; int64_t timestamp, latency; int type, result; value_t value; } field_t;

static int initialized;
static unsigned long long calls;

static const char *device(void) { const char *name = getenv("FAKE_NVML"); return name ? name : "gb10"; }
static int is_unified(int kind) { return kind == GB10 || kind == GB10_ZERO || kind == GB10_MEMTOTAL; }
static int kind_of(void *handle) { return (int)(intptr_t)handle / 16; }

static int kind(void) {
    const char *name = device();
    if (!strcmp(name, "two_cards")) return H100;
    if (!strcmp(name, "gb10_zero")) return GB10_ZERO;
    if (!strcmp(name, "gb10_memtotal")) return GB10_MEMTOTAL;
    if (!strcmp(name, "rtx4090")) return RTX4090;
    if (!strcmp(name, "h100x2")) return H100;
    return GB10;
}

static int mood_is(const char *wanted) {
    char word[32] = "";
    const char *path = getenv("FAKE_NVML_CONTROL");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (file) {
        if (fscanf(file, "%31s", word) != 1) word[0] = 0;
        fclose(file);
    }
    return !strcmp(word, wanted);
}

static int is_first(void *handle) { return (intptr_t)handle % 16 == 0; }
static int is_hot(void *handle) { return mood_is("hot") || (mood_is("hot0") && is_first(handle)); }

/* What every call goes through first. */
static int answer(void) {
    calls++;
    if (mood_is("hang")) sleep(5);
    if (mood_is("dead")) return GPU_IS_LOST;
    return initialized ? OK : UNINITIALIZED;
}
static unsigned jitter(unsigned width) { return mood_is("frozen") ? 0 : (unsigned)(calls * 7919 % width); }
#define ENTER int result = answer(); if (result) return result
#define ENTER_CARD ENTER; if (mood_is("lost0") && is_first(handle)) return GPU_IS_LOST

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    if (mood_is("hang")) sleep(5);
    if (mood_is("dead")) return UNKNOWN;
    if (!strcmp(device(), "nodriver")) return DRIVER_NOT_LOADED;
    initialized = 1;
    return OK;
}
int nvmlShutdown(void) { initialized = 0; return OK; }
const char *nvmlErrorString(int code) { return code == NOT_SUPPORTED ? "Not Supported" : code == GPU_IS_LOST ? "GPU is lost" : "Unknown Error"; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { ENTER; snprintf(text, size, "580.173.02"); return OK; }
int nvmlSystemGetCudaDriverVersion(int *version) { ENTER; *version = 13000; return OK; }
int nvmlDeviceGetCount_v2(unsigned *count) { ENTER; *count = !strcmp(device(), "nodevice") ? 0 : kind() == H100 ? 2 : 1; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) { ENTER; int k = !strcmp(device(), "two_cards") && index == 0 ? RTX4090 : kind(); *handle = (void *)(intptr_t)(k * 16 + index); return OK; }
int nvmlDeviceGetName(void *handle, char *text, unsigned size) {
    ENTER_CARD;
    int k = kind_of(handle);
    snprintf(text, size, "%s", is_unified(k) ? "NVIDIA GB10" : k == RTX4090 ? "NVIDIA GeForce RTX 4090" : "NVIDIA H100 80GB HBM3");
    return OK;
}
int nvmlDeviceGetUUID(void *handle, char *text, unsigned size) { ENTER_CARD; snprintf(text, size, "GPU-fake-%d", (int)(intptr_t)handle); return OK; }
int nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor) {
    ENTER_CARD;
    int k = kind_of(handle);
    *major = is_unified(k) ? 12 : k == RTX4090 ? 8 : 9;
    *minor = is_unified(k) ? 1 : k == RTX4090 ? 9 : 0;
    return OK;
}
int nvmlDeviceGetDisplayActive(void *handle, int *active) { ENTER_CARD; *active = kind_of(handle) == RTX4090; return OK; }

int nvmlDeviceGetDisplayMode(void *handle, int *mode) { ENTER_CARD; *mode = kind_of(handle) == RTX4090; return OK; }

int nvmlDeviceGetMemoryInfo(void *handle, memory_t *memory) {
    ENTER_CARD;
    int k = kind_of(handle);
    memset(memory, 0, sizeof *memory);
    if (k == GB10) return NOT_SUPPORTED;
    if (k == GB10_ZERO) return OK;
    memory->total = k == GB10_MEMTOTAL ? 127600748ull << 10 : k == RTX4090 ? 24564ull << 20 : 81559ull << 20;
    memory->used = k == GB10_MEMTOTAL ? 3ull << 30 : 6ull << 30;
    memory->free = memory->total - memory->used;
    return OK;
}
int nvmlDeviceGetMemoryInfo_v2(void *handle, memory_v2_t *memory) {
    memory_t plain;
    int result = nvmlDeviceGetMemoryInfo(handle, &plain);
    memory->total = plain.total; memory->free = plain.free; memory->used = plain.used; memory->reserved = 0;
    return result;
}
int nvmlDeviceGetUtilizationRates(void *handle, utilization_t *rates) {
    ENTER_CARD;
    rates->gpu = 96 - jitter(3);
    rates->memory = is_unified(kind_of(handle)) ? 0 : 61;
    return OK;
}
int nvmlDeviceGetPowerUsage(void *handle, unsigned *milliwatts) {
    ENTER_CARD;
    int k = kind_of(handle);
    *milliwatts = (is_unified(k) ? (mood_is("stuck") ? 19500 : 75000) : k == RTX4090 ? 390000 : 640000) + jitter(900);
    return OK;
}
int nvmlDeviceGetEnforcedPowerLimit(void *handle, unsigned *milliwatts) {
    ENTER_CARD;
    if (is_unified(kind_of(handle))) return NOT_SUPPORTED;
    *milliwatts = kind_of(handle) == RTX4090 ? 450000 : 700000;
    return OK;
}
int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *celsius) {
    ENTER_CARD;
    (void)sensor; (void)handle;
    if (mood_is("mute")) return NO_PERMISSION;
    *celsius = is_hot(handle) ? 93 : mood_is("stuck") ? 48 : 71 + jitter(2);
    return OK;
}
int nvmlDeviceGetTemperatureThreshold(void *handle, int threshold, unsigned *celsius) {
    ENTER_CARD;
    if (is_unified(kind_of(handle)) || threshold != 1) return NOT_SUPPORTED;
    *celsius = 97;
    return OK;
}
int nvmlDeviceGetMarginTemperature(void *handle, margin_t *margin) {
    ENTER_CARD;
    if (kind_of(handle) == RTX4090) return NOT_SUPPORTED;
    margin->margin = is_hot(handle) ? 1 : 23;
    return OK;
}
int nvmlDeviceGetClockInfo(void *handle, int type, unsigned *mhz) {
    ENTER_CARD;
    int unified = is_unified(kind_of(handle));
    if (type == 2) { *mhz = unified ? 0 : 10501; return OK; }
    *mhz = mood_is("stuck") ? 799 + jitter(9) : is_hot(handle) ? 1500 + jitter(9) : unified ? 2405 + jitter(60) : 2520;
    return OK;
}
int nvmlDeviceGetMaxClockInfo(void *handle, int type, unsigned *mhz) { ENTER_CARD; (void)type; *mhz = is_unified(kind_of(handle)) ? 3003 : 3105; return OK; }
int nvmlDeviceGetCurrentClocksEventReasons(void *handle, unsigned long long *bits) {
    ENTER_CARD;
    *bits = is_hot(handle) ? 0x20 : kind_of(handle) == RTX4090 ? 0x4 : 0;
    return OK;
}
int nvmlDeviceGetTotalEnergyConsumption(void *handle, unsigned long long *millijoules) {
    ENTER_CARD;
    (void)handle;
    *millijoules = 5000000 + (mood_is("frozen") ? 0 : calls * 900);
    return OK;
}
int nvmlDeviceGetFieldValues(void *handle, int count, field_t *fields) {
    ENTER_CARD;
    for (int i = 0; i < count; i++) {
        fields[i].result = OK;
        fields[i].type = 3;
        fields[i].value.ull = 0;
        if (fields[i].id == 82) {
            fields[i].type = 1;
            fields[i].value.ui = kind_of(handle) == H100 ? 68 : 0;
            if (kind_of(handle) == RTX4090) fields[i].result = NOT_SUPPORTED;
        } else if (fields[i].id == 269) {
            fields[i].value.ull = 903158000ull + (is_hot(handle) ? calls * 40000000ull : 0);
        } else if (fields[i].id == 74) {
            fields[i].value.ull = 165687000ull;
        }
    }
    return OK;
}
int nvmlDeviceGetFanSpeed(void *handle, unsigned *percent) {
    ENTER_CARD;
    if (kind_of(handle) != RTX4090) return NOT_SUPPORTED;
    *percent = 54;
    return OK;
}
int nvmlDeviceGetPerformanceState(void *handle, int *state) { ENTER_CARD; (void)handle; *state = 0; return OK; }
int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, process_t *processes) {
    ENTER_CARD;
    (void)handle;
    if (!processes) { *count = 2; return INSUFFICIENT_SIZE; }
    *count = 2;
    int outside = mood_is("outside");
    processes[0] = (process_t){outside ? 999999901u : (unsigned)getpid(), 3ull << 30, 0, 0};
    processes[1] = (process_t){outside ? 999999902u : 1, 67012ull << 20, 0, 0};
    return OK;
}

/* NVML of a host with two GPUs, of which CUDA counts the second on the bus first. Answers come with
   -D; once there is the file LOST, that GPU is lost. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct {
  unsigned long long total, available, used;
} Bytes;
typedef struct {
  unsigned gpu, memory;
} Busy;
static int first, second;

/* NVML_ERROR_INVALID_ARGUMENT for the other GPU, NVML_ERROR_GPU_IS_LOST. */
static int state(const void* gpu, int answer) {
  if (gpu != &second) return 2;
  return access(LOST, F_OK) == 0 ? 15 : answer;
}
static int bytes(const void* gpu, Bytes* found, unsigned long long total) {
  *found = (Bytes){total, total / 4 * 3, total / 4};
  return state(gpu, MEMORY);
}
static int text(char* to, unsigned size, const char* text) {
  return snprintf(to, size, "%s", text) >= (int)size;
}

int nvmlInitWithFlags(unsigned flags) { return flags; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char* to, unsigned size) { return text(to, size, "580.65.06"); }
int nvmlDeviceGetHandleByPciBusId_v2(const char* address, void** gpu) {
  *gpu = strcmp(address, "0000:c1:00.0") == 0 ? &second : &first;
  return state(*gpu, 0);
}
int nvmlDeviceGetName(void* gpu, char* to, unsigned size) {
  return state(gpu, text(to, size, "NVIDIA Fake"));
}
int nvmlDeviceGetUUID(void* gpu, char* to, unsigned size) {
  return state(gpu, text(to, size, "GPU-12345678-0000-0000-0000-123456789abc"));
}
int nvmlDeviceGetMemoryInfo(void* gpu, Bytes* found) { return bytes(gpu, found, 80ULL << 30); }
int nvmlDeviceGetBAR1MemoryInfo(void* gpu, Bytes* found) { return bytes(gpu, found, 128ULL << 30); }
int nvmlDeviceGetUtilizationRates(void* gpu, Busy* busy) {
  *busy = (Busy){37, 0};
  return state(gpu, 0);
}
int nvmlDeviceGetTemperature(void* gpu, int sensor, unsigned* celsius) {
  *celsius = 41;
  return state(gpu, sensor);
}
int nvmlDeviceGetPowerUsage(void* gpu, unsigned* milliwatts) {
  *milliwatts = 71234;
  return state(gpu, POWER);
}
int nvmlDeviceGetClockInfo(void* gpu, int clock, unsigned* megahertz) {
  *megahertz = clock == 1 ? 1980 : 0;
  return state(gpu, 0);
}

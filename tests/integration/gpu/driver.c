/* A driver and a compiler for GPUs that run kernels on this host: with ON_HOST their source, else
   one that copies whole bytes, and fills with zeros. As on a GPU, they do it some time later: here
   when they are waited for. The log names what was asked for; answers come with -D. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct {
  unsigned long long to, from, bytes;
  long long step;
} Copy;

static int note(const char* what, int result) {
  FILE* log = fopen(getenv("DRIVER_LOG"), "a");
  fprintf(log, "%s\n", what);
  fclose(log);
  return result;
}

int cuInit(unsigned flags) { return note("init", flags == 0 ? INIT : 1); }
int cuGetErrorName(int error, const char** text) {
  *text = "CUDA_ERROR_NAME";
  return error == 0;
}
int cuGetErrorString(int error, const char** text) {
  *text = "what went wrong";
  return error == 0;
}
int cuDriverGetVersion(int* version) {
  *version = 1000 * DRIVER;
  return 0;
}
/* NVRTC asks for one, and does without. */
int cuGetExportTable(const void** table, const void* id) {
  *table = 0;
  return id == 0 ? 1 : 500;
}
int cuDeviceGetCount(int* count) {
  *count = GPUS;
  return 0;
}
int cuDeviceGet(int* device, int index) {
  *device = index;
  return 0;
}
int cuDeviceGetPCIBusId(char* address, int size, int device) {
  return snprintf(address, size, "0000:C1:00.%d", device) >= size;
}
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  *value = attribute == 75    ? CAPABILITY
           : attribute == 91  ? HOST_POINTER
           : attribute == 116 ? CARDS
           : attribute == 117 ? FLUSHES
           : attribute == 118 ? ORDERING
                              : 0;
  return device >= GPUS;
}
static char contexts[8];
static __thread char* current;

int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = contexts + device;
  return note("retain", device >= GPUS);
}
int cuCtxPushCurrent_v2(void* context) {
  current = context;
  return context == 0;
}
int cuCtxPopCurrent_v2(void** context) { return context == 0; }
/* Kernels end when the file is there that a program names. */
static void run_kernels(void);

int cuCtxSynchronize(void) {
  const char* gate = getenv("DRIVER_GATE");
  note(current == contexts ? "synchronize" : "synchronize-another", 0);
  while (gate && access(gate, F_OK) != 0) usleep(1000);
  run_kernels();
  return SYNCHRONIZE;
}
/* Pinned memory. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
  const void* base;
  size_t bytes;
} held[64];

static void hold(const void* old, const void* base, size_t bytes) {
  int i = 0;
  pthread_mutex_lock(&lock);
  while (held[i].base != old) ++i;
  held[i].base = base;
  held[i].bytes = bytes;
  pthread_mutex_unlock(&lock);
}
int cuMemHostRegister_v2(void* memory, size_t bytes, unsigned flags) {
  if (PIN == 0) hold(0, memory, bytes);
  const char* what = current == contexts ? "pin" : "pin-for-another";
  return note(memory && bytes && flags == 3 ? what : "wrong", PIN);
}
/* Memory that kernels are to use is not given back. */
static void require_unused(const void* base, size_t bytes);

static size_t held_bytes(const void* base) {
  size_t bytes = 0;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < 64; ++i)
    if (held[i].base == base) bytes = held[i].bytes;
  pthread_mutex_unlock(&lock);
  return bytes;
}
int cuMemHostUnregister(void* memory) {
  require_unused(memory, held_bytes(memory));
  hold(memory, 0, 0);
  const char* what = current == contexts ? "unpin" : "unpin-for-another";
  return note(memory ? what : "wrong", 0);
}
int cuMemHostAlloc(void** memory, size_t bytes, unsigned flags) {
  *memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  hold(0, *memory, bytes);
  return flags != 3;
}
int cuMemFreeHost(void* memory) {
  require_unused(memory, held_bytes(memory));
  /* Who still reads it is found out. */
  memset(memory, 0xDD, held_bytes(memory));
  hold(memory, 0, 0);
  free(memory);
  return 0;
}

/* With GUARD, a GPU's memory can be accessed only while the driver or a kernel is at it. */
static struct {
  char* base;
  size_t bytes;
  int gpu;
} allocations[16];
static int users;

static void use_memory(int more) {
  pthread_mutex_lock(&lock);
  users += more;
  for (int i = 0; GUARD && i < 16; ++i)
    if (allocations[i].base && (users == 0 || (users == 1 && more == 1)))
      mprotect(allocations[i].base, allocations[i].bytes,
               users ? PROT_READ | PROT_WRITE : PROT_NONE);
  pthread_mutex_unlock(&lock);
}
int cuMemAlloc_v2(unsigned long long* memory, size_t bytes) {
  if (ALLOCATE != 0) return note("allocate", ALLOCATE);
  char* base = mmap(0, bytes, GUARD ? PROT_NONE : PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  pthread_mutex_lock(&lock);
  int i = 0;
  while (allocations[i].base) ++i;
  allocations[i].base = base;
  allocations[i].bytes = bytes;
  allocations[i].gpu = (int)(current - contexts);
  /* Others may be at work. */
  if (GUARD && users) mprotect(base, bytes, PROT_READ | PROT_WRITE);
  pthread_mutex_unlock(&lock);
  *memory = (unsigned long long)base;
  return note("allocate", 0);
}
int cuMemFree_v2(unsigned long long memory) {
  int i = 0;
  while (allocations[i].base != (char*)memory) ++i;
  require_unused(allocations[i].base, allocations[i].bytes);
  pthread_mutex_lock(&lock);
  munmap(allocations[i].base, allocations[i].bytes);
  allocations[i].base = 0;
  allocations[i].bytes = 0;
  pthread_mutex_unlock(&lock);
  return note("free", 0);
}
/* For programs: bytes that are allocated, pinned or of GPUs. */
size_t driver_bytes(int of_gpus) {
  size_t bytes = 0;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < 64 && !of_gpus; ++i) bytes += held[i].bytes;
  for (int i = 0; i < 16 && of_gpus; ++i) bytes += allocations[i].bytes;
  pthread_mutex_unlock(&lock);
  return bytes;
}
/* Memory that a test has instead of a library is on the first GPU. */
int cuPointerGetAttribute(void* value, int attribute, unsigned long long pointer) {
  *(int*)value = 0;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < 16; ++i)
    if (pointer - (unsigned long long)allocations[i].base < allocations[i].bytes)
      *(int*)value = allocations[i].gpu;
  pthread_mutex_unlock(&lock);
  return attribute != 9 || pointer == 0;
}
/* Copies are complete when their calls return. */
int cuPointerSetAttribute(const void* value, int attribute, unsigned long long pointer) {
  const int good = attribute == 6 && *(const unsigned*)value == 1 && pointer;
  return note(good ? "copies-at-once" : "wrong", SYNC_MEMOPS);
}
/* For programs: as cuMemcpyHtoDAsync, for a card whose writes are there when they were waited for. */
static struct {
  char* to;
  char* bytes;
  size_t count;
} late[256];
static int num_late;
static pthread_mutex_t late_lock = PTHREAD_MUTEX_INITIALIZER;

static void write_late(void) {
  use_memory(1);
  for (int i = 0; i < num_late; ++i) {
    memcpy(late[i].to, late[i].bytes, late[i].count);
    free(late[i].bytes);
  }
  num_late = 0;
  use_memory(-1);
}
int driver_write_late(unsigned long long to, const void* from, size_t bytes, void* stream) {
  pthread_mutex_lock(&late_lock);
  if (num_late == sizeof late / sizeof *late) write_late();
  late[num_late].to = (char*)to;
  late[num_late].bytes = malloc(bytes);
  memcpy(late[num_late].bytes, from, bytes);
  late[num_late++].count = bytes;
  pthread_mutex_unlock(&late_lock);
  return stream == 0;
}
/* What network cards have written is there. */
int cuFlushGPUDirectRDMAWrites(int target, int scope) {
  pthread_mutex_lock(&late_lock);
  write_late();
  pthread_mutex_unlock(&late_lock);
  return note(target == 0 && scope == 100 ? "flush" : "wrong", FLUSH);
}
/* A dma-buf of whole pages, here a file that has nothing. */
int cuMemGetHandleForAddressRange(void* handle, unsigned long long begin, size_t bytes, int type,
                                  unsigned long long flags) {
  if (!DMA_BUF) return 801;
  *(int*)handle = memfd_create("dma-buf", MFD_CLOEXEC);
  return note("export", begin % 4096 || bytes % 4096 || type != 1 || flags);
}
int cuMemGetInfo_v2(size_t* available, size_t* total) {
  *available = 1000;
  *total = 4000;
  return 0;
}
/* The first COPIES of them succeed. */
int cuMemcpyDtoHAsync_v2(void* to, unsigned long long from, size_t bytes, void* stream) {
  static int copies;
  if (COPIES >= 0 && __atomic_fetch_add(&copies, 1, __ATOMIC_RELAXED) >= COPIES) return 719;
  use_memory(1);
  memcpy(to, (const void*)from, bytes);
  use_memory(-1);
  /* The default one waits for all others. */
  return stream == 0;
}
int cuStreamSynchronize(void* stream) {
  run_kernels();
  return stream == 0;
}
int cuFuncGetAttribute(int* value, int attribute, void* function) {
  *value = THREADS;
  return attribute || !function;
}
int cuModuleLoadData(void** module, const void* code) {
  *module = &note;
#if ON_HOST
  *module = dlopen(code, RTLD_NOW | RTLD_LOCAL);
#endif
  return note(memcmp(code,
                     ELF       ? "\177ELF"
                     : ON_HOST ? "/"
                               : "code",
                     ELF       ? 4
                     : ON_HOST ? 1
                               : 4) == 0
                  ? "load"
                  : "wrong",
              0);
}
int cuMemcpyAsync(unsigned long long to, unsigned long long from, size_t bytes, void* stream) {
  run_kernels();
  use_memory(1);
  memcpy((void*)to, (const void*)from, bytes);
  use_memory(-1);
  return stream == 0;
}
int cuMemsetD8Async(unsigned long long to, unsigned char byte, size_t bytes, void* stream) {
  run_kernels();
  use_memory(1);
  memset((void*)to, byte, bytes);
  use_memory(-1);
  return stream == 0;
}
int cuDeviceGetName(char* name, int size, int device) {
  return snprintf(name, size, "Host %d", device) >= size;
}
int cuModuleUnload(void* module) { return note(module ? "unload" : "wrong", 0); }
int cuMemcpyHtoDAsync_v2(unsigned long long to, const void* from, size_t bytes, void* stream) {
  run_kernels();
  use_memory(1);
  memcpy((void*)to, from, bytes);
  use_memory(-1);
  return note("upload", stream == 0);
}
/* A kernel of an application, which is known by its mark, and runs on this host only. */
static const char mark[] = "application";
typedef struct {
  const char* mark;
  void (*run)(unsigned, unsigned, void**);
} Kernel;

int cuModuleGetFunction(void** function, void* module, const char* name) {
  *function = module;
  if (strcmp(name, "place") == 0) return 0;
  if (ELF) return 0;
  if (!ON_HOST || !dlsym(module, name)) return 500;
  Kernel* kernel = malloc(sizeof *kernel);
  kernel->mark = mark;
  kernel->run = dlsym(module, "run_frame");
  *function = kernel;
  return 0;
}
/* For programs: streams of theirs; 3 is another GPU's. The log has launches in them. */
static char streams[4];

void* driver_stream(int number) { return streams + number; }
static void note_stream(const char* what, void* stream) {
  char text[64];
  if ((char*)stream < streams || (char*)stream >= streams + 4) return;
  snprintf(text, sizeof text, "%s-%d", what, (int)((char*)stream - streams));
  note(text, 0);
}
int cuStreamGetCtx(void* stream, void** context) {
  *context = (char*)stream == streams + 3 ? contexts + 1 : current;
  return (char*)stream == streams ? 400 : 0;
}
int cuStreamWaitEvent(void* stream, void* event, unsigned flags) {
  note_stream("wait", stream);
  return event == 0 || flags != 0;
}
int cuStreamCreate(void** stream, unsigned flags) {
  *stream = &note;
  return flags != 1;
}
int cuStreamDestroy_v2(void* stream) { return stream == 0; }
int cuEventCreate(void** event, unsigned flags) {
  *event = &note;
  /* Without times, unless they are asked for. */
  return flags != 3 && flags != 0;
}
int cuEventElapsedTime(float* ms, void* begin, void* end) {
  *ms = 1;
  return !begin || !end;
}
int cuEventDestroy_v2(void* event) { return event == 0; }
int cuEventRecord(void* event, void* stream) { return event == 0 || stream == 0; }
int cuEventSynchronize(void* event) {
  run_kernels();
  return event == 0 ? 1 : EVENT;
}

/* Launched, and not done yet. */
static struct {
  void* kernel;
  const Copy* copies;
  unsigned count, blocks, threads;
} launched[256];
static int num_launched;
static pthread_mutex_t launch_lock = PTHREAD_MUTEX_INITIALIZER;

static void run_copies(int number) {
  const Copy* copies = launched[number].copies;
  const unsigned count = launched[number].count;
#if ON_HOST
  void (*run)(const Copy*, unsigned, unsigned, unsigned) =
      dlsym(launched[number].kernel, "run_block");
  for (unsigned block = 0; block < launched[number].blocks; ++block)
    run(copies, count, block, launched[number].threads);
#else
  for (unsigned i = 0; i < count; ++i) {
    if (copies[i].from != 0)
      memcpy((void*)copies[i].to, (const void*)copies[i].from, copies[i].bytes);
    else
      memset((void*)copies[i].to, 0, copies[i].bytes);
  }
#endif
}
static void run_kernels(void) {
  pthread_mutex_lock(&launch_lock);
  if (num_launched) {
    use_memory(1);
    for (int i = 0; i < num_launched; ++i) run_copies(i);
    use_memory(-1);
    num_launched = 0;
  }
  pthread_mutex_unlock(&launch_lock);
}
static void require_unused(const void* base, size_t bytes) {
  const unsigned long long begin = (unsigned long long)base;
  int used = 0;
  pthread_mutex_lock(&launch_lock);
  for (int i = 0; i < num_launched; ++i)
    for (unsigned k = 0; k < launched[i].count && !used; ++k) {
      const Copy* copy = launched[i].copies + k;
      used = (unsigned long long)copy - begin < bytes || copy->to - begin < bytes ||
             copy->from - begin < bytes;
    }
  pthread_mutex_unlock(&launch_lock);
  if (used) note("freed-too-early", 0);
}
int cuLaunchKernel(void* kernel, unsigned blocks, unsigned y, unsigned z, unsigned threads,
                   unsigned ty, unsigned tz, unsigned shared, void* stream, void** arguments,
                   void** extra) {
  note_stream("launch", stream);
  if (((const Kernel*)kernel)->mark == mark) {
    if (FRAME != 0 || !stream || extra || y * z * ty * tz != 1 || shared || !blocks)
      return FRAME ? FRAME : 1;
    run_kernels();
    use_memory(1);
    ((const Kernel*)kernel)->run(blocks, threads, arguments);
    use_memory(-1);
    return 0;
  }
  static int launches;
  if (LAUNCH != 0 && (LAUNCH_GPU < 0 || current == contexts + LAUNCH_GPU) &&
      __atomic_fetch_add(&launches, 1, __ATOMIC_RELAXED) >= GOOD_LAUNCHES)
    return LAUNCH;
  if (LAUNCHES) note("launch", 0);
  if (num_launched == sizeof launched / sizeof *launched) run_kernels();
  pthread_mutex_lock(&launch_lock);
  launched[num_launched].kernel = kernel;
  launched[num_launched].copies = *(const Copy**)arguments[0];
  launched[num_launched].count = *(const unsigned*)arguments[1];
  launched[num_launched].blocks = blocks;
  launched[num_launched].threads = threads;
  ++num_launched;
  pthread_mutex_unlock(&launch_lock);
  return !kernel || !stream || extra || y * z * ty * tz != 1 || shared || !blocks || !threads;
}

int nvrtcVersion(int* major, int* minor) {
  *major = 13;
  *minor = 1;
  return 0;
}
/* Of the latest program. */
static char source_file[512], library[512], text[65536] = "not a program";

int nvrtcCreateProgram(void** program, const char* source, const char* name, int headers,
                       const char* const* texts, const char* const* names) {
  unsigned long long hash = 5381;
  *program = &note;
  for (const char* at = source; *at; ++at) hash = 33 * hash + *at;
  snprintf(source_file, sizeof source_file, "%s.%llx.cpp", getenv("DRIVER_LOG"), hash);
  snprintf(library, sizeof library, "%s/%llx.so", getenv("DRIVER_COMPILED"), hash);
#if ON_HOST
  FILE* file = fopen(source_file, "w");
  if (strncmp(source, "#define", 7) != 0) {
    char kernel[64] = "frame";
    const char* defined = strstr(source, "__global__ void ");
    if (defined) sscanf(defined + 16, "%63[a-z_]", kernel);
    fprintf(file,
            "#include \"%s\"\n%s\n#line 1 \"driver\"\n"
            "extern \"C\" void run_frame(unsigned blocks, unsigned threads, void** arguments) {\n"
            "  run_frame_kernel(%s, blocks, threads, arguments);\n}\n",
            getenv("ON_HOST"), source, kernel);
  } else {
    const char* types = strstr(source, "typedef");
    fprintf(file, "%.*s#include \"%s\"\n%s", (int)(types - source), source, getenv("ON_HOST"),
            types);
  }
  fclose(file);
#endif
  return !source || !name || headers || texts || names;
}
int nvrtcDestroyProgram(void** program) { return *program == 0; }
int nvrtcCompileProgram(void* program, int count, const char* const* options) {
#if ON_HOST
  char command[4096];
  snprintf(command, sizeof command,
           "test -e %s || { g++ -shared -fPIC -fno-strict-aliasing -w %s -o %s.so 2> %s.log &&"
           " mv %s.so %s; }",
           library, source_file, source_file, source_file, source_file, library);
  if (system(command) != 0) {
    strcat(source_file, ".log");
    FILE* file = fopen(source_file, "r");
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    return 6;
  }
#endif
  return !program || !count || strcmp(options[0], "--gpu-architecture=sm_90") ? 1 : COMPILE;
}
int nvrtcGetProgramLogSize(void* program, size_t* size) {
  *size = strlen(text);
  return program == 0;
}
int nvrtcGetProgramLog(void* program, char* log) {
  memcpy(log, text, strlen(text));
  return program == 0;
}
int nvrtcGetCUBINSize(void* program, size_t* size) {
  *size = ON_HOST ? sizeof library : 4;
  return program == 0;
}
int nvrtcGetCUBIN(void* program, char* code) {
  memcpy(code, ON_HOST ? library : "code", ON_HOST ? sizeof library : 4);
  return program == 0;
}

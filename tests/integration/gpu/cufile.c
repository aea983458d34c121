/* cuFile for the driver beside it. Parts of pages are read, changed and written whole, so that
   neighbours that are written at the same time would be lost. Answers come with -D; the log names
   what was asked for. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define PAGE 4096
#define DOWN(at) ((at) / PAGE * PAGE)
#define UP(at) DOWN((at) + PAGE - 1)

typedef struct {
  int error, cuda;
} Result;
typedef struct {
  int type;
  union {
    int fd;
    void* handle;
  } handle;
  const void* operations;
} Description;

static void note(const char* what) {
  FILE* log = fopen(getenv("DRIVER_LOG"), "a");
  fprintf(log, "%s\n", what);
  fclose(log);
}

Result cuFileDriverOpen(void) {
  note("cufile");
  return (Result){CUFILE_OPEN, CUFILE_OPEN == 5011 ? 2 : 0};
}
Result cuFileDriverGetProperties(void* properties) {
  unsigned* versions = properties;
  memset(properties, 0, 256);
  versions[0] = CUFILE_MAJOR;
  versions[1] = 17;
  return (Result){0, 0};
}

static int files;

Result cuFileHandleRegister(void** handle, Description* description) {
  note("file");
  if (description->type != 1 || description->operations) return (Result){5022, 0};
  /* What it refuses: CU_FILE_INVALID_FILE_OPEN_FLAG. */
  const int flags = fcntl(description->handle.fd, F_GETFL);
  if (!(flags & O_DIRECT) || (flags & O_TMPFILE) == O_TMPFILE) return (Result){5019, 0};
  /* It opens the file by its name: CU_FILE_GETNEWFD_FAILED. */
  char link[64], name[4096] = "";
  snprintf(link, sizeof link, "/proc/self/fd/%d", description->handle.fd);
  if (readlink(link, name, sizeof name - 1) < 0 || access(name, R_OK | W_OK) != 0)
    return (Result){5031, 0};
  /* The first is a probe. */
  if (files++ >= CUFILE_FILES) return (Result){5008, 0};
  *handle = malloc(sizeof(int));
  *(int*)*handle = description->handle.fd;
  return (Result){0, 0};
}
void cuFileHandleDeregister(void* handle) {
  note("unfile");
  free(handle);
}

static const void* registered;

Result cuFileBufRegister(const void* base, size_t bytes, int flags) {
  note("buffer");
  if (registered || !bytes || flags) return (Result){5023, 0};
  if (CUFILE_BUFFER) return (Result){CUFILE_BUFFER, 0};
  registered = base;
  return (Result){0, 0};
}
Result cuFileBufDeregister(const void* base) {
  note("unbuffer");
  if (base != registered) return (Result){5024, 0};
  registered = 0;
  return (Result){0, 0};
}

ssize_t cuFileWrite(void* handle, const void* base, size_t size, off_t offset, off_t at) {
  static int writes;
  const int fd = *(int*)handle;
  if (CUFILE_BUFFER == 0 && base != registered) return -5024;
  if (CUFILE_WRITES >= 0 && __atomic_fetch_add(&writes, 1, __ATOMIC_RELAXED) >= CUFILE_WRITES) {
    errno = CUFILE_ERRNO;
    return CUFILE_ERROR ? -CUFILE_ERROR : CUFILE_ERRNO ? -1 : 0;
  }
  if (CUFILE_MOST && size > CUFILE_MOST) size = CUFILE_MOST;
  int (*copy)(void*, unsigned long long, size_t, void*) =
      dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuMemcpyDtoHAsync_v2");
  const off_t begin = DOWN(offset), end = UP(offset + (off_t)size);
  char* pages = aligned_alloc(PAGE, end - begin);
  memset(pages, 0, end - begin);
  ssize_t done = 0;
  if (offset != begin || offset + (off_t)size != end) done = pread(fd, pages, end - begin, begin);
  if (done >= 0 && copy(pages + (offset - begin), (unsigned long long)base + at, size, pages))
    done = -5014;
  if (done >= 0) done = pwrite(fd, pages, end - begin, begin);
  free(pages);
  if (done < 0) return done;
  const off_t there = begin + done - offset;
  return there < 0 ? 0 : there < (off_t)size ? there : (ssize_t)size;
}

/* LD_PRELOAD: every TCP socket of the process sends at most SLOW_SOCKET_BYTES_PER_S, by the kernel's own pacing. A slow
 * link that a test can have without touching the machine. With SLOW_SOCKET_WHEN only while a file of that name exists. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define FDS_MAX 4096
#define UNLIMITED (~0u)

static void pace(int fd, unsigned int rate) {
  setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate);
}

static unsigned int slow_rate(void) {
  const char* text = getenv("SLOW_SOCKET_BYTES_PER_S");
  return text ? (unsigned int)strtoul(text, 0, 10) : 0;
}

static void* follow(void* path) {
  int slow = 0;
  for (;; usleep(100000)) {
    int wanted = access((const char*)path, F_OK) == 0;
    if (wanted == slow) continue;
    slow = wanted;
    for (int fd = 3; fd < FDS_MAX; ++fd) pace(fd, slow ? slow_rate() : UNLIMITED); /* what is no socket refuses it */
  }
  return 0;
}

__attribute__((constructor)) static void begin(void) {
  pthread_t thread;
  char* path = getenv("SLOW_SOCKET_WHEN");
  if (path && slow_rate() > 0 && pthread_create(&thread, 0, follow, path) == 0) pthread_detach(thread);
}

static void slow_down(int fd) {
  if (fd >= 0 && slow_rate() > 0 && !getenv("SLOW_SOCKET_WHEN")) pace(fd, slow_rate());
}

int socket(int domain, int type, int protocol) {
  static int (*real)(int, int, int);
  if (!real) real = (int (*)(int, int, int))dlsym(RTLD_NEXT, "socket");
  int fd = real(domain, type, protocol);
  if (domain == AF_INET || domain == AF_INET6) slow_down(fd);
  return fd;
}

int accept(int fd, struct sockaddr* address, socklen_t* length) {
  static int (*real)(int, struct sockaddr*, socklen_t*);
  if (!real) real = (int (*)(int, struct sockaddr*, socklen_t*))dlsym(RTLD_NEXT, "accept");
  int accepted = real(fd, address, length);
  slow_down(accepted);
  return accepted;
}

int accept4(int fd, struct sockaddr* address, socklen_t* length, int flags) {
  static int (*real)(int, struct sockaddr*, socklen_t*, int);
  if (!real) real = (int (*)(int, struct sockaddr*, socklen_t*, int))dlsym(RTLD_NEXT, "accept4");
  int accepted = real(fd, address, length, flags);
  slow_down(accepted);
  return accepted;
}

/* LD_PRELOAD: every TCP socket of the process sends at most SLOW_SOCKET_BYTES_PER_S, by the kernel's own pacing. A slow
 * link that a test can have without touching the machine. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/socket.h>

static void slow_down(int fd) {
  const char* text = getenv("SLOW_SOCKET_BYTES_PER_S");
  unsigned int rate = text ? (unsigned int)strtoul(text, 0, 10) : 0;
  if (fd >= 0 && rate > 0) setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate);
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

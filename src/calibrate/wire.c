/* wire.c - TCP sockets, blocking. */
#include "calibrate/wire.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/units.h"

static void
fail(GError **error, const char *what, const char *why)
{
  g_set_error(error, HIGHWATER_ERROR, HIGHWATER_ERROR_INPUT, "%s: %s", what, why);
}

/* Small messages are not held back to be sent together. */
static void
send_at_once(int socket)
{
  int yes = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
}

int
wire_listen(int *port, GError **error)
{
  struct sockaddr_in address = {
      .sin_family = AF_INET,
      .sin_port = htons((guint16) *port),
      .sin_addr = {.s_addr = htonl(INADDR_ANY)},
  };
  socklen_t length = sizeof(address);
  int yes = 1;
  int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) != 0 ||
      bind(listener, (struct sockaddr *) &address, sizeof(address)) != 0 ||
      listen(listener, SOMAXCONN) != 0 ||
      getsockname(listener, (struct sockaddr *) &address, &length) != 0) {
    g_autofree char *what = g_strdup_printf("port %d", *port);
    fail(error, what, g_strerror(errno));
    if (listener >= 0)
      close(listener);
    return -1;
  }
  *port = ntohs(address.sin_port);
  return listener;
}

int
wire_accept(int listener, double patience_s, GError **error)
{
  struct pollfd wait = {.fd = listener, .events = POLLIN};
  int ready = poll(&wait, 1, (int) (patience_s * 1000));
  if (ready <= 0) {
    fail(error, "a process of the job", ready == 0 ? "did not call in time" : g_strerror(errno));
    return -1;
  }
  int caller = accept(listener, NULL, NULL);
  if (caller < 0)
    fail(error, "a process of the job", g_strerror(errno));
  else
    send_at_once(caller);
  return caller;
}

static int
connect_once(const struct addrinfo *addresses)
{
  for (const struct addrinfo *a = addresses; a != NULL; a = a->ai_next) {
    int s = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
    if (s < 0)
      continue;
    if (connect(s, a->ai_addr, a->ai_addrlen) == 0)
      return s;
    int why = errno;
    close(s);
    errno = why;
  }
  return -1;
}

int
wire_connect(const MeetingPoint *point, double patience_s, GError **error)
{
  const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  struct addrinfo *addresses = NULL;
  g_autofree char *port = g_strdup_printf("%d", point->port);
  int status = getaddrinfo(point->host, port, &hints, &addresses);
  if (status != 0) {
    fail(error, point->host, gai_strerror(status));
    return -1;
  }
  gint64 end = g_get_monotonic_time() + (gint64) (patience_s * G_USEC_PER_SEC);
  int s = connect_once(addresses);
  while (s < 0 && g_get_monotonic_time() < end) {
    g_usleep(G_USEC_PER_SEC / 20);
    s = connect_once(addresses);
  }
  int why = errno;
  freeaddrinfo(addresses);
  if (s < 0) {
    g_autofree char *what = g_strdup_printf("%s:%d", point->host, point->port);
    fail(error, what, g_strerror(why));
  } else {
    send_at_once(s);
  }
  return s;
}

gboolean
wire_send(int socket, gconstpointer bytes, gsize length, GError **error)
{
  const char *next = bytes;
  while (length > 0) {
    ssize_t sent = send(socket, next, length, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR)
      continue;
    if (sent <= 0) {
      fail(error, "a process of the job", g_strerror(errno));
      return FALSE;
    }
    next += sent;
    length -= (gsize) sent;
  }
  return TRUE;
}

gboolean
wire_receive(int socket, gpointer bytes, gsize length, GError **error)
{
  char *next = bytes;
  while (length > 0) {
    ssize_t got = recv(socket, next, length, 0);
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0) {
      fail(error, "a process of the job", got == 0 ? "has gone" : g_strerror(errno));
      return FALSE;
    }
    next += got;
    length -= (gsize) got;
  }
  return TRUE;
}

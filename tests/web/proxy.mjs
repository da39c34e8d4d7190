// A proxy that serves another server under a prefix, as `location /lockstep/ { proxy_pass http://server:7070/; }` of nginx does; anything
// else is 404.
import { createServer, request as ask } from 'node:http';

export async function proxy(target, prefix) {
  const server = createServer((request, response) => {
    if (!request.url.startsWith(`${prefix}/`)) return response.writeHead(404).end('not behind the prefix');
    const onward = ask(new URL(request.url.slice(prefix.length), target), { method: request.method, headers: request.headers }, (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      answer.pipe(response);
    });
    onward.on('error', () => response.destroy());
    return request.pipe(onward);
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    stop: () => new Promise((resolve) => {
      server.close(resolve);
      server.closeAllConnections();
    }),
  };
}

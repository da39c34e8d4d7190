// Serves web/dist with canned API answers, as lockstepd would: `node tests/web/fixture_server.mjs [PORT]` to look at the page by
// hand (the slow job then takes a step a second), or start() from a test.
import { createServer } from 'node:http';
import { readFile } from 'node:fs/promises';
import { extname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Fixture } from './fixture_data.mjs';

const kDist = fileURLToPath(new URL('../../web/dist/', import.meta.url));
const kTypes = { '.html': 'text/html; charset=utf-8', '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml' };

// The strictest policy the page must live with.
const kPolicy = "default-src 'self'; base-uri 'none'; frame-ancestors 'none'; form-action 'none'";

export async function start(port = 0) {
  const fixture = new Fixture();
  const world = { fixture, down: false, requests: [], url: '', stop: () => {} };
  const server = createServer(async (request, response) => {
    const url = new URL(request.url, 'http://fixture');
    if (/^\/(api|prometheus)\//.test(url.pathname)) {
      world.requests.push(request.url);
      if (world.down) return request.socket.destroy();
      let body = '';
      for await (const chunk of request) body += chunk;
      const [status, answer] = fixture.answer(url.pathname, url.searchParams, body);
      response.writeHead(status, { 'content-type': 'application/json' });
      return response.end(JSON.stringify(answer));
    }
    const wanted = decodeURIComponent(url.pathname);
    const path = wanted.slice(wanted.lastIndexOf('/')).includes('.') ? normalize(wanted) : '/index.html';
    try {
      const content = await readFile(join(kDist, path));
      response.writeHead(200, { 'content-type': kTypes[extname(path)] ?? 'application/octet-stream', 'content-security-policy': kPolicy });
      response.end(content);
    } catch {
      response.writeHead(404).end('not found');
    }
    return undefined;
  });
  await new Promise((resolve) => server.listen(port, '127.0.0.1', resolve));
  world.url = `http://127.0.0.1:${server.address().port}`;
  world.stop = () => new Promise((resolve) => {
    server.close(resolve);
    server.closeAllConnections();
  });
  return world;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const world = await start(Number(process.argv[2] ?? 7071));
  setInterval(() => { world.fixture.extraSteps += 1; }, 1_000);
  console.log(`page on ${world.url}`);
}

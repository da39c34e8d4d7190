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

const kCookie = 'lockstep_session=fixture';
const isKnown = (request) => (request.headers.cookie ?? '').includes(kCookie);

function sessionOf(world, request) {
  if (!world.token) return { tokens_in_use: false, signed_in: false, name: '', tenant: 'default', roles: ['ingest', 'admin'] };
  const known = isKnown(request);
  return { tokens_in_use: true, signed_in: known, name: known ? 'token 3f9a1c20 (on call)' : '', tenant: 'default', issuer: world.issuer, roles: known ? ['read'] : [] };
}

// False: the request was answered here, because its sender is not known, signs in or signs out.
function signedIn(world, request, url, body, response) {
  const answer = (status, said, headers = {}) => {
    response.writeHead(status, { 'content-type': 'application/json', ...headers });
    response.end(JSON.stringify(said));
    return false;
  };
  if (url.pathname === '/api/session/end') return answer(200, {}, { 'set-cookie': `${kCookie}; Max-Age=0` });
  if (url.pathname === '/api/session' && request.method === 'POST') {
    if (JSON.parse(body).token !== world.token) return answer(401, { error: 'this token is not valid: nobody has it here, or it was revoked or has expired' });
    const known = { headers: { cookie: kCookie } };
    return answer(200, sessionOf(world, known), { 'set-cookie': `${kCookie}; HttpOnly; SameSite=Strict; Path=/` });
  }
  if (url.pathname === '/api/session' || isKnown(request)) return true;
  response.writeHead(401, { 'content-type': 'text/plain', 'www-authenticate': 'Bearer realm="lockstep"' });
  response.end('this server wants a token: Authorization: Bearer ...\n');
  return false;
}

export async function start(port = 0) {
  const fixture = new Fixture();
  const world = { fixture, down: false, token: '', issuer: '', requests: [], url: '', stop: () => {} };  // token: who has none is asked for it
  const server = createServer(async (request, response) => {
    const url = new URL(request.url, 'http://fixture');
    if (/^\/(api|prometheus)\//.test(url.pathname)) {
      world.requests.push(request.url);
      if (world.down) return request.socket.destroy();
      let body = '';
      for await (const chunk of request) body += chunk;
      if (world.token && !signedIn(world, request, url, body, response)) return undefined;
      const [status, answer] = url.pathname === '/api/session'
        ? [200, sessionOf(world, request)]
        : fixture.answer(url.pathname, url.searchParams, body);
      response.writeHead(status, { 'content-type': 'application/json' });
      return response.end(typeof answer === 'string' ? answer : JSON.stringify(answer));
    }
    const wanted = decodeURIComponent(url.pathname);
    const path = wanted.slice(wanted.lastIndexOf('/')).includes('.') ? normalize(wanted) : '/index.html';
    try {
      const content = await readFile(join(kDist, path));
      response.writeHead(200, { 'content-type': kTypes[extname(path)] ?? 'application/octet-stream', 'content-security-policy': kPolicy });
      // As lockstepd: what index.html names is relative, from however far below it was asked for.
      const up = '../'.repeat(url.pathname.split('/').length - 2);
      response.end(path === '/index.html' && up ? content.toString().replaceAll('="./', `="${up}`) : content);
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

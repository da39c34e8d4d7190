// Where the server's own paths begin as the browser sees them: empty, or '/lockstep' behind a proxy that serves it there. Known from where
// this script came from, so that nobody has to configure it; the server writes index.html with relative addresses.

export function prefixOf(script: string): string {
  const found = /^(.*)\/assets\/[^/]+$/.exec(new URL(script, 'http://page').pathname);
  return found ? found[1]! : '';
}

export const prefix = prefixOf(import.meta.url);

// A path of the server ('/api/jobs') as an address of this page's host.
export const rooted = (path: string): string => prefix + path;

// For commands: where this server is.
export const serverUrl = (): string => location.origin + prefix;

// The other way: the path of an address without the prefix.
export function unrooted(path: string): string {
  return prefix && (path === prefix || path.startsWith(`${prefix}/`)) ? path.slice(prefix.length) || '/' : path;
}

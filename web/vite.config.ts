import { cpSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { type Plugin } from 'vite';
import { defineConfig } from 'vitest/config';

// `npm run dev` serves the page with the API of a running lockstepd behind it.
const server = process.env['LOCKSTEP_URL'] ?? 'http://127.0.0.1:7070';

// The documents travel with the page, so that a link to a runbook works where nothing else can be reached.
const documents: Plugin = {
  name: 'documents',
  apply: 'build',
  closeBundle: () => cpSync(fileURLToPath(new URL('../docs', import.meta.url)), fileURLToPath(new URL('dist/docs', import.meta.url)), { recursive: true }),
};

export default defineConfig({
  esbuild: { jsx: 'automatic', jsxImportSource: 'preact' },
  // No inlined assets: a strict content security policy (default-src 'self') allows no data: URLs.
  // Relative: the page works under whatever prefix a proxy serves it.
  base: './',
  build: { target: 'es2021', assetsInlineLimit: 0, modulePreload: { polyfill: false } },
  plugins: [documents],
  // The tests are plain functions without state: a process for each file is three quarters of their time.
  test: { pool: 'threads', poolOptions: { threads: { singleThread: true, isolate: false } } },
  server: { host: '127.0.0.1', proxy: { '/api': server, '/prometheus': server, '^/docs/.*\\.md$': server } },
});

import { expect, it } from 'vitest';
import { prefixOf } from './root';

it('knows where the server is served by where the script came from', () => {
  expect(prefixOf('http://host:7070/assets/index-abc.js')).toBe('');
  expect(prefixOf('https://host/lockstep/assets/index-abc.js')).toBe('/lockstep');
  expect(prefixOf('https://host/a/assets/b/assets/index-abc.js?v=1')).toBe('/a/assets/b');
  expect(prefixOf('http://127.0.0.1:5173/src/base/root.ts')).toBe('');
});

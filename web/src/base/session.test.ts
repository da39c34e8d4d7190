import { describe, expect, it } from 'vitest';
import { decodeSession } from './session';

describe('a session', () => {
  it('is wanted where the server has tokens and we have no role', () => {
    expect(decodeSession({ tokens_in_use: true, signed_in: false, name: '', tenant: 'default', roles: [] }).wanted).toBe(true);
    expect(decodeSession({ tokens_in_use: true, signed_in: true, name: 'token a (b)', tenant: 'default', roles: ['read'] }))
      .toEqual({ wanted: false, signedIn: true, name: 'token a (b)', tenant: 'default', issuer: '', roles: ['read'] });
    expect(decodeSession({ tokens_in_use: false, roles: ['ingest', 'admin'] }).wanted).toBe(false);
  });
  it('is nobody where the answer is odd', () => {
    for (const odd of [null, 7, [], { roles: 'admin' }]) expect(decodeSession(odd)).toMatchObject({ wanted: false, signedIn: false, roles: [] });
  });
});

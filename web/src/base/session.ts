// Who looks at the page, as the server sees it. Where the server wants a token and has none from us, `wanted` is true and the page
// asks for one; the token itself is sent once and kept nowhere, a cookie that no script can read stands for it.
import { signal } from '@preact/signals';
import { list, object, text } from './decode';
import { rooted } from './root';

export interface Session {
  wanted: boolean;    // nothing is shown before somebody signs in
  signedIn: boolean;  // by this page: signing out makes sense
  name: string;
  tenant: string;
  issuer: string;     // where people may sign in instead of with a token; empty: nowhere
  roles: string[];
}

const kNobody: Session = { wanted: false, signedIn: false, name: '', tenant: '', issuer: '', roles: [] };
export const session = signal<Session>(kNobody);

export function decodeSession(answer: unknown): Session {
  const fields = object(answer);
  const roles = list(fields['roles']).map(text).filter((role) => role !== '');
  return {
    wanted: fields['tokens_in_use'] === true && roles.length === 0,
    signedIn: fields['signed_in'] === true,
    name: text(fields['name']),
    tenant: text(fields['tenant']),
    issuer: text(fields['issuer']),
    roles,
  };
}

// A request was answered 401.
export function noteUnknown(): void {
  if (!session.peek().wanted) session.value = { ...kNobody, issuer: session.peek().issuer, wanted: true };
}

// A server that does not know the question has no tokens either.
export async function askSession(): Promise<void> {
  try {
    const response = await fetch(rooted('/api/session'), { headers: { accept: 'application/json' } });
    if (response.ok) session.value = decodeSession(await response.json());
  } catch {
    // The page's own questions will say that nobody answers.
  }
}

// Leads to the issuer's page and back to where one was going.
export function issuerPath(): string {
  return rooted(`/api/session/oidc?return=${encodeURIComponent(location.pathname + location.search)}`);
}

// Empty on success, else why not, for a person.
export async function signIn(token: string): Promise<string> {
  try {
    const response = await fetch(rooted('/api/session'), {
      method: 'POST', headers: { accept: 'application/json', 'content-type': 'application/json' }, body: JSON.stringify({ token }),
    });
    const answer: unknown = await response.json().catch(() => null);
    if (!response.ok) return text(object(answer)['error']) || `The server answered ${response.status}.`;
    session.value = decodeSession(answer);
    return '';
  } catch {
    return 'The server does not answer.';
  }
}

export async function signOut(): Promise<void> {
  try {
    const response = await fetch(rooted('/api/session/end'), {
      method: 'POST', headers: { accept: 'application/json', 'content-type': 'application/json' }, body: '{}',
    });
    if (response.ok) session.value = { ...kNobody, issuer: session.peek().issuer, wanted: true };
  } catch {
    // Still signed in: the button stays.
  }
}

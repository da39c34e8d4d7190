// What every page has: the way up on the left, the state on the right, and the banner when the line is down.
import type { ComponentChildren } from 'preact';
import { clock, utc } from '../base/format';
import { line } from '../base/poll';
import { session, signOut } from '../base/session';
import { theme, toggleTheme } from '../base/theme';
import { go, writePlace, type Place } from '../base/url';

export interface Crumb {
  label: string;
  to: Place;
}

export function Frame({ crumbs, state, children }: { crumbs: Crumb[]; state?: ComponentChildren; children: ComponentChildren }) {
  const next = theme.value === 'dark' ? 'light' : 'dark';
  return (
    <>
      <header class="top">
        <nav aria-label="Where you are">
          <ol class="crumbs">
            {crumbs.map((crumb, index) => (
              <li key={index}>
                {index < crumbs.length - 1
                  ? <PlaceLink to={crumb.to}>{crumb.label}</PlaceLink>
                  : <h1 aria-current="page">{crumb.label}</h1>}
              </li>
            ))}
          </ol>
        </nav>
        <div class="state">{state}</div>
        <Person />
        <button type="button" class="plain" onClick={toggleTheme} title={`Switch to the ${next} theme`}>
          <span aria-hidden="true">◐ </span>{next}
        </button>
      </header>
      <main>{children}</main>
      <Banner />
    </>
  );
}

// A link within the page; a modified click opens a tab, as with any link.
export function PlaceLink({ to, class: name, children }: { to: Place; class?: string; children: ComponentChildren }) {
  return (
    <a
      href={writePlace(to)}
      class={name}
      onClick={(event) => {
        if (event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
        event.preventDefault();
        go(to);
      }}
    >
      {children}
    </a>
  );
}

// Who is signed in; nothing where nobody has to be.
function Person() {
  const { signedIn, name, tenant, roles } = session.value;
  if (!signedIn) return null;
  return (
    <div class="person">
      <span class="muted" title={`tenant ${tenant}, may ${roles.join(', ')}`}>{name}</span>
      <button type="button" class="plain" onClick={() => void signOut()}>Sign out</button>
    </div>
  );
}

function Banner() {
  const { lostSince, never } = line.value;
  const since = lostSince === null ? null : lostSince * 1e6;
  return (
    <div class="banner" role="status">
      {since !== null && (
        <p title={utc(since)}>
          <span aria-hidden="true">◌ </span>No answer from the server since {clock(since, true)}; showing what was known then.
        </p>
      )}
      {since === null && never && <p><span aria-hidden="true">◌ </span>No answer from the server at {location.host}. Is lockstepd running?</p>}
    </div>
  );
}

// What is shown instead of any page while the server wants to know who looks: the way to the issuer where there is one, and a field for a
// token. Where one was going stays in the address.
import { useState } from 'preact/hooks';
import { issuerPath, session, signIn } from '../base/session';
import { Frame } from '../widgets/frame';

export function SignIn() {
  const [trouble, setTrouble] = useState('');
  const [busy, setBusy] = useState(false);
  const { issuer } = session.value;
  document.title = 'Sign in · Lockstep';
  const submit = async (form: HTMLFormElement): Promise<void> => {
    const field = form.elements.namedItem('token') as HTMLInputElement;
    const token = field.value.trim();
    if (!token || busy) return;
    setBusy(true);
    const why = await signIn(token);
    setBusy(false);
    setTrouble(why && `Not signed in: ${why}`);
    if (why) field.select();
  };
  return (
    <Frame crumbs={[{ label: 'Sign in', to: { page: 'fleet' } }]}>
      <section class="card empty sign-in">
        <h2>{issuer ? 'Sign in to see this page.' : 'This server wants a token.'}</h2>
        {issuer && <p><a class="button primary" href={issuerPath()}>Sign in with {issuer}</a></p>}
        {issuer && <h3>Or with a token</h3>}
        <form onSubmit={(event) => {
          event.preventDefault();
          void submit(event.currentTarget);
        }}>
          <label for="token">Token</label>
          <input id="token" name="token" type="password" autocomplete="current-password" spellcheck={false} autofocus={!issuer}
                 aria-invalid={trouble !== ''} aria-describedby="trouble" />
          <button type="submit" class={issuer ? '' : 'primary'} disabled={busy}>Sign in</button>
        </form>
        <p id="trouble" role="alert">{trouble}</p>
        <p class="muted">No token? Whoever runs the server makes one that may look at everything with</p>
        <p><code>lockstep token create --role read</code></p>
      </section>
    </Frame>
  );
}

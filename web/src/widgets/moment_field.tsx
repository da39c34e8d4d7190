// When: empty for now.
import { useState } from 'preact/hooks';
import { momentText, parseMoment } from '../base/moment';

export function MomentField({ at, onAt }: { at: number | null; onAt: (at: number | null) => void }) {
  const [typed, setTyped] = useState<string | null>(null);
  const value = typed ?? momentText(at);
  const bad = parseMoment(value, Date.now()) === undefined;
  const submit = (): void => {
    const wanted = parseMoment(value, Date.now());
    if (typed === null || wanted === undefined) return;
    setTyped(null);
    if (wanted !== at) onAt(wanted);
  };
  return (
    <form class="ranks-field" onSubmit={(event) => { event.preventDefault(); submit(); }}>
      <label>at
        <input type="text" value={value} placeholder="now" size={20} aria-invalid={bad} aria-describedby={bad ? 'moment-bad' : undefined}
               title="UTC: 2026-11-15T22:00:00Z, or -5m (ago); empty: now" onInput={(event) => setTyped(event.currentTarget.value)} onBlur={submit} />
      </label>
      {bad && <span id="moment-bad" role="status">such as -5m or 2026-11-15T22:00:00Z</span>}
    </form>
  );
}

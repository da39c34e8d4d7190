// Which ranks are shown: "0-7,64", empty for all.
import { useState } from 'preact/hooks';
import { isRanks } from '../base/url';

export function RanksField({ ranks, onRanks }: { ranks: string; onRanks: (ranks: string) => void }) {
  const [typed, setTyped] = useState<string | null>(null);
  const text = typed ?? ranks;
  const bad = text !== '' && !isRanks(text.replace(/\s+/g, ''));
  const submit = (): void => {
    const wanted = text.replace(/\s+/g, '');
    if (wanted !== '' && !isRanks(wanted)) return;
    setTyped(null);
    if (wanted !== ranks) onRanks(wanted);
  };
  return (
    <form class="ranks-field" onSubmit={(event) => { event.preventDefault(); submit(); }}>
      <label>ranks
        <input type="text" value={text} placeholder="all" aria-invalid={bad} aria-describedby={bad ? 'ranks-bad' : undefined} size={10}
               onInput={(event) => setTyped(event.currentTarget.value)} onBlur={() => { if (!bad) submit(); }} />
      </label>
      {bad && <span id="ranks-bad" role="status">such as 0-7,64</span>}
    </form>
  );
}

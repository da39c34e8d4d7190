import { useState } from 'preact/hooks';
import { copy } from '../base/share';

// The label gives way to "Copied" in place; the width is held by the longer of the two.
export function CopyButton({ content, label = 'Copy', name }: { content: string; label?: string; name?: string }) {
  const [done, setDone] = useState<'' | 'Copied' | 'Failed'>('');
  return (
    <button
      type="button"
      class="copy"
      aria-label={done || (name ?? label)}
      onClick={async () => {
        setDone((await copy(content)) ? 'Copied' : 'Failed');
        setTimeout(() => setDone(''), 1_500);
      }}
    >
      {done || label}
    </button>
  );
}

import { useLater } from '../base/hooks';
import { line } from '../base/poll';

// Nothing for 300 ms, then a word. Nothing either when the banner already says that no answer comes.
export function Loading({ what }: { what: string }) {
  const due = useLater(300);
  return <p class="muted pad" role="status">{due && !line.value.never ? `Loading ${what} …` : '\u00a0'}</p>;
}

// Was the verdict right? Two buttons; the one that was chosen stays pressed, pressing it again takes it back. What it was instead is
// asked for only where the verdict itself names others that it could have been.
import { useEffect, useState } from 'preact/hooks';
import { api, Refused } from '../base/api';
import type { Feedback, Verdict } from '../base/decode';

export function FeedbackButtons({ verdict }: { verdict: Verdict }) {
  const [said, setSaid] = useState<Feedback | null>(verdict.feedback);
  const [trouble, setTrouble] = useState('');
  // Somebody else may have said something meanwhile.
  useEffect(() => setSaid(verdict.feedback), [verdict.feedback?.at_unix_ns ?? 0]);
  const say = async (right: boolean | null, cause = ''): Promise<void> => {
    try {
      const answer = await api.feedback(verdict.id, right, cause, new AbortController().signal);
      setSaid(answer.feedback);
      setTrouble('');
    } catch (error) {
      setTrouble(`Not kept: ${error instanceof Refused ? error.message : 'the server does not answer.'}`);
    }
  };
  // Some alternatives are things, not causes.
  const causes: string[] = [...new Set(verdict.alternatives.flatMap((other) => other.cause ?? []))];
  if (said?.cause && !causes.includes(said.cause)) causes.push(said.cause);
  const wrong = said !== null && !said.right;
  return (
    <div class="judge" role="group" aria-label="Was this verdict right?">
      <button type="button" class="small" aria-pressed={said?.right === true} title="It was right: later verdicts learn from it"
              onClick={() => void say(said?.right === true ? null : true)}>Right</button>
      <button type="button" class="small" aria-pressed={wrong} title="It was wrong: later verdicts learn from it"
              onClick={() => void say(wrong ? null : false)}>Wrong</button>
      {wrong && causes.length > 0 && (
        <label>
          it was{' '}
          <select value={said.cause} onChange={(event) => void say(false, event.currentTarget.value)}>
            <option value="">not reported</option>
            {causes.map((cause) => <option key={cause} value={cause}>{cause}</option>)}
          </select>
        </label>
      )}
      {said?.note && <span class="muted" title={said.note}>with a note</span>}
      {trouble && <span role="alert">{trouble}</span>}
    </div>
  );
}
